"""Which parts count: one small journal beside the files, replaced atomically, is the only authority.

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
import secrets
from dataclasses import asdict, dataclass, field
from typing import Any

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.files.file_place import ChangedByAnotherError, FilePlace
from tidegate.connectors.outputs.files.parts import Part
from tidegate.connectors.outputs.marks import MarkPlace, StoredMark, moved_by_another_run
from tidegate.connectors.outputs.output import Identity
from tidegate.durable_files import decode_checked, encode_checked

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Move:
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
    pending: tuple[Part, ...] = ()
    moves: tuple[Move, ...] = ()
    attempt: str = field(default_factory=lambda: secrets.token_hex(8))


class PartCommitter:
    """The journal of one output.

    Attributes:
        path: its name in the place.
    """

    def __init__(self, place: FilePlace, own_folder: str, identity: Identity) -> None:
        self._place = place
        self.path = f"{own_folder}/journal.json"
        self._parts = f"{own_folder}/parts"
        self._identity = identity
        self._version = ""
        self._unsure: str | None = None
        self._unfinished: tuple[Move, ...] = ()
        self.state: CommittedFiles | None = None

    def read(self) -> StoredMark | None:
        """Read the journal, and return its mark.

        Raises:
            OutputError: the place cannot be reached, or the journal is damaged.
        """
        content, self._version = self._place.read_guarded(self.path)
        self.state = None if content is None else self._decoded(content)
        return None if self.state is None else StoredMark(self.state.journal, self.state.rows, self.state.dropped)

    def recover(self) -> None:
        """Make the moves of the last commit, and delete the parts that no commit names.

        Raises:
            OutputError, OutputUnavailableError: see `FilePlace`.
        """
        assert self.state is not None
        self._unfinished = self.state.moves
        self.finish_moves()
        self._place.settle()
        known = {part.name for part in self.state.pending}
        self._place.delete([name for name in self._place.names(self._parts) if name not in known])

    def commit(self, state: CommittedFiles) -> None:
        """Commit parts that are durable, and make the moves; it may be called again with the same state.

        Raises:
            OutputUnavailableError: it is impossible at the moment.
            OutputError: another run has committed, or it is impossible.
        """
        if self.state is None or self.state.attempt != state.attempt:
            self.finish_moves()
            # The next journal no longer says what was to be moved.
            self._place.settle()
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
            self._place.delete([part.name for part in before if part.name not in kept])
        self.finish_moves()

    def _replace(self, state: CommittedFiles) -> None:
        content = encode_checked({"version": _VERSION, **asdict(state)})
        try:
            self._version = self._place.replace_guarded(self.path, content, self._version)
        except ChangedByAnotherError as error:
            # A store may have taken the write of an attempt that its client repeated by itself.
            if not self._was_stored(state):
                raise moved_by_another_run(self._identity, self.mark_place) from error

    def _was_stored(self, state: CommittedFiles) -> bool:
        content, version = self._place.read_guarded(self.path)
        if content is None or self._decoded(content).attempt != state.attempt:
            return False
        self._version = version
        return True

    def finish_moves(self) -> None:
        """Make the moves of a commit that were not made yet."""
        if self._unfinished:
            self._place.move([(move.name, move.target) for move in self._unfinished])
            self._unfinished = ()

    @property
    def mark_place(self) -> MarkPlace:
        """How messages name the files and their journal."""
        return MarkPlace(str(self._place), f"{self._place}/{self.path}", f"empty {self._place}, {self.path} included,")

    def _decoded(self, content: bytes) -> CommittedFiles:
        try:
            fields: dict[str, Any] = decode_checked(content)
            version = fields.pop("version")
            if version != _VERSION:
                raise OutputError(f"{self.mark_place.marks} is of version {version}; this Tidegate reads {_VERSION}")
            pending = tuple(Part(**part) for part in fields.pop("pending"))
            moves = tuple(Move(**move) for move in fields.pop("moves"))
            return CommittedFiles(**fields, pending=pending, moves=moves)
        except (ValueError, KeyError, TypeError) as error:
            raise OutputError(f"{self.mark_place.marks} is damaged ({error}); restore it from a backup") from error


def content_of(place: FilePlace, part: Part) -> bytes:
    """Return the content of a pending chunk, checked against its hash.

    Raises:
        OutputError: it is gone or damaged.
    """
    content = place.read(part.name)
    if content is None or hashlib.sha256(content).hexdigest() != part.hash:
        what = "is gone" if content is None else "is damaged"
        raise OutputError(f"{place}/{part.name}, which holds {part.rows:,} committed results, {what}; restore it")
    return content
