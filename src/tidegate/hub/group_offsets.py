"""Positions that groups of Kafka's clients have committed, durable before they are acknowledged.

A commit is an event of a log of its own, so that commits share a sync as publications do. A snapshot beside the log
holds all positions as of some sequence number; opening reads only later commits, and segments before it are deleted. A
position belongs to one incarnation of a hub: a hub that is created again under the same name begins without any.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.durable_files import FileDamaged, read_checked, write_checked
from tidegate.log import (
    Appended,
    Clock,
    Committer,
    LogDamaged,
    LogError,
    PartitionLog,
    SegmentReader,
    expiry_time_ms,
)

_logger = logging.getLogger(__name__)
SNAPSHOT_COMMITS = 10_000
MAX_METADATA_BYTES = 4096
RETENTION_MS = 7 * 86_400_000
"""How long positions are kept after the last commit of a group, as in Kafka."""
_VERSION = 1
_SNAPSHOT = "positions.json"
_ADVICE = "restore it from a backup, or empty the folder: groups then begin where their clients' settings say"

OnDone = Callable[[LogError | None], None]
_Groups = dict[str, dict["PartitionKey", "GroupOffset"]]


class PartitionKey(NamedTuple):
    """A partition of one incarnation of a hub, by the name of the hub's folder."""

    directory: str
    partition: int


class GroupOffset(NamedTuple):
    """A committed position: the sequence number that the group reads next."""

    offset: int
    leader_epoch: int
    metadata: str | None
    committed_at_ms: int


class GroupOffsets:
    """The positions of all groups. Safe to call from any thread."""

    def __init__(self, directory: Path, clock: Clock, committer: Committer, *, durable: bool = True) -> None:
        """Read what was committed. Raises FileDamaged, LogError, OSError."""
        self._log = PartitionLog.open(
            directory, clock=clock, committer=committer, segment_bytes=4 << 20, durable=durable, exclusive=False
        )
        self._path = directory / _SNAPSHOT
        self._clock = clock
        self._committer = committer
        self._lock = threading.Lock()
        self._saving = threading.Lock()  # held before the other one: two writers would mix their snapshots in one file
        self._groups: _Groups = {}
        self._since_snapshot = self._applied = 0
        try:
            self._groups, number = _read_snapshot(self._path)
            if self._log.begin_sequence_number > number:
                raise _missing(self._path, self._log.begin_sequence_number)
            self._replay(number)
        except BaseException:
            self._log.close()
            raise

    def commit(self, group: str, positions: Mapping[PartitionKey, GroupOffset], on_done: OnDone) -> None:
        """Keep positions of a group; on_done is called from a committer thread once they are durable, or were not kept.

        Raises LogClosed.
        """
        rows = [[*key, *position] for key, position in positions.items()]
        self._append({"group": group, "positions": rows}, on_done)

    def forget(self, group: str, keys: Iterable[PartitionKey] | None, on_done: OnDone) -> None:
        """Drop positions of a group, all of them without `keys`. Otherwise like `commit`."""
        self._append({"group": group, "forgotten": None if keys is None else [list(key) for key in keys]}, on_done)

    def now_ms(self) -> int:
        """Return the time to note with a commit, by the clock that positions expire by: the machine's may be behind."""
        return self._clock.now_ms()

    def of(self, group: str) -> Mapping[PartitionKey, GroupOffset]:
        """Return the positions of a group."""
        with self._lock:
            return dict(self._groups.get(group, {}))

    def groups(self) -> list[str]:
        """Return the names of the groups that have positions."""
        with self._lock:
            return list(self._groups)

    def in_hub(self, directory: str) -> Mapping[str, Mapping[int, GroupOffset]]:
        """Return the positions that groups have in one incarnation of a hub, by group and partition."""
        with self._lock:
            found = {
                group: {key.partition: position for key, position in known.items() if key.directory == directory}
                for group, known in self._groups.items()
            }
        return {group: found[group] for group in sorted(found) if found[group]}

    def close(self) -> None:
        """Save the positions, so that the next start need not read the log."""
        self._log.close()
        self._try_snapshot()

    def _append(self, commit: dict[str, object], on_done: OnDone) -> None:
        def on_durable(result: Appended | LogError) -> None:
            if isinstance(result, LogError):
                on_done(result)
                return
            with self._lock:
                _apply(self._groups, commit)
                self._applied = result.first_sequence_number + 1
                self._since_snapshot += 1
                is_due = self._since_snapshot == SNAPSHOT_COMMITS
            on_done(None)
            if is_due:
                self._committer.submit(self._tidy)

        self._log.append([json.dumps(commit, separators=(",", ":")).encode()], on_durable)

    def expire(self, keeps: Callable[[str, PartitionKey], bool]) -> None:
        """Drop what was last committed long ago, unless `keeps` says of a group and a partition that it is in use.

        Raises LogClosed.
        """
        oldest_ms = expiry_time_ms(self._clock) - RETENTION_MS
        with self._lock:
            due = {
                group: [
                    key
                    for key, position in positions.items()
                    if position.committed_at_ms < oldest_ms and not keeps(group, key)
                ]
                for group, positions in self._groups.items()
            }
        for group, keys in due.items():
            if keys:
                self.forget(group, keys, lambda _: None)

    # -- on the disk

    def _tidy(self) -> None:
        saved = self._try_snapshot()
        if saved is not None:
            try:
                self._log.roll(max_bytes=0)
                self._log.apply_retention(max_bytes=0, keep_from=saved)
            except (LogError, OSError) as error:
                _logger.warning("old commits of groups cannot be deleted yet: %s", error)

    def _try_snapshot(self) -> int | None:
        """Return the number of the first commit that the snapshot does not hold, None if it cannot be written.

        Commits go on while it is written.
        """
        with self._saving:
            with self._lock:
                number = self._applied
                rows = [
                    [group, *key, *position]
                    for group, positions in self._groups.items()
                    for key, position in positions.items()
                ]
                self._since_snapshot = 0
            try:
                write_checked(self._path, {"version": _VERSION, "sequence_number": number, "positions": rows})
            except OSError as error:
                _logger.warning("%s cannot be written: %s", self._path, error)  # more to read at the next start
                return None
        return number

    def _replay(self, sequence_number: int) -> None:
        log = self._log
        while sequence_number < log.next_sequence_number:
            try:
                batches = log.read_batches(sequence_number)
            except LogDamaged as damage:
                _logger.error("%s: commits of groups are lost: %s", log.directory, damage)
                sequence_number = damage.resume_sequence_number
                continue
            for batch in batches:
                for event in batch.events:
                    _apply(self._groups, json.loads(event))
                sequence_number = batch.base_sequence_number + len(batch.events)
        self._applied = log.next_sequence_number


def read_offsets(directory: Path) -> Mapping[str, Mapping[PartitionKey, GroupOffset]]:
    """Return by group what was committed, also while a hub has the directory open.

    Raises FileDamaged, LogError, OSError.
    """
    former = -1
    while True:
        groups, number = _read_snapshot(directory / _SNAPSHOT)
        log = SegmentReader(directory)
        begin = log.begin_sequence_number()
        if begin > number:
            if number == former:
                raise _missing(directory / _SNAPSHOT, begin)
            former = number
            continue  # a newer snapshot has replaced what is missing
        for entry in log.read_entries(number):
            if entry.base_sequence_number > number:
                break
            begins = [0, *entry.end_table()]
            for at in range(number - entry.base_sequence_number, entry.count):
                _apply(groups, json.loads(bytes(entry.payload[begins[at] : begins[at + 1]])))
            number = entry.base_sequence_number + entry.count
        else:
            return groups


def _read_snapshot(path: Path) -> tuple[_Groups, int]:
    """Return positions, and the sequence number from which the log is to be read. Raises FileDamaged, OSError."""
    document = read_checked(path, advice=_ADVICE)
    groups: _Groups = {}
    if document is None:
        return groups, 0
    try:
        for group, directory, partition, *position in _rows(document["positions"]):
            groups.setdefault(group, {})[PartitionKey(directory, partition)] = GroupOffset(*position)
        return groups, int(document["sequence_number"])
    except (KeyError, TypeError, ValueError) as error:
        raise FileDamaged(path, str(error), _ADVICE) from None


def _missing(path: Path, begin: int) -> FileDamaged:
    """Return the error that commits are neither in the snapshot nor in the log, which begins with a later one."""
    return FileDamaged(path, f"it is missing, or older than the commits beside it, which begin at {begin}", _ADVICE)


def _apply(groups: _Groups, commit: dict[str, object]) -> None:
    group = str(commit["group"])
    known = groups.setdefault(group, {})
    if "positions" in commit:
        for directory, partition, *position in _rows(commit["positions"]):
            known[PartitionKey(directory, partition)] = GroupOffset(*position)
    elif commit["forgotten"] is None:
        known.clear()
    else:
        for directory, partition in _rows(commit["forgotten"]):
            known.pop(PartitionKey(directory, partition), None)
    if not known:
        del groups[group]


def _rows(found: object) -> Iterator[list[Any]]:
    assert isinstance(found, list)
    return iter(found)
