"""What Tidegate tells of a job beyond Azure's API: its log, data errors, metrics, watermarks, and a file's problems."""

from __future__ import annotations

from tidegate.azure.management.access.requests import ArmAnswer, ArmRequest, Operation, bad_request, read_payload
from tidegate.azure.management.stream_analytics.job_file import job_file_of, with_kept_secrets
from tidegate.azure.management.stream_analytics.jobs import JobPayload
from tidegate.azure.management.stream_analytics.parts import JOB_PATH
from tidegate.azure.management.stream_analytics.store import JobStore, serving

MOST_LINES = 5000
_DEFAULT_LINES = 200


class JobInsight:
    """The operations on a job that Azure's API does not have. Readers may read; checking a job file takes an owner."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    def operations(self) -> list[Operation]:
        """Return what is served."""
        return [
            Operation("GET", f"{JOB_PATH}/logs", serving(self._logs)),
            Operation("GET", f"{JOB_PATH}/dataErrors", serving(self._data_errors)),
            Operation("GET", f"{JOB_PATH}/metrics", serving(self._metrics)),
            Operation("GET", f"{JOB_PATH}/watermarks", serving(self._watermarks)),
            Operation("POST", f"{JOB_PATH}/checkJobFile", serving(self._check)),
        ]

    def _logs(self, request: ArmRequest) -> ArmAnswer:
        name = self._store.job(request).name
        page = self._store.jobs.logs(name, limit=_lines(request), after=_number(request, "after"))
        return ArmAnswer(body={"value": list(page.lines), "next": page.next})

    def _data_errors(self, request: ArmRequest) -> ArmAnswer:
        name = self._store.job(request).name
        return ArmAnswer(body={"value": list(self._store.jobs.data_errors(name, limit=_lines(request)))})

    def _metrics(self, request: ArmRequest) -> ArmAnswer:
        """Answer with what the job last measured, under the names of Stream Analytics."""
        return ArmAnswer(body={"metrics": dict(self._store.jobs.metrics(self._store.job(request).name))})

    def _watermarks(self, request: ArmRequest) -> ArmAnswer:
        """Answer with what the job last said, in the form of `tidegate job blockers -o json`; null before that."""
        status = self._store.jobs.status(self._store.job(request).name)
        return ArmAnswer(body={"watermarks": None if status is None else dict(status)})

    def _check(self, request: ArmRequest) -> ArmAnswer:
        """Answer with what is wrong with a job file. The job need not exist."""
        file = job_file_of(request, read_payload(JobPayload, request.body).properties)
        if file is None:
            raise bad_request("properties.jobFile is missing: the job file to check")
        if self._store.exists(request):
            job = self._store.job(request)
            file = with_kept_secrets(file, self._store.jobs.document(job.name).definition)
        return ArmAnswer(body={"problems": list(self._store.jobs.check(request.names["job"], file))})


def _lines(request: ArmRequest) -> int:
    limit = _number(request, "limit")
    return min(_DEFAULT_LINES if limit is None else limit, MOST_LINES)


def _number(request: ArmRequest, name: str) -> int | None:
    """Return a number in the query, None without it. Raises ArmError."""
    text = request.query.get(name, "")
    if text and not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise bad_request(f"{name} is a number, not {text[:40]!r}")
    return int(text) if text else None
