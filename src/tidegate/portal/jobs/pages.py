"""The pages of a job: query, event ordering, monitor, diagram, errors and logs; starting, stopping and changing it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute

from tidegate.hub.config import EventHubConfig
from tidegate.hub.errors import ArgumentError, HubError, NotFound
from tidegate.hub.partition import Partition
from tidegate.portal.jobs.changes import (
    NEW_JOB_FIELDS,
    ORDERING_FIELDS,
    SAMPLE_INPUT,
    SAMPLE_JOB,
    SAMPLE_OUTPUT,
    SAMPLE_QUERY,
    new_definition,
    ordering_of,
    served,
    start_of,
    with_ordering,
    with_query,
    with_tags,
)
from tidegate.portal.jobs.descriptions import (
    CAUSES,
    MOST_ERROR_GROUPS,
    LastStep,
    SectionAddresses,
    described,
    error_rows,
    state_of,
    watermark_rows,
)
from tidegate.portal.jobs.history import RANGES, partition_series, query_changes, series
from tidegate.portal.jobs.sections import INPUT_TITLES, OUTPUT_TITLES, TITLES, SectionRoutes
from tidegate.portal.jobs.workbench_client import WorkbenchClient
from tidegate.portal.web.handling import TAG_FIELDS, Act, Desk, Load, integer_of, text_of
from tidegate.portal.web.rendering import names_json
from tidegate.portal.web.sessions import Visitor, VisitorRole
from tidegate.service import JobResource, Jobs, JobState
from tidegate.service.questions import engine_is_installed

JOB = "/jobs/{job}"
LOG_LINES = 200


class JobPages:
    """The handlers. The workbench that checks queries is another process than the one that replays logs."""

    def __init__(
        self, desk: Desk, jobs: Jobs, rate: Callable[[Partition], float | None], now_s: Callable[[], float]
    ) -> None:
        self._desk = desk
        self._jobs = jobs
        self._now_s = now_s
        self._places = SectionAddresses(desk.http.hub.namespace, self._endpoint, rate)
        self._editing = WorkbenchClient()
        self._replaying = WorkbenchClient()
        self._sections = SectionRoutes(desk, jobs, self._editing, self._connection_string)

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        reader, contributor, owner = VisitorRole.READER, VisitorRole.CONTRIBUTOR, VisitorRole.OWNER
        return [
            self._data("/job-words.json", self._words),
            *self._page("/new-job", "job_new.html", self._new),
            self._action("/jobs", self._create, owner, ("name", "query", *NEW_JOB_FIELDS)),
            self._action("/samples/job", self._start_sample, owner),
            self._action(f"{JOB}/start", self._start, contributor, ("mode", "time")),
            self._action(f"{JOB}/stop", self._stop, contributor),
            self._action(f"{JOB}/delete", self._delete, owner, ("confirm",)),
            self._action(f"{JOB}/clone", self._clone, owner, ("name",)),
            self._action(f"{JOB}/query", self._set_query, contributor, ("query", "etag")),
            self._action(f"{JOB}/ordering", self._set_ordering, contributor, (*ORDERING_FIELDS, "etag")),
            self._action(f"{JOB}/tags", self._set_tags, contributor, TAG_FIELDS),
            self._action(f"{JOB}/compile", self._compile, reader, ("query",)),
            self._action(f"{JOB}/test", self._test, contributor, ("query", "uploaded", "events")),
            self._action(f"{JOB}/tune", self._tune, reader, ORDERING_FIELDS),
            *self._sections.routes(),
            self._data(f"{JOB}/state.json", self._state),
            self._data(f"{JOB}/metrics.json", self._metrics),
            self._data(f"{JOB}/partitions.json", self._partitions),
            self._data(f"{JOB}/picture.json", self._picture),
            self._data(f"{JOB}/explain.json", self._explain),
            *self._page(f"{JOB}/event-ordering", "job_ordering.html", self._show),
            *self._page(f"{JOB}/monitor", "job_monitor.html", self._monitor),
            *self._page(f"{JOB}/diagram", "job_diagram.html", self._diagram),
            *self._page(f"{JOB}/logs", "job_logs.html", self._logs),
            *self._page(JOB, "job.html", self._show),
        ]

    async def end(self) -> None:
        """End the processes of the workbench, as the hub stops."""
        await asyncio.gather(self._editing.close(), self._replaying.close())

    async def decode(self, body: bytes, **schema: Any) -> Mapping[str, Any]:
        """Return the records of a body, decoded in the process that checks queries; see there. Raises HubError."""
        encoded = base64.b64encode(body).decode()
        found: Mapping[str, Any] = await self._editing.ask("decode", body=encoded, **schema)
        return found

    def _endpoint(self) -> str:
        """Return the endpoint in this namespace's connection strings."""
        root = self._desk.http.hub.namespace.access.rule_table.root_rule
        return self._desk.http.control.connection_string(root, "no key", "").partition(";")[0].partition("=")[2]

    def _connection_string(self, hub: str) -> str:
        """Return the connection string by which jobs reach a hub of this namespace. Raises NotFound."""
        namespace = self._desk.http.hub.namespace
        root = namespace.access.rule_table.root_rule
        return self._desk.http.control.connection_string(root, root.primary_key, namespace.event_hub(hub).name)

    def _page(self, path: str, template: str, load: Load) -> list[BaseRoute]:
        return list(self._desk.page(path, template, served(load)))

    def _data(self, path: str, load: Load) -> BaseRoute:
        return self._desk.data(path, served(load))

    def _action(self, path: str, act: Act, needed: VisitorRole, fields: Collection[str] = ()) -> BaseRoute:
        return self._desk.action(path, served(act), needed, fields)

    def _job(self, request: Request) -> JobResource:
        return self._jobs.show(request.path_params["job"])

    def _definition(self, request: Request, **changes: Any) -> dict[str, Any]:
        """Return a job's definition with its secrets, for the workbench only."""
        job = self._job(request)
        document = self._jobs.document(job.name)
        state = str(self._jobs.state_folder(job.name))
        return {**document.definition, "name": job.name, "state_dir": state, **changes}

    # -- the query

    async def _show(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        job = self._job(request)
        status = await run_in_threadpool(self._jobs.status, job.name) if job.process is not None else None
        placement = None if status is None else status.get("placement")
        shown = described(job)
        definition = self._definition(request)
        for kind, public in (("inputs", job.inputs), ("outputs", job.outputs)):
            for one in shown[kind]:
                section = (definition.get(kind) or {}).get(one["name"]) or {}
                one["title"] = TITLES[kind].get(one["settings"].get("type", ""))
                one["place"] = self._places.of(public[one["name"]], section).as_json()
        return {
            **shown,
            "placement": placement,
            "hasEngine": engine_is_installed(),
            "metrics": self._figures(job, status),
        }

    def _figures(self, job: JobResource, status: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the last value of each metric, by its name."""
        return dict(self._jobs.report(job.name).get("metrics") or (status or {}).get("metrics", {}))

    async def _state(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        return state_of(self._job(request))

    async def _new(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        hubs = [hub.name for hub in self._desk.http.hub.namespace.event_hubs.values()]
        return {
            "hubs": sorted(hubs),
            "hasEngine": engine_is_installed(),
            "inputKinds": dict(INPUT_TITLES),
            "outputKinds": dict(OUTPUT_TITLES),
        }

    async def _create(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        name = text_of(body, "name").strip()
        made = await run_in_threadpool(self._jobs.create, name, new_definition(body, self._connection_string))
        return {"name": made.name}

    async def _start_sample(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        """Make the sample job with the hub that it writes, and start it."""
        namespace = self._desk.http.hub.namespace
        if SAMPLE_OUTPUT not in namespace.event_hubs:
            await run_in_threadpool(namespace.management.create_event_hub, EventHubConfig(name=SAMPLE_OUTPUT))
        wanted = {
            "inputName": SAMPLE_INPUT,
            "inputHub": SAMPLE_INPUT,
            "outputName": "stats",
            "outputHub": SAMPLE_OUTPUT,
        }
        document = new_definition({"query": SAMPLE_QUERY, **wanted}, self._connection_string)
        made = await run_in_threadpool(self._jobs.create, SAMPLE_JOB, document)
        await run_in_threadpool(self._jobs.start, made.name)
        return {"name": made.name}

    async def _words(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        return {"words": await self._editing.ask("words")}

    async def _compile(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        job = self._job(request)
        definition = {**job.definition, "query": text_of(body, "query")}
        found: Mapping[str, Any] = await self._editing.ask("compile", definition=definition)
        return found

    async def _test(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        query = text_of(body, "query")
        uploaded = body.get("uploaded") or {}
        if not isinstance(uploaded, dict) or not all(isinstance(text, str) for text in uploaded.values()):
            raise ArgumentError("uploaded: expected the text of a file by the name of its input")
        events = integer_of(body, "events", 1000, 1, 100_000)
        definition = self._definition(request, query=query)
        definition.pop("query_file", None)
        found: Mapping[str, Any] = await self._editing.ask(
            "test", definition=definition, events=events, uploaded=uploaded
        )
        return found

    async def _set_query(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        change, etag = with_query(text_of(body, "query")), text_of(body, "etag") or None
        return await self._edit(request, change, etag)

    async def _set_ordering(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        return await self._edit(request, with_ordering(ordering_of(body)), text_of(body, "etag") or None)

    async def _set_tags(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        return await self._edit(request, with_tags(body), None)

    async def _edit(self, request: Request, change: Any, etag: str | None) -> Mapping[str, Any]:
        name = request.path_params["job"]
        job = await run_in_threadpool(lambda: self._jobs.edit(name, change, etag=etag))
        return {"etag": job.etag, "state": job.state.value}

    # -- running

    async def _start(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        mode, when = start_of(body)
        job = await run_in_threadpool(self._jobs.start, request.path_params["job"], mode, when)
        return {"state": job.state.value}

    async def _stop(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        job = await run_in_threadpool(self._jobs.stop, request.path_params["job"])
        return {"state": job.state.value}

    async def _delete(self, request: Request, visitor: Visitor, body: Any) -> None:
        job = self._job(request)
        if text_of(body, "confirm") != job.name:
            raise ArgumentError(f"to delete the job with its state, repeat its name: {job.name}")
        await run_in_threadpool(self._jobs.delete, job.name)

    async def _clone(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        document, name = self._jobs.document(request.path_params["job"]), text_of(body, "name").strip()
        made = await run_in_threadpool(self._jobs.create, name, document)
        return {"name": made.name}

    # -- time

    async def _tune(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        further = {}
        if body:
            ordering = ordering_of(body)
            further = {"late": ordering["late_arrival_tolerance_s"], "order": ordering["out_of_order_tolerance_s"]}
        definition = self._definition(request)
        found: Mapping[str, Any] = await self._replaying.ask("tune", definition=definition, further=further)
        return found

    async def _monitor(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        job = self._job(request)
        status = await run_in_threadpool(self._jobs.status, job.name)
        return {
            **described(job),
            "updated": None if status is None else status.get("updated"),
            "watermark": None if status is None else status.get("watermark"),
            "placement": None if status is None else status.get("placement"),
            "timelines": self._timelines(job, status),
            "causes": CAUSES,
            "metrics": self._figures(job, status),
            "ranges": list(RANGES),
            "range": _range(request),
            "hasEngine": engine_is_installed(),
        }

    def _timelines(self, job: JobResource, status: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        now = datetime.fromtimestamp(self._now_s(), UTC)
        step = LastStep.of(job, self._jobs.report(job.name))
        is_running = job.state in (JobState.RUNNING, JobState.DEGRADED)
        return watermark_rows(status, job.event_ordering, now, step, is_running=is_running)

    async def _metrics(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        job, range_name, after_s = self._job(request), _range(request), _after_s(request)
        found = await run_in_threadpool(lambda: series(self._jobs, job.name, range_name, after_s, self._now_s()))
        return {**found, "queryChanges": query_changes(job.versions, after_s)}

    async def _partitions(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        name, range_name, after_s = request.path_params["job"], _range(request), _after_s(request)
        return await run_in_threadpool(lambda: partition_series(self._jobs, name, range_name, after_s, self._now_s()))

    async def _picture(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        first, stop = (request.query_params.get(name, "")[:40] for name in ("from", "to"))
        found: Mapping[str, Any] = await self._replaying.ask(
            "picture", definition=self._definition(request), **{"from": first, "to": stop}
        )
        return found

    async def _explain(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        query = request.query_params
        found: Mapping[str, Any] = await self._replaying.ask(
            "explain",
            definition=self._definition(request),
            input=query.get("input") or None,
            partition=query.get("partition", "0"),
            sequenceNumber=integer_of(query, "sequenceNumber", 0, 0, 1 << 62),
        )
        return found

    async def _diagram(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        job = self._job(request)
        plan, problem = None, ""
        if self._editing.is_running or names_json(request.scope):
            # A page does not wait until the engine is loaded; its script asks for the plan.
            try:
                plan = await self._editing.ask("plan", definition=dict(job.definition))
            except HubError as error:
                problem = error.description
        metrics = await run_in_threadpool(self._jobs.metrics, job.name)
        status = await run_in_threadpool(self._jobs.status, job.name)
        report = self._jobs.report(job.name)
        return {
            **described(job),
            "plan": plan,
            "problem": problem,
            "metrics": metrics,
            "timelines": self._timelines(job, status),
            "eventsRead": report.get("inputs") or {},
            "rowsWritten": report.get("outputs") or {},
            "operators": report.get("operators") or [],
            **{key: report.get(key) for key in ("stateBytes", "computeSeconds", "commitSeconds")},
            "at": self._now_s(),
        }

    async def _logs(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        job = self._job(request)
        after = request.query_params.get("after")
        place = None if after is None else integer_of({"after": after}, "after", 0, 0, 1 << 62)
        lines = await run_in_threadpool(lambda: self._jobs.logs(job.name, limit=LOG_LINES, after=place))
        shown = {"lines": repeated([dict(one) for one in lines.lines]), "next": lines.next}
        if place is not None and names_json(request.scope):
            return shown  # a reader that follows the log has the rest already
        groups = await run_in_threadpool(self._jobs.error_groups, job.name)
        sections = self._definition(request).get("inputs") or {}
        kind, find = (request.query_params.get(name, "").strip()[:100] for name in ("kind", "find"))
        found = [
            one
            for one in groups
            if kind in ("", one.kind) and find.lower() in f"{one.kind} {one.source} {one.message}".lower()
        ]
        rows = error_rows(found[:MOST_ERROR_GROUPS], lambda name: self._places.own_hub(sections.get(name) or {}))
        return {
            **described(job),
            **shown,
            "errors": rows,
            "errorGroups": len(found),
            "errorKinds": sorted({one.kind for one in groups}),
            "kind": kind,
            "find": find,
        }


def repeated(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return log lines with a message that comes several times in a row once, with its `count` and its last time."""
    found: list[dict[str, Any]] = []
    for line in lines:
        before = found[-1] if found else None
        if before is not None and (before.get("level"), before.get("message")) == (
            line.get("level"),
            line.get("message"),
        ):
            before.update(time=line.get("time"), count=before.get("count", 1) + 1)
        else:
            found.append(line)
    return found


def _after_s(request: Request) -> float:
    """Return the time after which a page wants samples, in seconds since 1970."""
    after = request.query_params.get("after", "0")
    return float(after) if after.replace(".", "", 1).isdecimal() and len(after) < 20 else 0.0


def _range(request: Request) -> str:
    name = request.query_params.get("range", "1h")
    if name not in RANGES:
        raise NotFound(f"there is no range {name[:20]!r}: choose {', '.join(RANGES)}")
    return name
