"""The durable record of a job, one checked file: its definition, what is wanted of it, and how it last was."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidegate.durable_files import FileDamaged, Files, make_folders, read_checked, write_checked
from tidegate.service.errors import ServiceError
from tidegate.service.resource import JobDocument, Scale, StartMode
from tidegate.service.secrets import Sealer
from tidegate.service.states import JobState

FILE = "job.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Start:
    """A request to start a job.

    Attributes:
        mode: how the output start time was chosen.
        time: the output start time; None resumes where the job stopped, or at the beginning.
        asked: when.
        pending: the job has not begun at `time` yet. Once it has, a restart resumes from the journal instead.
    """

    mode: StartMode
    time: datetime | None
    asked: datetime
    pending: bool


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What the service knows of a job while it does not run.

    Attributes:
        document: what its user says about it, with secrets in clear: never shown.
        revision: counts the changes of the document.
        wanted: whether it is to run.
        state, reason, since: how it last was, for jobs that do not run.
        start: the last request to start it.
    """

    name: str
    job_id: str
    document: JobDocument
    created: datetime
    changed: datetime
    revision: int = 1
    wanted: bool = False
    state: JobState = JobState.CREATED
    reason: str | None = None
    since: datetime | None = None
    start: Start | None = None

    @classmethod
    def new(cls, name: str, document: JobDocument, now: datetime) -> JobRecord:
        """Return the record of a job that was just created."""
        return cls(name, str(uuid.uuid4()), document, now, now, since=now)

    def with_document(self, document: JobDocument, now: datetime) -> JobRecord:
        """Return the record after a change of what its user says."""
        return replace(self, document=document, changed=now, revision=self.revision + 1)

    @property
    def etag(self) -> str:
        """The job's ETag: another for every revision, and for a job that was deleted and created again."""
        return f"{self.job_id[:8]}-{self.revision}"


class RecordFile:
    """The record in a job's folder."""

    def __init__(self, folder: Path, sealer: Sealer) -> None:
        self._path = folder / FILE
        self._sealer = sealer
        self._forgotten = False

    def forget(self) -> None:
        """Remove the record durably, and write it no more.

        Raises:
            ServiceError: the disk refuses, and the job remains.
        """
        files = Files()
        try:
            files.remove(self._path)
            files.sync_directory(self._path.parent)
        except FileNotFoundError:
            pass  # somebody removed the folder
        except OSError as error:
            raise ServiceError(f"cannot remove {self._path}: {error.strerror}") from error
        self._forgotten = True

    def read(self) -> JobRecord | None:
        """Return the record; None if there is none.

        Raises:
            ServiceError: it is damaged, of another version, or cannot be read or decrypted.
        """
        try:
            content = read_checked(self._path)
        except FileDamaged as error:
            raise ServiceError(str(error)) from error
        except OSError as error:
            raise ServiceError(f"cannot read {self._path}: {error.strerror}") from error
        if content is None:
            return None
        if content.get("version") != _VERSION:
            raise ServiceError(f"{self._path} was written by another version of Tidegate: use that version")
        return _record(content, self._sealer)

    def write(self, record: JobRecord) -> None:
        """Make a record durable.

        Raises:
            ServiceError: the disk refuses.
        """
        if self._forgotten:
            return
        try:
            make_folders(self._path.parent)
            write_checked(self._path, _content(record, self._sealer), indented=True, mode=0o600)
        except OSError as error:
            raise ServiceError(f"cannot write {self._path}: {error.strerror}") from error


def utc_now() -> datetime:
    """Return the time of day, in UTC."""
    return datetime.now(UTC)


def _content(record: JobRecord, sealer: Sealer) -> dict[str, Any]:
    start = record.start
    return {
        "version": _VERSION,
        "name": record.name,
        "job_id": record.job_id,
        "revision": record.revision,
        "created": record.created.isoformat(),
        "changed": record.changed.isoformat(),
        "definition": sealer.seal(record.document.definition),
        "arm": sealer.seal_properties(record.document.arm),
        "streaming_units": record.document.scale.streaming_units,
        "wanted": record.wanted,
        "state": record.state.value,
        "reason": record.reason,
        "since": _text(record.since),
        "start": None
        if start is None
        else {
            "mode": start.mode.value,
            "time": _text(start.time),
            "asked": _text(start.asked),
            "pending": start.pending,
        },
    }


def _record(content: Mapping[str, Any], sealer: Sealer) -> JobRecord:
    start = content["start"]
    return JobRecord(
        name=content["name"],
        job_id=content["job_id"],
        document=JobDocument(
            sealer.unseal(content["definition"]), sealer.unseal(content["arm"]), Scale(content["streaming_units"])
        ),
        created=datetime.fromisoformat(content["created"]),
        changed=datetime.fromisoformat(content["changed"]),
        revision=content["revision"],
        wanted=content["wanted"],
        state=JobState(content["state"]),
        reason=content["reason"],
        since=_time(content["since"]),
        start=None
        if start is None
        else Start(
            StartMode(start["mode"]), _time(start["time"]), datetime.fromisoformat(start["asked"]), start["pending"]
        ),
    )


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
