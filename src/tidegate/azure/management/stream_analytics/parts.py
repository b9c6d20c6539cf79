"""Inputs, outputs, functions and the transformation of a job as resources of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from tidegate.azure.management.access.requests import (
    GROUP,
    ArmAnswer,
    ArmError,
    ArmRequest,
    Operation,
    bad_request,
    resource_not_found,
)
from tidegate.azure.management.manager.resource_groups import DEFAULT_GROUP
from tidegate.azure.management.stream_analytics.document import (
    DEFAULT_TRANSFORMATION,
    DEFAULT_UNITS,
    PART_KINDS,
    etag_of_part,
    is_described,
    part_named,
    parts_of,
    read_part,
    read_transformation,
    shown,
    with_part,
    without_part,
)
from tidegate.azure.management.stream_analytics.engine_questions import ask, reach
from tidegate.azure.management.stream_analytics.store import JOBS, KIND, PROVIDER, JobStore, serving
from tidegate.service import JobResource

JOB_PATH = f"{GROUP}/providers/{PROVIDER}/{JOBS}/{{job}}"
_TRANSFORMATION = f"{JOB_PATH}/transformations/{{transformation}}"
_UNITS = (1, 3, 6, 12, 18, 24, 30, 36, 42, 48, 66, 96, 120, 192, 396)


class JobParts:
    """The parts of jobs."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    def operations(self) -> list[Operation]:
        """Return what is served."""
        found = [
            Operation("GET", _TRANSFORMATION, serving(self._show_transformation)),
            Operation("PUT", _TRANSFORMATION, serving(partial(self._put_transformation, is_patch=False))),
            Operation("PATCH", _TRANSFORMATION, serving(partial(self._put_transformation, is_patch=True))),
        ]
        for kind in PART_KINDS:
            path = f"{JOB_PATH}/{kind}/{{part}}"
            found += [
                Operation("GET", f"{JOB_PATH}/{kind}", serving(partial(self._list, kind))),
                Operation("GET", path, serving(partial(self._show, kind))),
                Operation("PUT", path, serving(partial(self._put, kind, is_patch=False))),
                Operation("PATCH", path, serving(partial(self._put, kind, is_patch=True))),
                Operation("DELETE", path, serving(partial(self._delete, kind))),
                Operation("POST", f"{path}/test", serving(partial(self._test, kind))),
            ]
        function = f"{JOB_PATH}/functions/{{part}}/retrieveDefaultDefinition"
        return [*found, Operation("POST", function, serving(_default_definition))]

    # -- inputs, outputs and functions

    def _list(self, kind: str, request: ArmRequest) -> ArmAnswer:
        job = self._store.job(request)
        found = [part_resource(request, job, kind, part) for part in described(job, kind)]
        return ArmAnswer(body={"value": found})

    def _show(self, kind: str, request: ArmRequest) -> ArmAnswer:
        job = self._store.job(request)
        return _answer(request, job, kind, self._part(request, job, kind))

    def _put(self, kind: str, request: ArmRequest, *, is_patch: bool) -> ArmAnswer:
        name = request.names["part"]
        job = self._store.job(request)
        is_new = part_named({kind: described(job, kind)}, kind, name) is None
        if is_new and is_patch:
            raise resource_not_found(f"{KIND}/{kind}", name, request.group)

        def change(document: dict[str, Any]) -> Mapping[str, Any]:
            former = part_named(document, kind, name)
            return with_part(document, kind, read_part(kind, name, request.body, former, is_patch=is_patch))

        job = self._store.edit(request, change)
        answer = _answer(request, job, kind, self._part(request, job, kind))
        return ArmAnswer(201 if is_new else 200, answer.body, answer.headers)

    def _delete(self, kind: str, request: ArmRequest) -> ArmAnswer:
        name = request.names["part"]
        job = self._store.job(request)
        if part_named({kind: described(job, kind)}, kind, name) is None:
            return ArmAnswer(204)
        self._store.edit(request, lambda document: without_part(document, kind, name))
        return ArmAnswer()

    def _part(self, request: ArmRequest, job: JobResource, kind: str) -> dict[str, Any]:
        name = request.names["part"]
        part = part_named({kind: described(job, kind)}, kind, name)
        if part is None:
            raise resource_not_found(f"{KIND}/{kind}", name, request.group)
        return part

    def _test(self, kind: str, request: ArmRequest) -> ArmAnswer:
        """Try to reach what an input or output names: the one that is kept, or the one that is sent."""
        # it loads the engine, which a hub without jobs must not pay for
        from tidegate.azure.management.stream_analytics.job_file import definition_of_document

        job, name = self._store.job(request), request.names["part"]
        former = part_named(self._store.jobs.document(job.name).arm, kind, name)
        if former is None and not request.body:
            raise resource_not_found(f"{KIND}/{kind}", name, request.group)
        try:
            if request.body or former is None:
                former = read_part(kind, name, request.body, former, is_patch=former is not None)
            made = definition_of_document(
                {"properties": {}, kind: [former]}, self._store.hubs.connection_string, self._store.output_folder
            )
            section = made[kind][former["name"]]
            ask({"ask": "section", "kind": kind, "name": former["name"], "settings": section, "load": True})
            if kind != "functions":
                with self._store.hubs.address_policy().in_force():
                    reach(section, is_input=kind == "inputs")
        except ArmError as error:
            return ArmAnswer(body={"status": "TestFailed", "error": {"code": error.code, "message": error.message}})
        return ArmAnswer(body={"status": "TestSucceeded"})

    # -- the transformation

    def _show_transformation(self, request: ArmRequest) -> ArmAnswer:
        job = self._store.job(request)
        found = transformation_resource(request, job)
        if found is None or found["name"].lower() != request.names["transformation"].lower():
            raise resource_not_found(f"{KIND}/transformations", request.names["transformation"], request.group)
        return _tagged(ArmAnswer(body=found))

    def _put_transformation(self, request: ArmRequest, *, is_patch: bool) -> ArmAnswer:
        name = request.names["transformation"]
        before = transformation_resource(request, self._store.job(request))

        def change(document: dict[str, Any]) -> Mapping[str, Any]:
            former = document.get("transformation", {})
            is_another = former.get("name", "").lower() != name.lower()
            if is_patch and is_another:
                raise resource_not_found(f"{KIND}/transformations", name, request.group)
            if is_another and former.get("properties", {}).get("query"):
                raise bad_request(
                    f"the transformation '{name}' cannot be created: a streaming job has one, and this one has "
                    f"'{former['name']}', which a PUT or PATCH of that name changes",
                    target="transformation",
                )
            return {**document, "transformation": read_transformation(name, request.body, former, is_patch=is_patch)}

        job = self._store.edit(request, change)
        return _tagged(ArmAnswer(201 if before is None else 200, transformation_resource(request, job)))


def described(job: JobResource, kind: str) -> list[dict[str, Any]]:
    """Return the parts of a job; of one that was not made by this API, what its job file says."""
    if is_described(job.arm):
        return parts_of(job.arm, kind)
    sections = {"inputs": job.inputs, "outputs": job.outputs, "functions": job.functions}[kind]
    found = []
    for name, section in sections.items():
        settings = {key: value for key, value in section.items() if key != "type" and value is not None}
        datasource = {"type": f"Tidegate/{section.get('type', '')}", "properties": settings}
        is_reference = section.get("type") in ("reference", "sql_reference")
        stream = {"type": "Reference" if is_reference else "Stream"} if kind == "inputs" else {}
        found.append({"name": name, "properties": {**stream, "datasource": datasource}})
    return found


def job_id(request: ArmRequest, name: str) -> str:
    """Return the id of a job in the place of a request."""
    group = request.group or DEFAULT_GROUP
    return f"/subscriptions/{request.subscription}/resourceGroups/{group}/providers/{PROVIDER}/{JOBS}/{name}"


def part_resource(request: ArmRequest, job: JobResource, kind: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part as clients see it."""
    return {
        "id": f"{job_id(request, job.name)}/{kind}/{part['name']}",
        "name": part["name"],
        "type": f"{KIND}/{kind}",
        "properties": {**shown(part["properties"]), "etag": etag_of_part(part)},
    }


def transformation_resource(request: ArmRequest, job: JobResource) -> dict[str, Any] | None:
    """Return a job's transformation as clients see it, None if it has no query yet."""
    part = job.arm.get("transformation")
    if part is None and job.query is None:
        return None
    part = part or {"name": DEFAULT_TRANSFORMATION, "properties": {}}
    if job.query is not None:
        part = {**part, "properties": {**part["properties"], "query": job.query}}
    properties = {
        "streamingUnits": job.scale.streaming_units or DEFAULT_UNITS,
        "validStreamingUnits": list(_UNITS),
        **{key: value for key, value in part["properties"].items() if key == "query"},
        "etag": etag_of_part({**part, "units": job.scale.streaming_units}),
    }
    return {
        "id": f"{job_id(request, job.name)}/transformations/{part['name']}",
        "name": part["name"],
        "type": f"{KIND}/transformations",
        "properties": properties,
    }


def _answer(request: ArmRequest, job: JobResource, kind: str, part: Mapping[str, Any]) -> ArmAnswer:
    return _tagged(ArmAnswer(body=part_resource(request, job, kind, part)))


def _tagged(answer: ArmAnswer) -> ArmAnswer:
    """Give an answer the entity tag that is in its body, too."""
    return ArmAnswer(answer.status, answer.body, {**answer.headers, "ETag": f'"{answer.body["properties"]["etag"]}"'})


_SIGNATURE = re.compile(r"\bfunction\b\s*[\w$]*\s*\(([^)]*)\)|\(([^()]*)\)\s*=>")


def _default_definition(request: ArmRequest) -> ArmAnswer:
    """Answer with the function that a script defines: an argument of any type for each of its parameters."""
    body = request.body if isinstance(request.body, Mapping) else {}
    binding = str(body.get("bindingType", ""))
    retrieval = body.get("bindingRetrievalProperties")
    script = retrieval.get("script") if isinstance(retrieval, Mapping) else None
    if binding.lower() != "microsoft.streamanalytics/javascriptudf":
        raise bad_request(
            f"bindingType: the default definition of '{binding[:60]}' is known to its own service only; describe the "
            "inputs and the output of the function, or use Microsoft.StreamAnalytics/JavascriptUdf",
            target="bindingType",
        )
    found = _SIGNATURE.search(script) if isinstance(script, str) else None
    if found is None:
        raise bad_request(
            "bindingRetrievalProperties.script: expected a script with a function, such as function (a) { return a }",
            target="script",
        )
    arguments = [one.strip() for one in (found[1] or found[2] or "").split(",") if one.strip()]
    properties = {
        "type": "Scalar",
        "properties": {
            "inputs": [{"dataType": "any", "isConfigurationParameter": None} for _ in arguments],
            "output": {"dataType": "any"},
            "binding": {"type": "Microsoft.StreamAnalytics/JavascriptUdf", "properties": {"script": script}},
        },
    }
    return ArmAnswer(body={"name": request.names["part"], "properties": properties})
