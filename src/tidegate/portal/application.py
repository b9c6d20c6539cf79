"""The portal as a group of routes for the server's HTTP ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidegate.hub.errors import NotFound
from tidegate.portal.jobs.descriptions import JobRows
from tidegate.portal.jobs.history import input_rates
from tidegate.portal.jobs.pages import JobPages
from tidegate.portal.pages.event_hub import EventHubPages
from tidegate.portal.pages.explorer import ExplorerPages
from tidegate.portal.pages.namespace import NamespacePages, TagStore
from tidegate.portal.pages.overview import overview_routes
from tidegate.portal.pages.schemas import SchemaPages
from tidegate.portal.pages.sign_in import sign_in_routes
from tidegate.portal.pages.throughput import ThroughputCharts
from tidegate.portal.web.handling import Desk
from tidegate.portal.web.rendering import PREFIX, compile_templates, serve_asset
from tidegate.portal.web.sessions import Sessions
from tidegate.server.http.routing import HttpContext, RouteGroup
from tidegate.service import Jobs


def portal(jobs: Jobs | None = None, tags: TagStore | None = None) -> RouteGroup:
    """Return the portal, to be given to a server as one of its `further_routes`.

    Args:
        jobs: what it shows beside the hub, if there is a service of jobs.
        tags: keeps the tags of the namespace; without it, the page of the namespace has none.
    """
    desks: list[Desk] = []
    ends: list[Callable[[], Awaitable[None]]] = []

    def missing(request: Request) -> Response:
        return desks[-1].refusal(request, None, NotFound(f"there is no page {request.url.path[:200]}"))

    async def end() -> None:
        await asyncio.gather(*(one() for one in ends))
        ends.clear()

    def build(context: HttpContext) -> Sequence[BaseRoute]:
        namespace = context.hub.namespace
        desk = Desk(context, Sessions(lambda: namespace.access))
        desks.append(desk)
        asyncio.get_running_loop().run_in_executor(None, compile_templates)
        throughput = ThroughputCharts(context.hub.metrics.deliveries)
        pages = None if jobs is None else JobPages(desk, jobs, throughput.rate, time.time)
        explorer = ExplorerPages(desk, time.time, None if pages is None else pages.decode)
        ends.append(explorer.end)
        if pages is not None:
            ends.append(pages.end)
        return [
            Route(f"{PREFIX}{{digest}}/{{name}}", serve_asset),
            *sign_in_routes(desk),
            *NamespacePages(desk, tags).routes(),
            *explorer.routes(),
            *EventHubPages(desk, throughput).routes(),
            *SchemaPages(desk).routes(),
            *([] if pages is None else pages.routes()),
            *overview_routes(desk, throughput, None if jobs is None else _rows(jobs)),
        ]

    return RouteGroup(build=build, missing=missing, end=end)


def _rows(jobs: Jobs) -> JobRows:
    return JobRows(jobs, lambda name: input_rates(jobs, name, time.time()))
