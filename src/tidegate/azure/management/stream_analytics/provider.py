"""The provider Microsoft.StreamAnalytics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tidegate.azure.management.access.requests import (
    GROUP,
    SUBSCRIPTION,
    ArmAnswer,
    ArmRequest,
    Operation,
    Payload,
    bad_request,
    read_payload,
)
from tidegate.azure.management.manager.resource_groups import ResourceGroups
from tidegate.azure.management.manager.resource_manager import ResourceKind
from tidegate.azure.management.stream_analytics.engine_questions import NoAnswer, ask
from tidegate.azure.management.stream_analytics.job_file import job_file_of, with_kept_secrets
from tidegate.azure.management.stream_analytics.jobs import JobPayload, StreamingJobs
from tidegate.azure.management.stream_analytics.parts import JOB_PATH, JobParts
from tidegate.azure.management.stream_analytics.store import JOBS, PROVIDER, JobStore, LocalHubs, serving
from tidegate.azure.management.stream_analytics.trials import Trials
from tidegate.service import Jobs
from tidegate.service.questions import ProblemKind

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


MAX_QUERY_CHARACTERS = 100_000


class NamedPart(Payload):
    """An input or function of a query, with its type."""

    name: str
    type: str = ""


class QueryPayload(Payload):
    """A query and what it may name. Without inputs or functions, it may name any."""

    query: Annotated[str, Field(max_length=MAX_QUERY_CHARACTERS)]
    inputs: list[NamedPart] | None = None
    functions: list[NamedPart] | None = None
    compatibility_level: str = "1.2"


def query_operations() -> list[Operation]:
    """Return what is served."""
    path = f"{SUBSCRIPTION}/providers/{PROVIDER}/locations/{{location}}/compileQuery"
    return [Operation("POST", path, serving(_compile))]


def _compile(request: ArmRequest) -> ArmAnswer:
    payload = read_payload(QueryPayload, request.body)
    inputs, functions = payload.inputs, payload.functions
    definition: dict[str, Any] = {"query": payload.query, "compatibility_level": payload.compatibility_level}
    if inputs is not None:
        definition["inputs"] = {one.name: {"type": one.type.lower()} for one in inputs}
    if functions is not None:
        definition["functions"] = {one.name: {"aggregate": "aggregate" in one.type.lower()} for one in functions}
    try:
        found = ask({"ask": "compile", "definition": definition, "is_complete": True})
    except NoAnswer as error:
        if error.kind is ProblemKind.RUNTIME:
            raise bad_request(str(error)) from None
        raise
    body: dict[str, Any] = {
        "errors": [
            {
                "message": _said(one),
                "startLine": one["line"],
                "startColumn": one["column"],
                "endLine": one["line"],
                "endColumn": one["column"] + one["length"],
                "isGlobal": False,
            }
            for one in found["errors"]
        ],
        "warnings": [f"line {one['line']}, column {one['column']}: {_said(one)}" for one in found["warnings"]],
        "inputs": found["inputs"],
        "outputs": found["outputs"],
        "functions": [one.name for one in functions or () if not found["errors"]],
    }
    return ArmAnswer(body=body)


def _said(one: Mapping[str, Any]) -> str:
    """Return a diagnostic's message with what to write instead."""
    return f"{one['message']} ({one['hint']})" if one["hint"] else str(one["message"])


API_VERSIONS = ("2020-03-01", "2021-10-01-preview", "2016-03-01", "2015-10-01")
MOST_UNITS = 500
"""Of a subscription, in the service; nothing is limited by it here."""


class StreamAnalyticsProvider:
    """Serves the jobs of the service under the paths of Microsoft.StreamAnalytics."""

    namespace = PROVIDER
    kinds: Sequence[ResourceKind] = tuple(
        ResourceKind(name, API_VERSIONS)
        for name in (
            JOBS,
            f"{JOBS}/inputs",
            f"{JOBS}/outputs",
            f"{JOBS}/functions",
            f"{JOBS}/transformations",
            "locations/quotas",
            "locations/compileQuery",
            "locations/testQuery",
            "locations/sampleInput",
            "locations/testInput",
            "locations/testOutput",
            "locations/operationResults",
        )
    )

    def __init__(self, jobs: Jobs, resource_groups: ResourceGroups, hubs: LocalHubs, output_folder: Path) -> None:
        self._store = JobStore(jobs, resource_groups, hubs, output_folder)
        self._jobs = StreamingJobs(self._store)
        self._parts = JobParts(self._store)
        self._insight = JobInsight(self._store)
        self._trials = Trials(hubs)

    def operations(self) -> Sequence[Operation]:
        provider = f"providers/{PROVIDER}"
        return [
            *self._jobs.operations(),
            *self._parts.operations(),
            *self._insight.operations(),
            *query_operations(),
            *self._trials.operations(),
            Operation("GET", f"{SUBSCRIPTION}/{provider}/locations/{{location}}/quotas", self._quotas),
            Operation("GET", f"{SUBSCRIPTION}/{provider}/clusters", _nothing),
            Operation("GET", f"{GROUP}/{provider}/clusters", _nothing),
        ]

    def top_level(self, subscription: str, group: str) -> Sequence[dict[str, Any]]:
        request = ArmRequest("GET", "", {"subscription": subscription, "group": group})
        return self._jobs.listed(request, group)

    def delete_group(self, group: str) -> None:
        for job in self._store.listed(group):
            self._store.delete(job)

    def _quotas(self, request: ArmRequest) -> ArmAnswer:
        used = sum(job.scale.streaming_units for job in self._store.jobs.list())
        quota = {
            "id": f"{request.path}/StreamingUnits",
            "name": "StreamingUnits",
            "type": f"{PROVIDER}/quotas",
            "properties": {"maxCount": MOST_UNITS, "currentCount": used},
        }
        return ArmAnswer(body={"value": [quota]})


def _nothing(_request: ArmRequest) -> ArmAnswer:
    return ArmAnswer(body={"value": []})
