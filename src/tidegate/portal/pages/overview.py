"""`/`: the event hubs and the jobs, and what of them is running, behind or failing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute

from tidegate.hub.event_hub import EventHub
from tidegate.portal.pages.hubs import hub_summary
from tidegate.portal.pages.throughput import Throughput
from tidegate.portal.web.handling import Desk, integer_of
from tidegate.portal.web.sessions import Visitor

PAGE_ROWS = 25


class JobList(Protocol):
    """The jobs, as the overview needs them."""

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return a row for each job: `name`, `state`, `detail`, `isFailing`, `isBehind`."""

    def with_outputs(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return the rows that are shown, with `lastOutputTime`."""


def overview_routes(desk: Desk, throughput: Throughput, jobs: JobList | None) -> list[BaseRoute]:
    """Return the routes of the overview."""
    namespace = desk.http.hub.namespace

    async def load(request: Request, visitor: Visitor) -> Mapping[str, Any]:
        search = request.query_params.get("search", "").strip()[:100]
        hubs = [hub for key, hub in sorted(namespace.event_hubs.items()) if search.lower() in key]
        rows = await run_in_threadpool(jobs.rows) if jobs is not None else []
        found = [row for row in rows if search.lower() in row["name"].lower()]
        page = _page(request, len(hubs))
        job_page = _page(request, len(found), "jobs")
        shown = hubs[page["first"] : page["first"] + PAGE_ROWS]
        return {
            "namespace": namespace.name,
            "search": search,
            "totals": await run_in_threadpool(_totals, list(namespace.event_hubs.values()), rows),
            "hubPage": page,
            "hubs": await run_in_threadpool(_with_rates, shown, throughput),
            "hasJobs": jobs is not None,
            "jobPage": job_page,
            "jobs": await _shown(jobs, found[job_page["first"] : job_page["first"] + PAGE_ROWS]),
        }

    return list(desk.page("/", "overview.html", load))


async def _shown(jobs: JobList | None, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return [] if jobs is None else await run_in_threadpool(jobs.with_outputs, rows)


def _page(request: Request, rows: int, parameter: str = "page") -> dict[str, int]:
    """Return which rows of a list to show."""
    pages = max(1, -(-rows // PAGE_ROWS))
    number = min(integer_of(request.query_params, parameter, 1, 1, 1_000_000), pages)
    return {"number": number, "pages": pages, "rows": rows, "first": (number - 1) * PAGE_ROWS}


def _totals(hubs: Sequence[EventHub], jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    logs = [partition.log for hub in hubs for partition in hub.partitions]
    return {
        "hubs": len(hubs),
        "partitions": len(logs),
        "events": sum(log.next_sequence_number - log.begin_sequence_number for log in logs),
        "bytes": sum(log.size_bytes for log in logs),
        "damagedEvents": sum(partition.damaged_events for hub in hubs for partition in hub.partitions),
        "jobs": len(jobs),
        "jobsRunning": sum(row["state"] == "Running" for row in jobs),
        "jobsFailing": sum(bool(row["isFailing"]) for row in jobs),
        "jobsBehind": sum(bool(row["isBehind"]) for row in jobs),
    }


def _with_rates(hubs: Sequence[EventHub], throughput: Throughput) -> list[dict[str, Any]]:
    return [hub_summary(hub) | {"eventsPerSecond": sum(map(throughput.rate, hub.partitions))} for hub in hubs]
