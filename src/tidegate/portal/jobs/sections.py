"""Inputs, outputs and functions of a job in the portal: added, changed, removed, sampled and tried.

Their secrets are write-only: a page shows that there is one. A change that leaves a secret out keeps it, unless the
change would show it to another place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute

from tidegate.hub.errors import ArgumentError, NotFound
from tidegate.portal.jobs.changes import Change, Conflict, served
from tidegate.portal.jobs.workbench_client import WorkbenchClient
from tidegate.portal.web.handling import Desk, text_of
from tidegate.portal.web.sessions import Visitor, VisitorRole
from tidegate.service import JobDocument, Jobs
from tidegate.service.secrets import is_secret_of, says_where

KINDS = ("inputs", "outputs", "functions")
INPUT_TITLES: Mapping[str, str] = {
    "eventhub": "Event hub",
    "iothub": "IoT hub",
    "kafka": "Kafka topic",
    "files": "Files or blobs",
    "reference": "Reference data: a file",
    "sql_reference": "Reference data: a SQL query",
    "recorded": "Recorded log",
}
OUTPUT_TITLES: Mapping[str, str] = {
    "eventhub": "Event hub",
    "kafka": "Kafka topic",
    "file": "File",
    "files": "Files or blobs",
    "postgresql": "PostgreSQL table",
    "mysql": "MySQL table",
    "sqlserver": "SQL Server or Azure SQL table",
    "sqlite": "SQLite table",
    "deltalake": "Delta Lake table",
    "iceberg": "Iceberg table",
    "redis": "Redis",
    "cosmosdb": "Cosmos DB",
    "tablestorage": "Table storage",
    "servicebus": "Service Bus queue or topic",
    "powerbi": "Power BI",
    "webhook": "Azure Function or webhook",
    "console": "Console",
}
FUNCTION_TITLES: Mapping[str, str] = {
    "": "Python or JavaScript",
    "azureml": "Azure Machine Learning",
    "onnx": "ONNX model",
}
TITLES: Mapping[str, Mapping[str, str]] = {
    "inputs": INPUT_TITLES,
    "outputs": OUTPUT_TITLES,
    "functions": FUNCTION_TITLES,
}
"""What people call each kind, the usual ones first. A kind of another package is called by its type."""
MOST_ARGUMENTS = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")
_PATH = "/jobs/{job}/{kind}/{name}"


class SectionRoutes:
    """The handlers. Whoever names files, hosts and code decides what this machine does, so changes need an owner."""

    def __init__(
        self, desk: Desk, jobs: Jobs, workbench: WorkbenchClient, connection_string: Callable[[str], str]
    ) -> None:
        """`connection_string` returns one for a hub of this namespace; it raises NotFound."""
        self._desk = desk
        self._connection_string = connection_string
        self._jobs = jobs
        self._workbench = workbench

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        desk = self._desk
        return [
            desk.data("/job-kinds.json", served(self._kinds)),
            desk.data("/jobs/{job}/inputs/{name}/sample.json", served(self._input_sample)),
            desk.data("/jobs/{job}/outputs/{name}/sample.json", served(self._output_sample)),
            desk.action("/jobs/{job}/functions/{name}/try", served(self._try), VisitorRole.CONTRIBUTOR, ("arguments",)),
            desk.action(f"{_PATH}/delete", served(self._remove), VisitorRole.OWNER, ("etag",)),
            desk.action(f"{_PATH}/test", served(self._test), VisitorRole.OWNER, ("settings", "hub")),
            desk.action(_PATH, served(self._put), VisitorRole.OWNER, ("settings", "hub", "etag", "isNew")),
        ]

    # -- changing

    async def _kinds(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await self._workbench.ask("sections")
        hubs = self._desk.http.hub.namespace.event_hubs.values()
        return {
            **{kind: _in_order(found[kind], TITLES[kind]) for kind in KINDS},
            "hubs": [
                {"name": hub.name, "partitions": len(hub.partitions), "groups": list(hub.consumer_groups)}
                for hub in sorted(hubs, key=lambda hub: hub.name.lower())
            ],
        }

    def _settings(self, body: Any) -> dict[str, Any]:
        """Return the settings of a request; a hub of this namespace is named, and its key filled in here."""
        settings = body.get("settings") if isinstance(body, dict) else None
        if not isinstance(settings, dict):
            raise ArgumentError("settings: expected an object")
        hub = text_of(body, "hub")
        return {**settings, "connection_string": self._connection_string(hub)} if hub else settings

    async def _put(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        kind, name = _place(request)
        settings = self._settings(body)
        if not _NAME.fullmatch(name):
            raise ArgumentError(f"a name begins with a letter and has letters, digits, '-' and '_'; got {name[:40]!r}")
        former = self._jobs.document(request.path_params["job"]).definition.get(kind, {})
        is_new = body.get("isNew") is True
        _check_absent(kind, name, former, is_new=is_new)  # before the engine is asked, which may take seconds
        await self._workbench.ask("section", kind=kind, name=name, settings=_kept(settings, _of(former, name)))
        return await self._edit(request, with_section(kind, name, settings, is_new=is_new), body)

    async def _test(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        """Try to reach what a form names, saved or not."""
        kind, name = _place(request)
        if kind == "functions":
            raise ArgumentError("a function has no connection: save it, and try it with arguments")
        former = _of(self._jobs.document(request.path_params["job"]).definition.get(kind, {}), name)
        settings = _kept(self._settings(body), former)
        found: Mapping[str, Any] = await self._workbench.ask("reach", kind=kind, name=name, settings=settings)
        return found

    async def _remove(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        kind, name = _place(request)
        return await self._edit(request, with_section(kind, name, None), body)

    async def _edit(self, request: Request, change: Change, body: Any) -> Mapping[str, Any]:
        etag = text_of(body, "etag") or None
        job = await run_in_threadpool(lambda: self._jobs.edit(request.path_params["job"], change, etag=etag))
        return {"etag": job.etag, "state": job.state.value}

    # -- samples

    def _definition(self, request: Request) -> dict[str, Any]:
        """Return the job's definition with its secrets, for the workbench only."""
        name = request.path_params["job"]
        state = str(self._jobs.state_folder(name))
        return {**self._jobs.document(name).definition, "name": name, "state_dir": state}

    async def _input_sample(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        definition, name = self._definition(request), request.path_params["name"]
        if _of(definition.get("inputs", {}), name) is None:
            raise NotFound(f"the job has no input {name!r}")
        try:
            found: Mapping[str, Any] = await self._workbench.ask("sample", definition=definition, input=name)
        except ArgumentError as error:
            if "preview" not in request.query_params:
                raise
            return {"events": [], "problem": error.description}  # nobody asked: the page shows it beside the query
        return found

    async def _output_sample(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        name = request.path_params["name"]
        job = self._jobs.show(request.path_params["job"])
        if _of(job.outputs, name) is None:
            raise NotFound(f"the job has no output {name!r}")
        return {"rows": list(_of(self._jobs.output_samples(job.name), name) or ())}

    async def _try(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        definition, name = self._definition(request), request.path_params["name"]
        section = _of(definition.get("functions", {}), name)
        if section is None:
            raise NotFound(f"the job has no function {name!r}")
        arguments = body.get("arguments") if isinstance(body, dict) else None
        if not isinstance(arguments, list) or len(arguments) > MOST_ARGUMENTS:
            raise ArgumentError(f"arguments: expected a list of at most {MOST_ARGUMENTS} values")
        found = await self._workbench.ask("test", **_call(definition, name, section, arguments))
        rows = found["outputs"][0]["rows"] if found["outputs"] else []
        errors = [one["message"] for one in found["dataErrors"]]
        return {"result": rows[0]["row"].get("result") if rows else None, "errors": errors}


def with_section(kind: str, name: str, settings: Mapping[str, Any] | None, *, is_new: bool = False) -> Change:
    """Return the change that gives a job an input, output or function, or takes it away with None.

    Args:
        kind: inputs, outputs or functions.
        name: Its name, in any case.
        settings: Its settings.
        is_new: Whether there must be none of the name yet.

    Raises:
        Conflict: the management API described it, and would describe it again; or there is one, and `is_new`.
        NotFound: there is none to take away.
    """

    def change(document: JobDocument) -> JobDocument:
        described = {str(part.get("name", "")).lower() for part in document.arm.get(kind, ())}
        if name.lower() in described:
            raise Conflict(f"{name} was described through the management API: change it there")
        sections = dict(document.definition.get(kind, {}))
        _check_absent(kind, name, sections, is_new=is_new)
        key = next((one for one in sections if one.lower() == name.lower()), name)
        if settings is not None:
            sections[key] = _kept(settings, sections.get(key))
        elif key in sections:
            del sections[key]
        else:
            raise NotFound(f"the job has no {kind[:-1]} {name!r}")
        return replace(document, definition={**document.definition, kind: sections})

    return change


def _check_absent(kind: str, name: str, sections: Mapping[str, Any], *, is_new: bool) -> None:
    if is_new and _of(sections, name) is not None:
        raise Conflict(f"the job's {kind} have {name!r} already: edit it, or choose another name")


def _in_order(kinds: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return kinds with their titles, the usual ones first."""
    places = {kind: at for at, kind in enumerate(titles)}
    found = [{**one, "title": titles.get(one["type"], one["type"])} for one in kinds]
    return sorted(found, key=lambda one: (places.get(one["type"], len(places)), one["type"]))


def _place(request: Request) -> tuple[str, str]:
    kind, name = request.path_params["kind"], request.path_params["name"]
    if kind not in KINDS:
        raise NotFound(f"a job has {', '.join(KINDS)}, and no {kind[:40]!r}")
    return kind, name


def _of(sections: Mapping[str, Any], name: str) -> Any:
    return next((section for key, section in sections.items() if key.lower() == name.lower()), None)


def _kept(settings: Mapping[str, Any], former: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return settings in which null is the former secret. Raises ArgumentError if another place would get it."""
    former = former or {}
    kept = {key: value for key, value in settings.items() if value is not None}
    moved = {one for one in {*former, *kept} if _says_where(kept, one) and former.get(one) != kept.get(one)}
    if former.get("type") != kept.get("type"):
        moved.add("type")
    for key, value in settings.items():
        before = former.get(key)
        if not is_secret_of(former, key) or not before:
            continue
        filled = before if value is None else value
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            filled = {name: before.get(name) if one is None else one for name, one in value.items()}
        if filled != value and moved:
            what = ", ".join(sorted(moved))
            raise ArgumentError(f"enter {key} again: it was given for another place, and {what} has changed")
        kept[key] = filled
    return kept


def _says_where(section: Mapping[str, Any], name: str) -> bool:
    return says_where(name) and not is_secret_of(section, name)


def _call(definition: Mapping[str, Any], name: str, section: Mapping[str, Any], arguments: list[Any]) -> dict[str, Any]:
    """Return the question that calls a function: once with the arguments, or an aggregate over them."""
    if section.get("aggregate"):
        query = f"SELECT uda.[{name}](a0) AS result INTO [output] FROM [input] GROUP BY TumblingWindow(second, 1)"
        events = [{"a0": argument} for argument in arguments]
    else:
        columns = {f"a{at}": argument for at, argument in enumerate(arguments)}
        query = f"SELECT udf.[{name}]({', '.join(columns)}) AS result INTO [output] FROM [input]"
        events = [columns]
    tried = {
        "name": "tried",
        "query": query,
        "functions": definition["functions"],
        "compatibility_level": definition.get("compatibility_level", "1.2"),
        "inputs": {"input": {"type": "recorded", "path": "/dev/null"}},
        "outputs": {"output": {"type": "console"}},
        "state_dir": definition["state_dir"],
    }
    bodies = "\n".join(json.dumps({"body": event}) for event in events)
    return {"definition": tried, "uploaded": {"input": bodies}}
