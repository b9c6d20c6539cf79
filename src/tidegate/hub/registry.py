"""The hubs that a namespace serves, and the one way to change them.

`snapshot` is an immutable value. A change computes the next snapshot from it and commits that: what must be opened is
opened, the snapshot is written durably, and only then does it take effect. If any of this fails, nothing has happened.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tidegate.durable_files import DirectoryLock
from tidegate.hub.access import Access
from tidegate.hub.config import Limits
from tidegate.hub.event_hub import Admission, EventHub, LogSettings, open_partitions
from tidegate.hub.snapshot import HubDefinition, Snapshot, write_state
from tidegate.hub.throughput import Throughput

_logger = logging.getLogger(__name__)
HUBS_FOLDER = "hubs"


class Registry:
    """The served hubs of one data directory. Safe to call from any thread.

    `event_hubs` has the hubs by their names in lower case. It is replaced and never changed, so that other threads can
    iterate over it.
    """

    def __init__(
        self,
        data_dir: Path,
        directory_lock: DirectoryLock,
        snapshot: Snapshot,
        served_before: frozenset[str],
        logs: LogSettings,
        monotonic_s: Callable[[], float],
    ) -> None:
        """Take over the locked data directory; `commit` begins to serve.

        `served_before` has the folders of the hubs that were created in an earlier run, which must be there.
        """
        self._data_dir = data_dir
        self._logs = logs
        self._lock = threading.RLock()
        self._snapshot = snapshot
        self._served_before = served_before
        self._closed = False
        self.event_hubs: Mapping[str, EventHub] = {}
        self.access = Access(snapshot.rules, lambda name: name.lower() in self.event_hubs)
        limits = snapshot.limits
        self.throughput = Throughput(
            limits.throughput_units,
            limits.auto_inflate_to,
            monotonic_s,
            lambda: logs.committer.submit(self._keep_inflated_units),
        )
        self._directory_lock = directory_lock
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change, in the thread that made it."""

    @property
    def snapshot(self) -> Snapshot:
        """What is served now, with the units that auto-inflate has added."""
        snapshot, throughput = self._snapshot, self.throughput
        limits = Limits(
            tier=snapshot.limits.tier,
            throughput_units=throughput.units,
            auto_inflate_to=throughput.auto_inflate_to,
        )
        return snapshot if limits == snapshot.limits else replace(snapshot, limits=limits)

    @contextmanager
    def changing(self) -> Iterator[Snapshot]:
        """Give the snapshot that a change begins from, and keep other changes out until the block ends."""
        with self._lock:
            yield self.snapshot

    def commit(self, snapshot: Snapshot, *, limits: Limits | None = None, is_kept: bool = False) -> None:
        """Write a snapshot durably and serve it.

        Args:
            snapshot: What to serve; its limits are ignored.
            limits: New limits. None keeps the current ones, with the units that auto-inflate has added meanwhile.
            is_kept: The snapshot is the one on the disk, and need not be written.

        Raises:
            LogError, FileDamaged, OSError: Nothing has changed.
        """
        with self._lock, ExitStack() as undo:
            snapshot = replace(snapshot, limits=limits or self.snapshot.limits)
            hubs = {key: self._serve(definition, undo) for key, definition in snapshot.hubs.items()}
            if not is_kept:
                write_state(self._data_dir, snapshot.to_state())
            undo.pop_all()
            former, self.event_hubs = self.event_hubs, hubs
            if limits is not None:
                self.throughput.set(limits.throughput_units, limits.auto_inflate_to)
            self._snapshot = snapshot
            self.access.rule_table = snapshot.rules
            admission = self._admission(snapshot)
            for key, hub in hubs.items():
                hub.definition, hub.admission = snapshot.hubs[key], admission
            for hub in former.values():
                if hubs.get(hub.definition.key) is not hub:
                    hub.is_deleted = True
                    hub.close()
        self.on_change()
        self.remove_deleted_directories()

    def _serve(self, definition: HubDefinition, undo: ExitStack) -> EventHub:
        """Return the hub that is being served, or open it."""
        served = self.event_hubs.get(definition.key)
        directory = self._data_dir / HUBS_FOLDER / definition.directory
        if served is not None and served.definition.directory == definition.directory:
            self._add_partitions(served, definition, directory, undo)
            return served
        is_new = definition.directory not in self._served_before
        if is_new:
            undo.callback(shutil.rmtree, directory, ignore_errors=True)
        partitions = open_partitions(definition.config, directory, self._logs, is_new=is_new)
        hub = EventHub(definition, partitions, self._admission(self._snapshot))
        undo.callback(hub.close)
        return hub

    def _add_partitions(self, hub: EventHub, definition: HubDefinition, directory: Path, undo: ExitStack) -> None:
        """Open the partitions that a hub is to have in addition."""
        former = hub.partitions
        if definition.config.partition_count <= len(former):
            return
        added = open_partitions(definition.config, directory, self._logs, is_new=True, first=len(former))
        for partition in added:
            undo.callback(partition.close)
        undo.callback(hub.set_partitions, former)
        hub.set_partitions((*former, *added))

    def _admission(self, snapshot: Snapshot) -> Admission:
        throughput = None if snapshot.limits.throughput_units is None else self.throughput
        return Admission(snapshot.limits.max_message_bytes, throughput)

    def _keep_inflated_units(self) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                self.commit(self.snapshot)
            except OSError as error:
                _logger.warning("the throughput units that auto-inflate added cannot be kept: %s", error)

    def remove_deleted_directories(self) -> None:
        """Remove the folders of deleted hubs; one that is still in use is left for the next call."""
        for name in self._snapshot.deleted_directories:
            path = self._data_dir / HUBS_FOLDER / name
            try:
                if path.exists():
                    shutil.rmtree(path)
            except OSError as error:
                _logger.warning("the folder %s of a deleted hub cannot be removed yet: %s", path, error)
            else:
                with self._lock:
                    remaining = self._snapshot.deleted_directories - {name}
                    self._snapshot = replace(self._snapshot, deleted_directories=remaining)

    def close(self) -> None:
        """Finish what is under way in all partitions and release the directory."""
        with self._lock:
            self._closed = True
            for hub in self.event_hubs.values():
                hub.close()
            self._directory_lock.release()
