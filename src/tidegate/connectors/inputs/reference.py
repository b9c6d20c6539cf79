"""Reference data of a job: which tables there are, and the event time from which each is effective.

A row is joined to the table that is effective at its time, so results are a function of the tables and their effective
times as well as of the log. Files, though, come and go. So each table that is taken in is recorded in the state folder,
with its content and its effective time, before a row is joined to it. A restart joins with the recorded tables,
whatever has happened to the files.

A table's file may appear, or change, after events of its time have been joined to the previous table. They are not
joined again: the table becomes effective at the first time that no row has been joined at yet ("late"), and that time
is recorded. How far rows have been joined is recorded too, before their results leave. A run that is killed between its
outputs and its journal is followed by one that computes the same results again, and a new table must not change them. A
file whose time is before that of an effective table is never used, as in the service ("Use reference data for lookups":
files may only be appended in the order of their times).
"""

from __future__ import annotations

import hashlib
import logging
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from tidegate.blobs import Blob, BlobError, BlobSource, PathPattern, open_source
from tidegate.connectors.inputs.file_settings import FileSettings, has_settled
from tidegate.connectors.inputs.kinds import INPUTS, FormatName, InputSection
from tidegate.connectors.model.errors import InputError, InputUnavailableError, UnavailableError
from tidegate.connectors.model.section import Public, SecretUrl
from tidegate.connectors.model.state_file import DamagedStateError, read_state, write_state
from tidegate.durable_files import replace_file
from tidegate.engine import (
    DEFAULT_LIMITS,
    JSON,
    DecodingLimits,
    Format,
    Problem,
    TableBodies,
    TableVersion,
    Wanted,
    decoder_of,
    rows_of,
)
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND, short_time


class ReferenceFiles(Protocol):
    """The tables of one input, each a file or as if it were one. Every method raises BlobError."""

    @property
    def described(self) -> str:
        """Where they come from, for messages."""

    @property
    def are_timed(self) -> bool:
        """Whether each table has a time of its own; otherwise there is one table, which changes."""

    def find(self) -> list[tuple[Blob, int | None]]:
        """Return the tables that there are now, each with its time in ticks if it has one."""

    def read_blob(self, blob: Blob) -> bytes:
        """Return the content of a table."""

    def has_settled(self, blob: Blob) -> bool:
        """Return whether a table is complete; one that is being written may not be."""


class ReferenceSection(InputSection):
    """A section ``[inputs.NAME]`` of reference data."""

    refresh_s: float = Field(default=10, gt=0, description="how often to look for a new table")
    keep_s: float = Field(
        default=0,
        ge=0,
        description="how long the state folder keeps a table that another has replaced, in event time, so that "
        "`verify` and `explain` join earlier rows with it",
    )

    @property
    def is_fixed(self) -> bool:
        """Whether the table of the job's first start is the only one, whatever a restart would find."""
        return False

    @abstractmethod
    def open_tables(self) -> ReferenceFiles:
        """Open the tables.

        Raises:
            BlobError: they cannot be reached.
        """

    @abstractmethod
    def file_format(self, name: str, limits: DecodingLimits) -> Format:
        """Return the format of a table's content."""


_logger = logging.getLogger(__name__)
_VERSION = 1
_FILE = "reference.json"
_CONTENTS = "reference"


@INPUTS.register
class ReferenceInput(FileSettings, ReferenceSection):
    """A table to join streams to. With ``{date}`` and ``{time}`` in the path each file is the table from that time on;
    without, a file that changes is a new table from the time of the change on."""

    type: Literal["reference"]
    path: SecretUrl = Field(
        description="a file, or a pattern with `{date}` and `{time}`; relative to the job file, or `az://CONTAINER/…` …"
    )
    format: Annotated[Public, FormatName()] = Field(default="json", description="the format of a file")
    settle_s: float = Field(
        default=2,
        ge=0,
        description="how old a file in a folder must be before it is considered complete, once there is a table",
    )

    def open_tables(self) -> ReferenceFiles:
        pattern = self.pattern()
        return FileTables(self.path, pattern, open_source(pattern.root, self.storage_environment), self.settle_s)


@dataclass(frozen=True, slots=True)
class FileTables:
    """Files as tables."""

    described: str
    pattern: PathPattern
    source: BlobSource
    settle_s: float

    @property
    def are_timed(self) -> bool:
        return self.pattern.has_time

    def find(self) -> list[tuple[Blob, int | None]]:
        return [(blob, place.time) for blob, place in self.pattern.find(self.source)]

    def read_blob(self, blob: Blob) -> bytes:
        return self.source.read_blob(blob)

    def has_settled(self, blob: Blob) -> bool:
        return has_settled(self.pattern.root, blob, self.settle_s)


class _Away(InputUnavailableError):
    """A store cannot be reached, or a file is missing at the moment."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A table that has been taken in.

    Attributes:
        blob: the file it was read from.
        time: the table's time according to the file, in ticks; NO_TIME for one without a time.
        effective: the event time from which it is effective, in ticks.
        digest: the hash of the file's content, under which the content is stored.
    """

    blob: Blob
    time: int
    effective: int
    digest: str


@dataclass(frozen=True, slots=True)
class Joined:
    """How far rows have been joined whose results may have left, though no commit says so.

    Attributes:
        time: ticks; no row with a later time has been joined.
        released: ticks; up to where results had been committed. After another commit this no longer counts.
    """

    time: int
    released: int


def reference_tables(
    definitions: Mapping[str, ReferenceSection], state_dir: Path | None, limits: DecodingLimits = DEFAULT_LIMITS
) -> dict[str, tuple[TableVersion, ...]]:
    """Return the tables as a job has taken them in, or as it would if it started now; nothing is written.

    Raises:
        InputError: a table is missing or cannot be read.
    """
    folder = state_dir if state_dir is not None and (state_dir / _FILE).exists() else None
    return References(definitions, folder, limits).all_tables()


class References:
    """The reference data of one job."""

    def __init__(
        self, definitions: Mapping[str, ReferenceSection], folder: Path | None, limits: DecodingLimits = DEFAULT_LIMITS
    ) -> None:
        """Load the tables recorded in the state folder, if any, and those of the files that exist now.

        Raises:
            InputError: a table is missing or cannot be read, or the folder is damaged.
        """
        self._definitions = {name.lower(): definition for name, definition in definitions.items()}
        self._names = {name.lower(): name for name in definitions}
        self._folder = folder
        self._limits = limits
        self._sources = {name: _opened(self._names[name], one) for name, one in self._definitions.items()}
        self._taken: dict[str, list[Taken]] = {name: [] for name in self._definitions}
        self._past: dict[str, list[Taken]] = {}
        self._snapshots: dict[str, TableVersion] = {}
        self._looked_at_s: dict[str, float] = {}
        self._same: set[Blob] = set()
        self._latest: dict[str, Blob] = {}
        self._has_new = False
        self._joined: Joined | None = None
        # By input, the time (ticks) before which tables were given up.
        self._gone: dict[str, int] = {}
        written: dict[str, list[Taken]] = {}
        if folder is not None:
            written, self._past, self._joined, self._gone = _written(folder)
        for name in self._definitions:
            self._taken[name] = written.get(name, [])
            if not self._taken[name]:
                self._look(name, NO_TIME)
                if not self._taken[name]:
                    described = self._sources[name].described
                    raise _Away(f"reference data '{self._names[name]}': there is no file {described}")
        self._has_new = False

    def __bool__(self) -> bool:
        return bool(self._definitions)

    def keep(self, folder: Path) -> None:
        """Record tables in a folder: those taken in so far at once, later ones as they come. Raises JobError."""
        self._folder = folder
        self._write(self._joined)

    def tables(self) -> dict[str, tuple[TableVersion, ...]]:
        """Return the tables that rows may still be joined to, by input name in lower case. Raises InputError."""
        return {name: tuple(self._snapshot(name, one) for one in taken) for name, taken in self._taken.items()}

    def all_tables(self) -> dict[str, tuple[TableVersion, ...]]:
        """Return those, after the kept ones that earlier rows were joined to. Raises InputError."""
        return {
            name: tuple(self._snapshot(name, one) for one in [*self._past.get(name, []), *taken])
            for name, taken in self._taken.items()
        }

    def resume(self, released: int, lookback: int) -> None:
        """Continue where all results before a time (ticks) have left, over rows up to ``lookback`` ticks older.

        Raises:
            JobError: a new table cannot be used or recorded.
        """
        if self._joined is not None and self._joined.released != released:
            self._joined = None
        if released != NO_TIME:
            self.go_back(released - lookback)
            self._warn_of_gone(released, released - lookback)
            self.refresh(released)

    def note_joined(self, joined: int, released: int) -> None:
        """Record how far rows have been joined, before their results leave.

        Args:
            joined: ticks; no row with a later time has been joined.
            released: ticks; all results before it are committed.

        Raises:
            UnavailableError: the disk refuses.
        """
        noted = self._joined
        if self._definitions and (noted is None or noted.released != released or noted.time < joined):
            self._write(Joined(joined, released))

    def refresh(self, not_before: int, needed_from: int = NO_TIME) -> bool:
        """Look for new tables if it is time to; return whether there are any.

        Args:
            not_before: the first event time at which no row has been joined, in ticks.
            needed_from: no row before this time will be joined any more, so tables that end before it are dropped.

        Raises:
            InputError: a new table cannot be used.
            UnavailableError: the disk refuses; another call tries again.
        """
        if self._joined is not None:
            not_before = max(not_before, self._joined.time + 1)
        not_before = min(not_before, END_OF_TIME)
        for name, definition in self._definitions.items():
            if definition.is_fixed and self._taken[name]:
                continue
            if time.monotonic() - self._looked_at_s.get(name, float("-inf")) < definition.refresh_s:
                continue
            try:
                self._look(name, not_before)
            except _Away as error:
                # The known tables stay effective; one that comes later will be late.
                _logger.warning("%s; trying again in %s s", error, definition.refresh_s)
            except UnavailableError:
                self._looked_at_s[name] = float("-inf")
                raise
        if not self._has_new:
            return False
        self._give_up(needed_from)
        self._write(self._joined)
        self._has_new = False
        return True

    def go_back(self, needed_from: int) -> None:
        """Take tables in again that were given up, as rows from this time on (ticks) are joined once more."""
        for name, past in self._past.items():
            taken = [*past, *self._taken.get(name, [])]
            ends = [one.effective for one in taken[1:]]
            back = next((place for place, end in enumerate(ends[: len(past)]) if end > needed_from), len(past))
            self._past[name], self._taken[name] = taken[:back], taken[back:]

    def _warn_of_gone(self, released: int, needed_from: int) -> None:
        """Say which tables are missing: a new query may look back further, and an earlier start needs older ones."""
        for name, gone in self._gone.items():
            if name in self._names and needed_from < gone:
                _logger.warning(
                    "reference data '%s': results from %s on need rows from %s on, but tables from before %s were not "
                    "kept, and rows from before then are joined with none; keep_s keeps tables longer",
                    self._names[name],
                    short_time(released),
                    short_time(needed_from),
                    short_time(gone),
                )

    # files

    def _look(self, name: str, not_before: int) -> None:
        """Take in the new files of one input."""
        self._looked_at_s[name] = time.monotonic()
        try:
            found = self._sources[name].find()
        except BlobError as error:
            raise _Away(f"reference data '{self._names[name]}': {error}") from error
        is_first = not self._taken[name]
        in_order = sorted(found, key=lambda item: (_or(item[1], NO_TIME), item[0].modified, item[0].name))
        if self._sources[name].are_timed:
            known = self._same.union(one.blob for one in self._taken[name])
            for blob, at in in_order:
                if blob not in known and (is_first or self._is_complete(name, blob)):
                    self._take(name, blob, _or(at, NO_TIME), not_before)
            return
        if len(in_order) > 1:
            raise InputError(
                f"reference data '{self._names[name]}': {len(in_order)} files fit {self._sources[name].described}; "
                "name one, or a pattern with {date} and {time}"
            )
        for blob, _ in in_order:
            latest = self._taken[name][-1] if self._taken[name] else None
            if blob != self._latest.get(name, latest and latest.blob) and (is_first or self._is_complete(name, blob)):
                at = NO_TIME if latest is None else blob.modified
                if latest is not None and at < latest.time:
                    # It was replaced by a file that was modified earlier, such as a copy of a table before.
                    at = max(latest.time, time.time_ns() // 100)
                self._take(name, blob, at, not_before)
                self._latest[name] = blob

    def _is_complete(self, name: str, blob: Blob) -> bool:
        """Return whether a file can be taken in; if not, look again soon.

        A job does not wait for the tables that it begins with: rows would be joined to earlier ones meanwhile.
        """
        if self._sources[name].has_settled(blob):
            return True
        self._looked_at_s[name] = float("-inf")
        return False

    def _take(self, name: str, blob: Blob, at: int, not_before: int) -> None:
        taken = self._taken[name]
        in_force = max((one.time for one in taken if one.effective <= not_before), default=None)
        if in_force is not None and at < in_force:
            return
        effective = max(at, not_before)
        content = self._read(name, blob)
        one = Taken(blob, at, effective, _digest(content))
        same = [other for other in taken if other.time == at and other.effective > not_before]
        before = [other for other in taken if other.time <= at and other not in same]
        if before and before[-1].digest == one.digest:
            self._same.add(blob)  # touched, or written again: the same table
            return
        self._decode(name, one, content)
        self._keep_content(one.digest, content)
        if effective > at and taken:
            _logger.warning(
                "reference data '%s': %s is from %s, but events up to %s have been joined to the previous table; "
                "it takes effect from %s on",
                self._names[name],
                blob.name,
                short_time(at),
                short_time(not_before - 1),
                short_time(effective),
            )
        rest = [other for other in taken if other not in same]
        self._taken[name] = sorted([*rest, one], key=lambda other: (other.effective, other.time))
        self._has_new = True

    def _decode(self, name: str, taken: Taken, content: bytes) -> None:
        self._snapshots[taken.digest] = _decoded(
            self._names[name], self._definitions[name], taken.blob, content, self._limits
        )

    def _give_up(self, needed_from: int) -> None:
        for name, taken in self._taken.items():
            last = max((place for place, one in enumerate(taken) if one.effective <= needed_from), default=0)
            self._taken[name] = taken[last:]
            past = [*self._past.get(name, []), *taken[:last]]
            kept_from = needed_from - int(self._definitions[name].keep_s * TICKS_PER_SECOND)
            ends = [one.effective for one in [*past, *taken[last:]][1:]]
            self._past[name] = [one for one, end in zip(past, ends, strict=False) if end > kept_from]
            if len(self._past[name]) < len(past):
                self._gone[name] = [*self._past[name], *taken[last:]][0].effective

    # what is written down

    def _snapshot(self, name: str, taken: Taken) -> TableVersion:
        if taken.digest not in self._snapshots:
            assert self._folder is not None
            path = self._folder / _CONTENTS / taken.digest
            try:
                content = path.read_bytes()
            except OSError as error:
                raise InputError(f"cannot read the kept table {path}: {error.strerror}") from error
            if hashlib.sha256(content).hexdigest() != taken.digest:
                raise DamagedStateError(path, "its content is not what its name, a SHA-256, says")
            self._snapshots[taken.digest] = _decoded(
                self._names[name], self._definitions[name], taken.blob, content, self._limits
            )
        return replace(self._snapshots[taken.digest], effective_ticks=taken.effective)

    def _read(self, name: str, blob: Blob) -> bytes:
        try:
            return self._sources[name].read_blob(blob)
        except BlobError as error:
            raise _Away(f"reference data '{self._names[name]}': {error}") from error

    def _keep_content(self, digest: str, content: bytes) -> None:
        if self._folder is not None:
            path = self._folder / _CONTENTS / digest
            try:
                if not path.exists():
                    path.parent.mkdir(exist_ok=True)
                    replace_file(path, content)
            except OSError as error:
                raise UnavailableError(f"cannot write {path}: {error.strerror}") from error

    def _write(self, joined: Joined | None) -> None:
        if self._folder is None or not self._definitions:
            return
        for name, taken in self._taken.items():
            for one in taken:
                if not (self._folder / _CONTENTS / one.digest).exists():
                    self._keep_content(one.digest, self._read(name, one.blob))
        content = {
            "version": _VERSION,
            "inputs": {name: [asdict(one) for one in taken] for name, taken in self._taken.items()},
            "past": {name: [asdict(one) for one in past] for name, past in self._past.items()},
            "gone": self._gone,
            "joined": None if joined is None else asdict(joined),
        }
        write_state(self._folder / _FILE, content)
        self._joined = joined
        kept = {one.digest for taken in [*self._taken.values(), *self._past.values()] for one in taken}
        for path in list(_files(self._folder / _CONTENTS)):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def _opened(name: str, definition: ReferenceSection) -> ReferenceFiles:
    try:
        return definition.open_tables()
    except BlobError as error:
        raise InputError(f"reference data '{name}': {error}") from error


def _written(
    folder: Path,
) -> tuple[dict[str, list[Taken]], dict[str, list[Taken]], Joined | None, dict[str, int]]:
    """Return the tables that rows may still be joined to, those of earlier rows, how far rows have been joined, and
    before which times tables were given up."""
    content: Any = read_state(folder / _FILE, _VERSION)
    if content is None:
        return {}, {}, None, {}
    try:
        joined = None if content["joined"] is None else Joined(**content["joined"])
        gone = {name: int(time) for name, time in content["gone"].items()}
        return _tables_in(content["inputs"]), _tables_in(content["past"]), joined, gone
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedStateError(folder / _FILE, repr(error)) from error


def _tables_in(content: Any) -> dict[str, list[Taken]]:
    return {name: [Taken(**{**one, "blob": Blob(**one["blob"])}) for one in taken] for name, taken in content.items()}


def _decoded(
    name: str, definition: ReferenceSection, blob: Blob, content: bytes, limits: DecodingLimits
) -> TableVersion:
    """Decode the table in a file; every row must be readable."""
    form = definition.file_format(blob.name, limits)
    bodies = rows_of(content, form)
    form = form if isinstance(bodies, TableBodies) else JSON
    decoded = decoder_of(Wanted(record=True), form).decode(bodies)
    if len(decoded.rejected_events):
        row, problem = int(decoded.rejected_events[0]), Problem(int(decoded.rejected_problems[0]))
        text = bodies[row][:80].decode("utf-8", errors="replace")
        raise InputError(
            f"reference data '{name}': row {row + 1} of {blob.name} cannot be used: {problem.message}: {text!r}"
        )
    if isinstance(bodies, TableBodies):
        return TableVersion((content,), format=form)
    return TableVersion(tuple(bodies))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    if folder.exists():
        yield from (path for path in folder.iterdir() if not path.name.startswith("."))


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value
