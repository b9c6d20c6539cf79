"""Parts: rows made durable under names that no other attempt uses, before anybody decides that they count.

Writing parts and committing them are separate. A `PartWriter` can be pickled, so any process, such as a Spark task, can
write parts; an attempt that is repeated or was thought dead leaves parts that nobody commits, where nobody looks for
results. Committing is `PartCommitter`'s.

Which parts count: one small journal beside the files, replaced atomically, is the only authority.

A commit has three steps. Parts are durable first, under names that no result has. Then the journal is replaced: from
now on its rows are committed, which are those of its *pending* chunks, of its *moves*, and of the files moved earlier.
Then each move is made. A run that finds the journal after a crash makes its moves, again or for the first time, and
deletes the parts that it does not name. A part that is gone from its first name has been moved. So no row is ever in
two files that a reader can see, and none is lost.

Two runs cannot commit over each other. In a folder the second is locked out, and an object store replaces the journal
only if it is still the one that the run has read.
"""

from __future__ import annotations

import hashlib
import pickle
import platform
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from tidegate.connectors.model.encoded_rows import EncodedRows
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.arrow_tables import Misfit
from tidegate.connectors.outputs.files.file_formats import FormatSettings
from tidegate.connectors.outputs.files.file_location import ChangedByAnotherError, FileLocation
from tidegate.connectors.outputs.files.path_template import PathTemplate
from tidegate.connectors.outputs.output import (
    SAMPLES,
    TYPE_CONVERSION_ERROR,
    Identity,
    MarkLocation,
    RejectedRow,
    StoredMark,
    example_of,
    moved_by_another_run,
    rows_at,
)
from tidegate.durable_files import decode_checked, encode_checked
from tidegate.engine import ResultRows
from tidegate.engine.values.json_lines import dicts

OWN_FOLDER = "_tidegate"
"""What begins with an underscore is not a result, to Spark, Hive and Tidegate's own inputs."""


@dataclass(frozen=True, slots=True)
class FolderPart:
    """Durable rows of one folder.

    Attributes:
        folder: where they belong, relative to the location. period: its beginning in ticks, 0 without one.
        label: the order of parts in their folder; unique, and the same in every attempt that cuts rows alike.
        name: where they are now, relative to the location.
        rows, bytes, hash: how many, and the size and SHA-256 of the content.
        since: when the oldest row was written, in seconds since 1970.
        whole: it is a file that only has to be moved; otherwise a chunk that files are made of.
    """

    folder: str
    period: int
    label: str
    name: str
    rows: int
    bytes: int
    hash: str
    since: float
    whole: bool = False


@dataclass(frozen=True, slots=True)
class NewPart:
    """A part that is not yet durable."""

    part: FolderPart
    content: bytes


@dataclass(frozen=True, slots=True)
class PartWriter:
    """Writes rows as parts.

    Attributes:
        template: the folders that rows go to.
        own_folder: the output's own folder, where parts are until they are committed.
        minimum_rows: from how many rows of one folder on a part is a whole file.
    """

    template: PathTemplate
    format: FormatSettings
    own_folder: str
    minimum_rows: int
    location: FileLocation = field(compare=False)

    def misfits(self, rows: ResultRows) -> list[Misfit]:
        """Return the values that the format cannot hold."""
        return self.format.opened().misfits(rows)

    def new_parts(self, rows: ResultRows, label: str) -> list[NewPart]:
        """Return rows as parts, without writing them.

        Args:
            label: the order of these rows among all of the output, such as the number of the first with leading zeros.
        """
        format_ = self.format.opened()
        found = []
        for number, one in enumerate(self.template.split(rows)):
            own = rows if len(one.places) == len(rows) else rows_at(rows, one.places)
            whole = len(one.places) >= self.minimum_rows
            content = format_.file_of_rows(own) if whole else format_.chunk(own)
            part = self.described(one.folder, one.period, f"{label}-{number:04d}", len(one.places), content)
            found.append(NewPart(replace(part, whole=whole), content))
        return found

    def described(self, folder: str, period: int, label: str, rows: int, content: bytes) -> FolderPart:
        """Return the description of a part with a name of its own."""
        name = f"{self.own_folder}/parts/{label}-{secrets.token_hex(8)}"
        digest = hashlib.sha256(content).hexdigest()
        return FolderPart(folder, period, label, name, rows, len(content), digest, time.time())

    def store(self, parts: Sequence[NewPart]) -> None:
        """Make parts durable.

        Raises:
            OutputUnavailableError, OutputError: see `FileLocation`.
        """
        self.location.put([(one.part.name, one.content) for one in parts])

    def write_parts(self, rows: ResultRows, label: str) -> list[FolderPart]:
        """Make rows durable, and return the parts for `PartCommitter.commit`; callable in any process."""
        parts = self.new_parts(rows, label)
        self.store(parts)
        return [one.part for one in parts]


_UNORDERED = "step"
_SEEN: set[str] = set()


@dataclass(frozen=True, slots=True)
class WrittenParts:
    """What an executor has made of rows.

    Attributes:
        rows: how many rows there were, those that were dropped included.
        rejected: samples of rows that the format cannot hold, numbered from the first row here.
        dropped: how many of those there are.
    """

    parts: list[FolderPart]
    rows: int
    rejected: list[RejectedRow]
    dropped: int

    def from_row(self, number: int, digits: int) -> WrittenParts:
        """Return the same of rows whose first one has a number among all rows of the output."""
        label = f"{number:0{digits}d}"
        parts = [replace(part, label=f"{label}-{place:04d}") for place, part in enumerate(self.parts)]
        rejected = [replace(row, row=number + row.row) for row in self.rejected]
        return replace(self, parts=parts, rejected=rejected)


@dataclass(frozen=True, slots=True)
class PartEncoder:
    """An `Encoder` that writes rows as parts.

    Attributes:
        output: the output's name, for messages.
        journal: a file that the driver has written in the same location.
    """

    writer: PartWriter
    output: str
    journal: str

    def __call__(self, rows: ResultRows) -> bytes:
        """Write rows, and return the pickled `WrittenParts`.

        Raises:
            OutputError: the location cannot be written, or is not the driver's.
        """
        self._check_location()
        rejected, places = rejected_rows(rows, self.writer.misfits(rows))
        kept = rows_at(rows, np.setdiff1d(np.arange(len(rows)), places)) if places else rows
        parts = self.writer.write_parts(kept, _UNORDERED) if len(kept) else []
        return pickle.dumps(WrittenParts(parts, len(rows), rejected, len(places)), protocol=5)

    def _check_location(self) -> None:
        seen = f"{self.writer.location}/{self.journal}"
        if seen in _SEEN:
            return
        if self.writer.location.read(self.journal) is None:
            raise OutputError(
                f"output '{self.output}': {self.writer.location} is not shared: an executor on {platform.node()} does "
                "not find there what the driver has written; use a path on a file system that all machines share, or "
                "an object store"
            )
        _SEEN.add(seen)


def rejected_rows(rows: ResultRows, misfits: Sequence[Misfit], first: int = 0) -> tuple[list[RejectedRow], list[int]]:
    """Return samples of the rows that a format cannot hold, and the places of all of them.

    Args:
        first: the number of the first row among all of the output.
    """
    messages = {misfit.place: misfit.message for misfit in reversed(misfits)}
    places = sorted(messages)
    samples = []
    for place in places[:SAMPLES]:
        (record,) = dicts(rows.names, rows_at(rows, np.array([place])).columns, 1, plainly=False)
        time = int(rows.timestamps[place])
        samples.append(RejectedRow(TYPE_CONVERSION_ERROR, messages[place], first + place, time, example_of(record)))
    return samples, places


def written_parts(rows: EncodedRows) -> list[WrittenParts]:
    """Return what executors have made of rows, in order."""
    return [pickle.loads(piece.read()) for piece in rows.pieces]


_VERSION = 1


@dataclass(frozen=True, slots=True)
class Rename:
    """A part that becomes a result: its present name and the one that readers see."""

    name: str
    target: str


@dataclass(frozen=True, slots=True)
class CommittedFiles:
    """What the journal says.

    Attributes:
        journal: the identity of the job's journal.
        rows, dropped: how many rows of the job are committed, and how many of them were dropped.
        pending: chunks that no file has yet, in order.
        moves: of the last commit.
        attempt: distinguishes commits, so that one whose reply was lost is recognised.
    """

    journal: str
    rows: int = 0
    dropped: int = 0
    pending: tuple[FolderPart, ...] = ()
    moves: tuple[Rename, ...] = ()
    attempt: str = field(default_factory=lambda: secrets.token_hex(8))


class PartCommitter:
    """The journal of one output.

    Attributes:
        path: its name in the location.
    """

    def __init__(self, location: FileLocation, own_folder: str, identity: Identity) -> None:
        self._location = location
        self.path = f"{own_folder}/journal.json"
        self._parts = f"{own_folder}/parts"
        self._identity = identity
        self._version = ""
        self._unsure: str | None = None
        self._unfinished: tuple[Rename, ...] = ()
        self.state: CommittedFiles | None = None

    def read(self) -> StoredMark | None:
        """Read the journal, and return its mark.

        Raises:
            OutputError: the location cannot be reached, or the journal is damaged.
        """
        content, self._version = self._location.read_guarded(self.path)
        self.state = None if content is None else self._decoded(content)
        return None if self.state is None else StoredMark(self.state.journal, self.state.rows, self.state.dropped)

    def recover(self) -> None:
        """Make the moves of the last commit, and delete the parts that no commit names.

        Raises:
            OutputError, OutputUnavailableError: see `FileLocation`.
        """
        assert self.state is not None
        self._unfinished = self.state.moves
        self.finish_moves()
        self._location.settle()
        known = {part.name for part in self.state.pending}
        self._location.delete([name for name in self._location.names(self._parts) if name not in known])

    def commit(self, state: CommittedFiles) -> None:
        """Commit parts that are durable, and make the moves; it may be called again with the same state.

        Raises:
            OutputUnavailableError: it is impossible at the moment.
            OutputError: another run has committed, or it is impossible.
        """
        if self.state is None or self.state.attempt != state.attempt:
            self.finish_moves()
            # The next journal no longer says what was to be moved.
            self._location.settle()
            if self._unsure != state.attempt or not self._was_stored(state):
                self._unsure = state.attempt
                self._replace(state)
            self._unsure = None
            before = () if self.state is None else self.state.pending
            kept = {part.name for part in state.pending} | {move.name for move in state.moves}
            self.state = state
            self._unfinished = state.moves
            self.finish_moves()
            # A chunk that stays behind is deleted by the next run.
            self._location.delete([part.name for part in before if part.name not in kept])
        self.finish_moves()

    def _replace(self, state: CommittedFiles) -> None:
        content = encode_checked({"version": _VERSION, **asdict(state)})
        try:
            self._version = self._location.replace_guarded(self.path, content, self._version)
        except ChangedByAnotherError as error:
            # A store may have taken the write of an attempt that its client repeated by itself.
            if not self._was_stored(state):
                raise moved_by_another_run(self._identity, self.mark_location) from error

    def _was_stored(self, state: CommittedFiles) -> bool:
        content, version = self._location.read_guarded(self.path)
        if content is None or self._decoded(content).attempt != state.attempt:
            return False
        self._version = version
        return True

    def finish_moves(self) -> None:
        """Make the moves of a commit that were not made yet."""
        if self._unfinished:
            self._location.move([(move.name, move.target) for move in self._unfinished])
            self._unfinished = ()

    @property
    def mark_location(self) -> MarkLocation:
        """How messages name the files and their journal."""
        return MarkLocation(
            str(self._location), f"{self._location}/{self.path}", f"empty {self._location}, {self.path} included,"
        )

    def _decoded(self, content: bytes) -> CommittedFiles:
        try:
            fields: dict[str, Any] = decode_checked(content)
            version = fields.pop("version")
            if version != _VERSION:
                raise OutputError(f"{self.mark_location.marks} is of version {version}; this Tidegate reads {_VERSION}")
            pending = tuple(FolderPart(**part) for part in fields.pop("pending"))
            moves = tuple(Rename(**move) for move in fields.pop("moves"))
            return CommittedFiles(**fields, pending=pending, moves=moves)
        except (ValueError, KeyError, TypeError) as error:
            raise OutputError(f"{self.mark_location.marks} is damaged ({error}); restore it from a backup") from error


def content_of(location: FileLocation, part: FolderPart) -> bytes:
    """Return the content of a pending chunk, checked against its hash.

    Raises:
        OutputError: it is gone or damaged.
    """
    content = location.read(part.name)
    if content is None or hashlib.sha256(content).hexdigest() != part.hash:
        what = "is gone" if content is None else "is damaged"
        raise OutputError(f"{location}/{part.name}, which holds {part.rows:,} committed results, {what}; restore it")
    return content
