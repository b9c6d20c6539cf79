"""Streaming jobs as resources: created, changed, started, stopped and scaled."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tidegate.azure.management.access.requests import (
    GROUP,
    SUBSCRIPTION,
    ArmAnswer,
    ArmError,
    ArmRequest,
    Operation,
    Payload,
    bad_request,
    read_payload,
)
from tidegate.azure.management.manager.resource_groups import time_text
from tidegate.azure.management.manager.subscriptions import Tags, check_tags
from tidegate.azure.management.stream_analytics.document import (
    DEFAULT_TRANSFORMATION,
    PART_KINDS,
    is_described,
    read_parts,
    read_transformation,
)
from tidegate.azure.management.stream_analytics.job_file import (
    is_about_units,
    job_file_of,
    more_of,
    query_versions,
    units_of,
    with_kept_secrets,
)
from tidegate.azure.management.stream_analytics.parts import (
    JOB_PATH,
    described,
    job_id,
    part_resource,
    transformation_resource,
)
from tidegate.azure.management.stream_analytics.store import JOBS, KIND, PROVIDER, JobStore, error_policy_of, serving
from tidegate.service import JobDocument, JobResource, JobState, Scale, StartMode

_MODES = {mode.value.lower(): mode for mode in StartMode}
_EXPANDABLE = ("inputs", "outputs", "functions", "transformation", "jobfile", "queryversions")
_EXPANDABLE_NAMES = "inputs, outputs, functions, transformation, jobFile, queryVersions"
_KEPT_PROPERTIES = (
    "sku",
    "jobType",
    "eventsOutOfOrderPolicy",
    "outputErrorPolicy",
    "eventsOutOfOrderMaxDelayInSeconds",
    "eventsLateArrivalMaxDelayInSeconds",
    "dataLocale",
    "compatibilityLevel",
    "jobStorageAccount",
    "contentStoragePolicy",
    "outputStartMode",
    "outputStartTime",
    "cluster",
    "externals",
)
_KINDS = {
    "sku": dict,
    "jobType": str,
    "jobStorageAccount": dict,
    "contentStoragePolicy": str,
    "cluster": dict,
    "externals": dict,
}
"""What the properties are that nothing here but clients reads, which cannot list jobs if one is of another kind."""
_SHOWN_PROPERTIES = (
    "jobId",
    "provisioningState",
    "jobState",
    "createdDate",
    "lastOutputEventTime",
    "etag",
    "jobStateReason",
    "jobStateSince",
    "changedDate",
    "startedDate",
    "streamingUnits",
    "restarts",
    "process",
    "placement",
)
"""What clients send back of a job that they have read, though only the service sets it."""
_DEFAULTS = {
    "sku": {"name": "Standard"},
    "jobType": "Cloud",
    "eventsOutOfOrderPolicy": "Adjust",
    "outputErrorPolicy": "Stop",
    "eventsOutOfOrderMaxDelayInSeconds": 0,
    "eventsLateArrivalMaxDelayInSeconds": -1,
    "dataLocale": "en-US",
    "compatibilityLevel": "1.2",
    "contentStoragePolicy": "SystemAccount",
}


def _in_lower_case(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class JobPayload(Payload):
    """A job as clients send it. Its properties are kept as they are given; those that matter are checked."""

    location: str | None = None
    tags: Tags | None = None
    sku: dict[str, Any] | None = None
    identity: dict[str, Any] | None = None
    properties: dict[str, Any] = Field(default_factory=dict)


class StartPayload(Payload):
    """How a job is started."""

    output_start_mode: Annotated[
        Literal["jobstarttime", "customtime", "lastoutputeventtime"], BeforeValidator(_in_lower_case)
    ] = "jobstarttime"
    output_start_time: datetime | None = None


class ScalePayload(Payload):
    """How many streaming units a job has."""

    streaming_units: Annotated[int, Field(ge=1)]


class StreamingJobs:
    """The jobs of the service."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    def operations(self) -> list[Operation]:
        """Return what is served."""
        return [
            Operation("GET", f"{SUBSCRIPTION}/providers/{PROVIDER}/{JOBS}", serving(self._list)),
            Operation("GET", f"{GROUP}/providers/{PROVIDER}/{JOBS}", serving(self._list)),
            Operation("GET", JOB_PATH, serving(self._show)),
            Operation("PUT", JOB_PATH, serving(self._put)),
            Operation("PATCH", JOB_PATH, serving(self._patch)),
            Operation("DELETE", JOB_PATH, serving(self._delete)),
            Operation("POST", f"{JOB_PATH}/start", serving(self._start)),
            Operation("POST", f"{JOB_PATH}/stop", serving(self._stop)),
            Operation("POST", f"{JOB_PATH}/scale", serving(self._scale)),
            Operation("GET", f"{JOB_PATH}/operationStatuses/{{operation}}", serving(self._status)),
            Operation("GET", f"{JOB_PATH}/operationResults/{{operation}}", serving(self._result)),
        ]

    def listed(self, request: ArmRequest, group: str) -> list[dict[str, Any]]:
        """Return the jobs of a group as resources."""
        found = self._store.listed(group)
        return [self._resource(self._store.placed(request, job), job, expanded=()) for job in found]

    def _list(self, request: ArmRequest) -> ArmAnswer:
        expanded = _expanded(request)
        found = self._store.listed(request.group)
        resources = [self._resource(self._store.placed(request, job), job, expanded) for job in found]
        return ArmAnswer(body={"value": resources})

    def _show(self, request: ArmRequest) -> ArmAnswer:
        return self._answer(request, self._store.job(request), 200)

    def _put(self, request: ArmRequest) -> ArmAnswer:
        payload = _read_job(request)
        file = job_file_of(request, payload.properties)
        if file is not None:
            return self._put_file(request, payload, file)
        if self._store.exists(request):
            change = partial(document_of, payload, is_patch=False)
            return self._answer(request, self._store.edit(request, change), 200)
        location = payload.location or self._store.resource_groups.location(request.group)
        document = document_of(payload, {"location": location}, is_patch=False)
        return self._answer(request, self._store.create(request, document), 201)

    def _patch(self, request: ArmRequest) -> ArmAnswer:
        payload = _read_job(request)
        job = self._store.job(request)
        file = job_file_of(request, payload.properties)
        if file is not None or (not is_described(job.arm) and is_about_units(payload.properties)):
            return self._put_file(request, payload, file)
        job = self._store.edit(request, partial(document_of, payload, is_patch=True))
        return self._answer(request, job, 200)

    def _put_file(self, request: ArmRequest, payload: JobPayload, file: Mapping[str, Any] | None) -> ArmAnswer:
        """Create a job of a job file, or give the job one; None leaves the job's file."""
        envelope = {"location": payload.location, "identity": payload.identity}
        envelope = {name: value for name, value in envelope.items() if value is not None}
        if payload.tags is not None:
            envelope["tags"] = check_tags(payload.tags)
        units = units_of(payload.properties)
        if not self._store.exists(request):
            document = JobDocument(definition=file or {}, arm=envelope, scale=units or Scale())
            return self._answer(request, self._store.create_from_file(request, document), 201)

        def change(former: JobDocument) -> JobDocument:
            kept = {name: former.arm[name] for name in ("location", "tags", "identity") if name in former.arm}
            definition = former.definition if file is None else with_kept_secrets(file, former.definition)
            return JobDocument(definition=definition, arm={**kept, **envelope}, scale=units or former.scale)

        return self._answer(request, self._store.jobs.edit(self._store.job(request).name, change), 200)

    def _delete(self, request: ArmRequest) -> ArmAnswer:
        if not self._store.exists(request):
            return ArmAnswer(204)
        self._store.delete(self._store.job(request))
        return ArmAnswer()

    # -- starting and stopping

    def _start(self, request: ArmRequest) -> ArmAnswer:
        payload = read_payload(StartPayload, request.body)
        job = self._store.job(request)
        mode, time = _MODES[payload.output_start_mode], payload.output_start_time
        if (mode is StartMode.CUSTOM) != (time is not None):
            raise bad_request("outputStartTime is for the outputStartMode CustomTime, which needs one")
        if time is not None:
            time = _in_utc(time)
        self._store.refresh(job)
        return self._under_way(request, self._store.jobs.start(job.name, mode, time), "start")

    def _stop(self, request: ArmRequest) -> ArmAnswer:
        job = self._store.job(request)
        return self._under_way(request, self._store.jobs.stop(job.name), "stop")

    def _scale(self, request: ArmRequest) -> ArmAnswer:
        units = read_payload(ScalePayload, request.body).streaming_units
        job = self._store.job(request)
        return self._under_way(request, self._store.jobs.scale(job.name, Scale(streaming_units=units)), "start")

    def _under_way(self, request: ArmRequest, job: JobResource, verb: str) -> ArmAnswer:
        """Return the answer to an operation that is still running: where the client can ask for its result."""
        if _progress(verb, job)[0] == "Succeeded":
            return ArmAnswer()
        version = request.query.get("api-version", "2020-03-01")
        base, operation = f"{request.base_url}{job_id(request, job.name)}", f"{verb}-{_run_of(job)}"
        headers = {
            "Azure-AsyncOperation": f"{base}/operationStatuses/{operation}?api-version={version}",
            "Location": f"{base}/operationResults/{operation}?api-version={version}",
            "Retry-After": "1",
        }
        return ArmAnswer(202, headers=headers)

    def _operation(self, request: ArmRequest) -> tuple[str, str | None]:
        job = self._store.job(request)
        verb, _, run = request.names["operation"].partition("-")
        if verb not in ("start", "stop") or run.partition(".")[0] != job.job_id:
            raise ArmError(404, "OperationNotFound", f"there is no operation {request.names['operation'][:100]!r}")
        # somebody has started the job since, so that its state says nothing of what this client waits for
        return _progress(verb, job) if run == _run_of(job) else ("Succeeded", None)

    def _status(self, request: ArmRequest) -> ArmAnswer:
        status, reason = self._operation(request)
        body: dict[str, Any] = {"id": request.path, "name": request.names["operation"], "status": status}
        if status == "Failed":
            body["error"] = {"code": "JobFailed", "message": reason or "the job's log says why"}
        headers = {"Retry-After": "1"} if status == "InProgress" else {}
        return ArmAnswer(body=body, headers=headers)

    def _result(self, request: ArmRequest) -> ArmAnswer:
        status, reason = self._operation(request)
        match status:
            case "InProgress":
                location = f"{request.base_url}{request.path}?api-version={request.query['api-version']}"
                return ArmAnswer(202, headers={"Location": location, "Retry-After": "1"})
            case "Failed":
                raise ArmError(409, "JobFailed", reason or "the job's log says why")
            case _:
                return ArmAnswer()

    # -- as clients see it

    def _answer(self, request: ArmRequest, job: JobResource, status: int) -> ArmAnswer:
        body = self._resource(request, job, _expanded(request))
        return ArmAnswer(status, body, {"ETag": f'"{job.etag}"'})

    def _resource(self, request: ArmRequest, job: JobResource, expanded: Sequence[str]) -> dict[str, Any]:
        arm: Mapping[str, Any] = job.arm
        properties: dict[str, Any] = {
            **_DEFAULTS,
            **{key: value for key, value in arm.get("properties", {}).items() if value is not None},
            **_policy(job),
            "jobId": job.job_id,
            "provisioningState": "Succeeded",
            "jobState": job.state.value,
            "createdDate": time_text(job.created),
            "etag": job.etag,
            **more_of(job),
        }
        if job.start_mode is not None:
            properties["outputStartMode"] = job.start_mode.value
        if job.output_start is not None:
            properties["outputStartTime"] = time_text(job.output_start)
        if job.last_output is not None:
            properties["lastOutputEventTime"] = time_text(job.last_output)
        if "jobfile" in expanded:
            properties["jobFile"] = job.definition
        if "queryversions" in expanded:
            properties["queryVersions"] = query_versions(job)
        for kind in PART_KINDS:
            if kind in expanded:
                properties[kind] = [part_resource(request, job, kind, part) for part in described(job, kind)]
        if "transformation" in expanded and (found := transformation_resource(request, job)) is not None:
            properties["transformation"] = found
        resource = {
            "id": job_id(request, job.name),
            "name": job.name,
            "type": KIND,
            "location": arm.get("location") or self._store.resource_groups.location(request.group),
            "tags": arm.get("tags", {}),
            "properties": properties,
        }
        return {**resource, "identity": arm["identity"]} if arm.get("identity") else resource


def _policy(job: JobResource) -> dict[str, Any]:
    """Return the properties that the job file decides: the portal and the command line may have changed it."""
    ordering = job.event_ordering
    return {
        "eventsOutOfOrderPolicy": str(ordering["action"]).capitalize(),
        "eventsOutOfOrderMaxDelayInSeconds": int(ordering["out_of_order_tolerance_s"]),
        "eventsLateArrivalMaxDelayInSeconds": int(ordering["late_arrival_tolerance_s"]),
        "outputErrorPolicy": error_policy_of(job.definition),
        "compatibilityLevel": job.definition.get("compatibility_level", "1.2"),
    }


def _read_job(request: ArmRequest) -> JobPayload:
    """Return a job as a client sends it. Raises ArmError, also for a property whose name is probably misspelled.

    Other properties that are not known here are ignored: later versions of the API may have them.
    """
    payload = read_payload(JobPayload, request.body)
    names = {name.lower(): name for name in (*_KEPT_PROPERTIES, *_SHOWN_PROPERTIES, *_EXPANDABLE_NAMES.split(", "))}
    for key in payload.properties:
        near = difflib.get_close_matches(key.lower(), names, n=1, cutoff=0.85)
        if near and key.lower() not in names:
            raise bad_request(
                f"properties.{key[:100]}: a streaming job has no such property; did you mean {names[near[0]]}?",
                target=f"properties.{key[:100]}",
            )
    return payload


def document_of(payload: JobPayload, former: Mapping[str, Any], *, is_patch: bool) -> dict[str, Any]:
    """Return the description of a job that a body makes of the former one.

    Inputs, outputs, functions and the transformation that a body does not contain remain, as templates often describe
    them apart. Streaming units of the job, which a client reads there, are those of its transformation.
    Raises ArmError.
    """
    document = dict(former)
    if payload.location is not None:
        document["location"] = payload.location[:90]
    if payload.tags is not None or not is_patch:
        document["tags"] = check_tags(payload.tags)
    if payload.identity is not None:
        document["identity"] = {key: value for key, value in payload.identity.items() if key in ("type", "principalId")}
    given = {str(key).lower(): value for key, value in payload.properties.items() if value is not None}
    if payload.sku is not None:
        given["sku"] = payload.sku
    kept = {key: given[key.lower()] for key in _KEPT_PROPERTIES if key.lower() in given}
    if wrong := [key for key, kind in _KINDS.items() if key in kept and not isinstance(kept[key], kind)]:
        expected = "an object" if _KINDS[wrong[0]] is dict else "text"
        raise bad_request(f"properties.{wrong[0]}: expected {expected}", target=wrong[0])
    document["properties"] = {**former.get("properties", {}), **kept} if is_patch else kept
    for kind in PART_KINDS:
        if kind in given:
            document = read_parts(kind, given[kind], document)
    if "transformation" in given:
        part = given["transformation"]
        name = part.get("name") if isinstance(part, dict) else None
        before = former.get("transformation", {})
        document["transformation"] = read_transformation(
            name if isinstance(name, str) else DEFAULT_TRANSFORMATION, part, before, is_patch=is_patch
        )
    elif (units := units_of(payload.properties)) is not None:
        before = former.get("transformation", {"name": DEFAULT_TRANSFORMATION})
        change = {"properties": {"streamingUnits": units.streaming_units}}
        document["transformation"] = read_transformation(before["name"], change, before, is_patch=True)
    return document


def _expanded(request: ArmRequest) -> list[str]:
    """Return what `$expand` asks for. Raises ArmError."""
    asked = [name.strip().lower() for name in request.query.get("$expand", "").split(",") if name.strip()]
    wrong = [name for name in asked if name not in _EXPANDABLE]
    if wrong:
        raise bad_request(f"$expand can name {_EXPANDABLE_NAMES}, not {wrong[0][:40]!r}", "InvalidExpand")
    return asked


def _run_of(job: JobResource) -> str:
    """Return what identifies a job and its last start."""
    return job.job_id if job.started is None else f"{job.job_id}.{job.started.astimezone(UTC):%Y%m%dT%H%M%S%f}"


def _in_utc(time: datetime) -> datetime:
    """Return an output start time in UTC. Raises ArmError."""
    if time.tzinfo is None:
        raise bad_request("outputStartTime has no time zone: end it with Z")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise bad_request("outputStartTime is out of range: 0001-01-01 to 9999-12-31 in UTC") from None


def _progress(verb: str, job: JobResource) -> tuple[str, str | None]:
    """Return how far a start or stop is: InProgress, Succeeded or Failed, and why it failed."""
    match job.state:
        case JobState.STARTING | JobState.STOPPING:
            return "InProgress", None
        case JobState.RUNNING | JobState.DEGRADED:
            return ("Succeeded", None) if verb == "start" else ("InProgress", None)
        case JobState.FAILED:
            return ("Failed", job.reason) if verb == "start" else ("Succeeded", None)
        case JobState.STOPPED | JobState.CREATED:
            return "Succeeded", None
