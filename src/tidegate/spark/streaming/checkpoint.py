"""The checkpoint of a query: the folder that it resumes from, and what the folder belongs to.

At its root are Spark's own files, ``metadata``, ``offsets`` and ``commits``, and beside them in ``tidegate`` the state
folder of the evaluation. A query with several outputs is one query of Spark for each, whose files are in
``outputs/NAME``.

A query that resumes emits the results that come after those it has emitted. With the checkpoint of another query it
would skip whatever that one has passed, and nothing would look wrong. So the folder says what it is of: the query with
its event ordering, the streams it reads, and the columns of its outputs. Functions in Python are not compared, as a
notebook compiles them anew each time; a journal notes when they change.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidegate.client import ClientError, ConnectionString
from tidegate.connectors.inputs.kinds import StreamInput
from tidegate.connectors.model.section import Secrecy
from tidegate.connectors.model.state_file import DamagedStateError, read_state, write_state
from tidegate.durable_files import DirectoryLock, DirectoryLocked, make_folders, replace_file
from tidegate.job import Job, JobError
from tidegate.job.run.journal import Journal
from tidegate.ordering import END_OF_TIME, NO_TIME, format_time

_METADATA = "metadata"
_STATE = "tidegate"
_FILE = "query.json"
_VERSION = 1
_SHOWN = 200
_LOCKED_S = 1.0
# How a stream is read, not which.
_MANNERS = frozenset({"consumer_group", "segments", "idle_after_s", "estimate_arrival"})


class CheckpointMismatch(JobError):
    """A checkpoint belongs to another query, other inputs or other columns than those of the query to start."""

    code = "CHECKPOINT_MISMATCH"


@dataclass(frozen=True, slots=True)
class CheckpointOwner:
    """What a checkpoint belongs to.

    Attributes:
        query: its text.
        event_ordering: its policy and compatibility level, for people.
        inputs: by name, which stream each reads; without secrets.
        columns: by output, as far as they are known.
    """

    query: str
    event_ordering: str
    inputs: Mapping[str, str]
    columns: Mapping[str, str]

    @classmethod
    def of(cls, job: Job, columns: Mapping[str, str | None]) -> CheckpointOwner:
        """Return what the checkpoint of a query belongs to; ``columns`` of an output are None while not known."""
        sections = {name.lower(): one for name, one in job.definition.inputs.items() if isinstance(one, StreamInput)}
        read = sorted({job.program.source_of(name).lower() for name in job.program.input_names})
        return cls(
            job.sql,
            f"{job.policy.describe().removeprefix('event ordering: ')}; compatibility level "
            f"{job.definition.compatibility_level}",
            {name: _address(sections[name]) for name in read if name in sections},
            {name.lower(): one for name, one in columns.items() if one is not None},
        )

    def differences(self, now: CheckpointOwner) -> Iterator[str]:
        """Yield what is different now, each with how it was and how it is."""
        if self.query.split() != now.query.split():
            yield f"its query was {_shown(self.query)}, and is {_shown(now.query)}"
        if self.event_ordering != now.event_ordering:
            yield f"its event ordering was {self.event_ordering}, and is {now.event_ordering}"
        for name in sorted({*self.inputs, *now.inputs}):
            before, after = self.inputs.get(name), now.inputs.get(name)
            if before != after:
                yield f"input '{name}' was {before or 'not there'}, and is {after or 'not there'}"
        for name in sorted({*self.columns} & {*now.columns}):
            if self.columns[name] != now.columns[name]:
                yield f"the columns of '{name}' were {self.columns[name]}, and are {now.columns[name]}"


class Checkpoint:
    """The folder of one query.

    Attributes:
        folder: it. state: the state folder of its evaluation.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / _STATE

    @classmethod
    def at(cls, location: str) -> Checkpoint:
        """Return the checkpoint at a location.

        Raises:
            JobError: it is not a folder of this machine.
        """
        parts = urlsplit(location)
        if parts.scheme in ("", "file"):
            return cls(Path(parts.path if parts.scheme else location).absolute())
        hint = f"; as a mounted folder, this one is /dbfs{parts.path}" if parts.scheme == "dbfs" else ""
        raise JobError(
            f"checkpointLocation is a folder that the driver and all executors have mounted, got {location}{hint}"
        )

    def of_spark(self, output: str | None = None) -> str:
        """Return where Spark keeps its own files, as Spark names it; for one of several outputs, if it is given."""
        folder = self.folder if output is None else self.folder / "outputs" / output.lower()
        # Hadoop takes a URI literally, without %20 for a space.
        return f"file://{folder}"

    def identity(self) -> str:
        """Return the identity of its query, kept where Spark keeps that of its queries; a new folder gets one.

        Raises:
            JobError: the folder belongs to a query of Spark's own, or cannot be used.
        """
        path = self.folder / _METADATA
        try:
            if (self.folder / "offsets").exists() and not self.state.exists():
                raise JobError(
                    f"the checkpoint {self.folder} belongs to a query of Structured Streaming; choose another folder"
                )
            if not path.exists():
                make_folders(self.state)
                replace_file(path, json.dumps({"id": str(uuid.uuid4())}).encode())
            return str(uuid.UUID(json.loads(path.read_text(encoding="utf-8"))["id"]))
        except OSError as error:
            raise JobError(f"cannot use the checkpoint {self.folder}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError):
            raise JobError(f'{path} is damaged: expected the identity of a query, as {{"id": UUID}}') from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other queries out, also in this process.

        Raises:
            JobError: one runs.
        """
        deadline = time.monotonic() + _LOCKED_S
        while True:
            try:
                lock = DirectoryLock(self.state, "query.lock")
                break
            except DirectoryLocked as error:
                # Spark's query is over a moment before ours.
                if time.monotonic() > deadline:
                    raise JobError(f"another query runs with the checkpoint {self.folder}: {error}") from error
                time.sleep(_LOCKED_S / 100)
        try:
            yield
        finally:
            lock.release()

    def check(self, owner: CheckpointOwner) -> None:
        """Check that a query may resume from it.

        Raises:
            CheckpointMismatch: it belongs to another query, which has emitted results.
            JobError: the folder cannot be read.
        """
        before = self._owner()
        commit = Journal(self.state).read_commit()
        if before is None or commit is None or commit.released == NO_TIME:
            return
        found = list(before.differences(owner))
        if found:
            until = "the end of its log" if commit.released == END_OF_TIME else format_time(commit.released)
            raise CheckpointMismatch(
                f"the checkpoint {self.folder} belongs to another query: {'; '.join(found)}. It has emitted its "
                f"results up to {until}, and this query would begin there: choose another checkpointLocation, or "
                "pass accept_changes=True to stream() if that is what you want"
            )

    def claim(self, owner: CheckpointOwner) -> None:
        """Note whose it is from now on; called by the process that has locked it.

        Raises:
            JobError: the folder cannot be read or written.
        """
        before = self._owner()
        # What is not known yet, as the columns before the first rows, does not make another query of it.
        known = replace(owner, columns={**(before.columns if before is not None else {}), **owner.columns})
        if before != known:
            make_folders(self.state)
            write_state(self.state / _FILE, {"version": _VERSION, **asdict(known)})

    def _owner(self) -> CheckpointOwner | None:
        content: dict[str, Any] | None = read_state(self.state / _FILE, _VERSION)
        if content is None:
            return None
        del content["version"]
        try:
            return CheckpointOwner(**content)
        except TypeError as error:
            raise DamagedStateError(self.state / _FILE, str(error)) from error


def _address(section: StreamInput) -> str:
    """Return which stream an input reads."""
    connection = getattr(section, "connection_string", None)
    if isinstance(connection, str):
        try:
            hub = ConnectionString.parse(connection, getattr(section, "event_hub", None))
        except ClientError:
            return section.type
        # A hub may be reached at another port; a journal knows the identity of its partitions.
        return f"{hub.host}/{hub.entity_path}"
    shown = {
        name: getattr(section, name)
        for name, secrecy in type(section).secrecy().items()
        if secrecy is Secrecy.PUBLIC and name not in _MANNERS and name in section.model_fields_set
    }
    shown.pop("type", None)
    return f"{section.type} ({', '.join(f'{name}={value}' for name, value in sorted(shown.items()))})"


def _shown(query: str) -> str:
    text = " ".join(query.split())
    return f"'{text}'" if len(text) <= _SHOWN else f"'{text[:_SHOWN]}…'"
