"""`/`: the event hubs and the jobs, and what of them is running, behind or failing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute

from tidegate.hub.event_hub import EventHub
from tidegate.log import Storage
from tidegate.portal.pages.explorer import SAMPLE_HUB
from tidegate.portal.pages.hubs import hub_summary
from tidegate.portal.pages.throughput import ThroughputCharts
from tidegate.portal.web.handling import Desk, integer_of
from tidegate.portal.web.rendering import natural
from tidegate.portal.web.sessions import Visitor

PAGE_ROWS = 25


class JobList(Protocol):
    """The jobs, as the overview needs them."""

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return a row for each job: `name`, `state`, `detail`, `isFailing`, `isBehind`."""

    def with_outputs(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return the rows that are shown, with `lastOutputTime`."""

    def sparklines(self, names: Sequence[str]) -> Mapping[str, Sequence[float | None]]:
        """Return by job how many events a second it read during the last minutes."""


_SORTS: Mapping[str, str] = {"name": "name", "state": "state", "inputEvents": "inputEvents", "delay": "delaySeconds"}
_HUB_SORTS: Mapping[str, str] = {
    "name": "name",
    "partitions": "partitions",
    "events": "events",
    "bytes": "bytes",
    "last": "lastEnqueuedTime",
    "readers": "readers",
}
"""The columns that a list can be sorted by, and what of a row is compared."""
_LITTLE_DISK = 0.05
_SPARK_RANGE = "5m"


def overview_routes(desk: Desk, throughput: ThroughputCharts, jobs: JobList | None) -> list[BaseRoute]:
    """Return the routes of the overview."""
    namespace = desk.http.hub.namespace

    def hubs_of(request: Request) -> tuple[list[EventHub], dict[str, int], str]:
        """Return the hubs of one page of the list, which page that is, and how it is sorted."""
        search, order = _search(request), request.query_params.get("hubs", "name")
        found = [hub for key, hub in namespace.event_hubs.items() if search.lower() in key]
        key = _HUB_SORTS.get(order.removeprefix("-"), "name")
        if key == "name":
            found.sort(key=lambda hub: natural(hub.name), reverse=order.startswith("-"))
        else:
            found.sort(key=lambda hub: natural(hub.name))
            found.sort(key=lambda hub: _comparable(hub_summary(hub)[key]), reverse=order.startswith("-"))
        page = _page(request, len(found))
        return found[page["first"] : page["first"] + PAGE_ROWS], page, order

    def jobs_of(request: Request, rows: Sequence[Mapping[str, Any]]) -> tuple[Sequence[Any], dict[str, int], str]:
        """Return the jobs of one page of the list, which page that is, and how it is sorted."""
        search, state, order = _search(request), _state(request), request.query_params.get("sort", "name")
        found = [
            row for row in rows if search.lower() in row["name"].lower() and state.lower() in ("", row["state"].lower())
        ]
        key = _SORTS.get(order.removeprefix("-"), "name")
        found.sort(key=lambda row: natural(row["name"]))
        if key != "name" or order.startswith("-"):
            found.sort(
                key=lambda row: natural(row[key]) if key == "name" else _comparable(row[key]),
                reverse=order.startswith("-"),
            )
        page = _page(request, len(found), "jobs")
        return found[page["first"] : page["first"] + PAGE_ROWS], page, order

    async def load(request: Request, visitor: Visitor) -> Mapping[str, Any]:
        search, state = _search(request), _state(request)
        rows = await run_in_threadpool(jobs.rows) if jobs is not None else []
        shown_jobs, job_page, order = jobs_of(request, rows)
        shown, page, hub_order = await run_in_threadpool(hubs_of, request)
        totals = await run_in_threadpool(_totals, list(namespace.event_hubs.values()), rows)
        return {
            "namespace": namespace.name,
            "search": search,
            "state": state,
            "states": sorted({row["state"] for row in rows}),
            "sort": order,
            "hubSort": hub_order,
            "totals": totals,
            "health": await run_in_threadpool(_health, namespace.storage),
            "isFirstRun": jobs is not None and not rows and not search,
            "hasSample": SAMPLE_HUB in namespace.event_hubs,
            "hubPage": page,
            "hubs": await run_in_threadpool(_with_rates, shown, throughput),
            "hasJobs": jobs is not None,
            "jobPage": job_page,
            "jobs": await _shown(jobs, shown_jobs),
        }

    async def sparklines(request: Request, visitor: Visitor) -> Mapping[str, Any]:
        shown, _, _ = await run_in_threadpool(hubs_of, request)
        charts = await run_in_threadpool(lambda: [throughput.chart(hub, _SPARK_RANGE) for hub in shown])
        of_jobs: Mapping[str, Any] = {}
        if jobs is not None:
            rows, _, _ = jobs_of(request, await run_in_threadpool(jobs.rows))
            of_jobs = await run_in_threadpool(jobs.sparklines, [row["name"] for row in rows])
        return {
            "hubs": {hub.name: one["incomingEventsPerSecond"] for hub, one in zip(shown, charts, strict=True)},
            "jobs": of_jobs,
        }

    return [desk.data("/sparklines.json", sparklines), *desk.page("/", "overview.html", load)]


def _comparable(value: Any) -> tuple[bool, Any]:
    """Return a value that can be compared with others of its column; unknown ones come first."""
    return value is not None, 0 if value is None else value


def _search(request: Request) -> str:
    return request.query_params.get("search", "").strip()[:100]


def _state(request: Request) -> str:
    return request.query_params.get("state", "")[:20]


def _health(storage: Storage) -> dict[str, Any]:
    """Return what the machine has left for the hub: disk, memory, and whether the store takes writes."""
    status = storage.status()
    free, size = status.free_bytes, status.size_bytes
    return {
        "diskFree": free,
        "diskTotal": size,
        "isDiskLow": free is not None and size is not None and free < size * _LITTLE_DISK,
        "memory": _resident_bytes(),
        "store": status.reason or "takes writes",
        "isStoreWell": status.is_writable,
    }


def _resident_bytes() -> int | None:
    """Return how much memory the hub's process holds, None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


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


def _with_rates(hubs: Sequence[EventHub], throughput: ThroughputCharts) -> list[dict[str, Any]]:
    return [hub_summary(hub) | {"eventsPerSecond": sum(map(throughput.rate, hub.partitions))} for hub in hubs]
