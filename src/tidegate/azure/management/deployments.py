"""Microsoft.Resources/deployments: templates that are validated and deployed into a resource group.

A deployment makes its resources one after the other, through the same operations that clients call, with the rights of
the caller. It is done when its request is answered; clients that poll see it in the operation's status.
"""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tidegate.azure.management.access.requests import (
    GROUP,
    ArmAnswer,
    ArmError,
    ArmRequest,
    Operation,
    Payload,
    PrincipalRole,
    bad_request,
    read_payload,
)
from tidegate.azure.management.access.tokens import DEFAULT_TENANT
from tidegate.azure.management.manager.resource_groups import ResourceGroups, subscription_resource, time_text
from tidegate.azure.management.manager.resource_manager import ResourceKind
from tidegate.azure.management.manager.state import DeploymentRecord
from tidegate.azure.templates import DEPLOYMENTS, Runtime
from tidegate.azure.templates.process import MAX_LINE_BYTES, PROCESSOR_S

TIMEOUT_S = 60.0
"""For one answer of the process, which has `PROCESSOR_S` of its processor for all."""
_MODULE = "tidegate.azure.templates.process"


@dataclass(frozen=True, slots=True)
class DeployedResource:
    """One resource of a template.

    Attributes:
        number: its place in the order in which they are made.
        resource_id: where it will be.
        kind: its full type.
        api_version: the version that it is written for.
    """

    number: int
    resource_id: str
    kind: str
    api_version: str


class ExpandedTemplate:
    """A template and the process that expands it, which ends with `close`."""

    def __init__(
        self,
        content: Mapping[str, Any],
        parameters: Mapping[str, Any] | None,
        constants: Mapping[str, Any],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Raises ArmError for a template that means nothing, or too much."""
        self._timeout_s = timeout_s
        self._process = subprocess.Popen([sys.executable, "-m", _MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            found = self._ask({"template": content, "parameters": parameters, "constants": constants})
        except BaseException:
            self.close()
            raise
        self.head: Mapping[str, Any] = found["head"]
        """The template's hash, and its parameters without secrets."""
        self.symbols: Mapping[str, str] = found["symbols"]
        """The ids of its resources, by their names and symbolic names in lower case."""
        self.resources = [
            DeployedResource(number, one["id"], one["kind"], one["version"])
            for number, one in enumerate(found["resources"])
        ]

    def body(self, resource: DeployedResource, runtime: Runtime) -> dict[str, Any]:
        """Return what is sent to make a resource. Raises ArmError."""
        found: dict[str, Any] = self._answer({"body": resource.number}, runtime)
        return found

    def outputs(self, runtime: Runtime) -> dict[str, Any]:
        """Return the outputs, without secrets. Raises ArmError."""
        found: dict[str, Any] = self._answer({"outputs": True}, runtime)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with suppress(OSError):
            self._process.communicate()

    def _answer(self, question: Mapping[str, Any], runtime: Runtime) -> Any:
        answered = self._ask(question)
        while "call" in answered:
            function, arguments = answered["call"]
            answered = self._ask({"value": runtime(function, arguments)})
        return answered["answer"]

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(self._timeout_s, self._process.kill)
        watch.daemon = True
        watch.start()
        line = b""
        try:
            self._process.stdin.write(json.dumps(question).encode("ascii") + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline(MAX_LINE_BYTES)
        except OSError:
            pass  # it has ended, which an answer that is not whole says
        finally:
            watch.cancel()
        if not line.endswith(b"\n"):
            raise invalid_template(f"it takes more than {PROCESSOR_S} s to expand; make it smaller")
        answered: dict[str, Any] = json.loads(line)
        if "problem" in answered:
            raise invalid_template(answered["problem"])
        return answered


def invalid_template(message: str) -> ArmError:
    """Return the refusal of a template."""
    return ArmError(400, "InvalidTemplate", f"Deployment template validation failed: '{message}'.")


MAX_NESTED = 5
MAX_RESOURCES = 2000
"""Of a deployment with those nested in it, each of which may have 800."""
MOST_AT_ONCE = 4
"""Deployments: each expands its template in a process of its own."""
API_VERSIONS = ("2024-11-01", "2024-03-01", "2022-09-01", "2021-04-01", "2020-10-01", "2019-10-01", "2018-05-01")
_PATH = f"{GROUP}/providers/{DEPLOYMENTS}/{{deployment}}"
_SLOT_TIMEOUT_S = 5.0
_logger = logging.getLogger(__name__)

Perform = Callable[[ArmRequest], ArmAnswer]


class DeploymentProperties(Payload):
    """What is deployed, and how."""

    mode: str = "Incremental"
    template: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None
    template_link: dict[str, Any] | None = None
    parameters_link: dict[str, Any] | None = None


class DeploymentPayload(Payload):
    """A deployment as clients send it."""

    properties: DeploymentProperties
    tags: dict[str, str] | None = None


_KINDS = (
    ("Microsoft.EventHub", "namespaces", "2024-01-01"),
    ("Microsoft.EventHub", "namespaces/eventhubs", "2024-01-01"),
    ("Microsoft.EventHub", "namespaces/eventhubs/consumergroups", "2024-01-01"),
    ("Microsoft.StreamAnalytics", "streamingjobs", "2020-03-01"),
)
"""What an export holds, with the version of the API that its templates are written for."""
_OF_THE_SERVICE = frozenset(
    (
        *("partitionIds", "createdAt", "updatedAt", "status", "provisioningState", "jobState", "jobId", "createdDate"),
        *("lastOutputEventTime", "outputStartTime", "metricId", "serviceBusEndpoint", "privateEndpointConnections"),
        *("etag", "diagnostics", "kafkaEnabled", "maxMessageSizeInBytes", "messageRetentionInDays"),
    )
)
"""Properties that the service sets, which a template does not name."""


def _exported(resource: Mapping[str, Any], parents: Sequence[str]) -> dict[str, Any]:
    """Return a resource as a template declares it, below its parents."""
    provider, kind, version = next(one for one in _KINDS if f"{one[0]}/{one[1]}".lower() == resource["type"].lower())
    found = {
        "type": f"{provider}/{kind}",
        "apiVersion": version,
        "name": "/".join([*parents, resource["name"]]),
        **{key: resource[key] for key in ("location", "tags", "sku") if resource.get(key)},
        "properties": _settable(resource.get("properties", {})),
    }
    if parents:
        above = "/".join([provider, *kind.split("/")[: len(parents)]])
        names = ", ".join(f"'{name}'" for name in parents)
        found["dependsOn"] = [f"[resourceId('{above}', {names})]"]
    return found


def _settable(value: Any) -> Any:
    """Return what of a resource's properties its creator may set."""
    if isinstance(value, Mapping):
        is_part = "id" in value and "properties" in value
        kept = {key: value[key] for key in ("name", "properties") if key in value} if is_part else value
        return {key: _settable(one) for key, one in kept.items() if key not in _OF_THE_SERVICE and one is not None}
    return [_settable(one) for one in value] if isinstance(value, list) else value


class Deployments:
    """Validates, makes and remembers deployments. `perform` is set once the operations of all providers are known."""

    namespace = "Microsoft.Resources"
    kinds: Sequence[ResourceKind] = tuple(
        ResourceKind(name, API_VERSIONS) for name in ("deployments", "resourceGroups")
    )

    def __init__(self, resource_groups: ResourceGroups) -> None:
        self._resource_groups = resource_groups
        self.perform: Perform = _not_ready
        self._slots = threading.Semaphore(MOST_AT_ONCE)
        self._nesting = _Nesting()

    def operations(self) -> Sequence[Operation]:
        return [
            Operation("GET", f"{GROUP}/providers/{DEPLOYMENTS}", self._list),
            Operation("POST", f"{GROUP}/exportTemplate", self._export),
            Operation("GET", _PATH, self._show),
            Operation("PUT", _PATH, self._put),
            Operation("DELETE", _PATH, self._delete),
            Operation("POST", f"{_PATH}/validate", self._validate),
            Operation("POST", f"{_PATH}/whatIf", _no_what_if),
            Operation("GET", f"{_PATH}/operationStatuses/{{operation}}", self._status),
            Operation("GET", f"{_PATH}/operations", self._operations),
            # the Azure CLI asks for them at their former place
            Operation("GET", f"{GROUP}/deployments/{{deployment}}/operations", self._operations),
        ]

    def top_level(self, subscription: str, group: str) -> Sequence[dict[str, Any]]:
        return ()

    def delete_group(self, group: str) -> None:
        """The group's record goes with its deployments."""

    def _list(self, request: ArmRequest) -> ArmAnswer:
        key = request.group.lower()
        found = [_shown(one, request.role) for one in self._resource_groups.deployments() if one.group.lower() == key]
        return ArmAnswer(body={"value": found})

    def _show(self, request: ArmRequest) -> ArmAnswer:
        return ArmAnswer(body=_shown(self._record(request), request.role))

    def _delete(self, request: ArmRequest) -> ArmAnswer:
        try:
            record = self._record(request)
        except ArmError:
            return ArmAnswer(204)
        self._resource_groups.drop_deployment(record)
        return ArmAnswer(204)

    def _export(self, request: ArmRequest) -> ArmAnswer:
        """Answer with a template that makes the group's resources; secrets are left out of it."""
        asked = request.body.get("resources", ["*"]) if isinstance(request.body, Mapping) else ["*"]
        wanted = [str(one).lower() for one in asked] if isinstance(asked, list) else ["*"]

        def is_wanted(resource: Mapping[str, Any]) -> bool:
            return "*" in wanted or any(resource["id"].lower().startswith(one) for one in wanted)

        base = f"/subscriptions/{request.subscription}/resourceGroups/{request.group}/providers"
        resources: list[dict[str, Any]] = []
        for namespace in self._got(request, f"{base}/Microsoft.EventHub/namespaces"):
            resources += [_exported(namespace, [])] if is_wanted(namespace) else []
            for hub in self._got(request, f"{namespace['id']}/eventhubs"):
                if is_wanted(hub):
                    resources.append(_exported(hub, [namespace["name"]]))
                    groups = self._got(request, f"{hub['id']}/consumergroups")
                    own = [one for one in groups if one["name"] != "$Default"]
                    resources += [_exported(one, [namespace["name"], hub["name"]]) for one in own]
        jobs = self._got(request, f"{base}/Microsoft.StreamAnalytics/streamingjobs")
        resources += [_exported(job, []) for job in jobs if is_wanted(job)]
        template = {
            "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
            "contentVersion": "1.0.0.0",
            "parameters": {},
            "variables": {},
            "resources": resources,
        }
        return ArmAnswer(body={"template": template})

    def _got(self, request: ArmRequest, path: str) -> list[dict[str, Any]]:
        """Return what a list of the API answers; nothing if it is not served."""
        query = {"api-version": "2024-01-01", "$expand": "inputs,outputs,functions,transformation"}
        asked = replace(request, method="GET", path=path, names={}, query=query, body=None)
        with suppress(ArmError):
            return list((self.perform(asked).body or {}).get("value", []))
        return []

    def _status(self, request: ArmRequest) -> ArmAnswer:
        properties = _shown(self._record(request), request.role)["properties"]
        body = {"status": properties["provisioningState"]}
        return ArmAnswer(body={**body, "error": properties["error"]} if "error" in properties else body)

    def _operations(self, request: ArmRequest) -> ArmAnswer:
        return ArmAnswer(body={"value": _shown_operations(self._record(request), request.role)})

    def _record(self, request: ArmRequest) -> DeploymentRecord:
        record = self._resource_groups.deployment(request.group, request.names["deployment"])
        if record is None:
            name = request.names["deployment"]
            raise ArmError(404, "DeploymentNotFound", f"Deployment '{name[:100]}' could not be found.")
        return record

    # -- making one

    def _validate(self, request: ArmRequest) -> ArmAnswer:
        with self._expanded(request) as (_payload, template):
            for resource in template.resources:
                self.perform(_dry(self._request(request, resource)))
            properties = {
                **_head(template),
                "provisioningState": "Succeeded",
                "validatedResources": [{"id": resource.resource_id} for resource in template.resources],
            }
        return ArmAnswer(body=self._resource(request, properties))

    def _put(self, request: ArmRequest) -> ArmAnswer:
        with self._expanded(request) as (payload, template):
            return self._deployed(request, payload, template)

    def _deployed(self, request: ArmRequest, payload: DeploymentPayload, template: ExpandedTemplate) -> ArmAnswer:
        """Make what a template means, and return the answer to the request for it."""
        began, start_s = datetime.now(UTC), time.monotonic()
        done: list[dict[str, Any]] = []
        properties = {**_head(template), "timestamp": time_text(began), "correlationId": str(uuid.uuid4())}
        try:
            outputs = self._deploy(request, template, done)
        except ArmError as error:
            _logger.warning("the deployment %r of %r failed: %s", request.names["deployment"], request.who, error)
            failed = ArmError(
                error.status,
                "DeploymentFailed",
                "At least one resource deployment operation failed. Please list deployment operations for details.",
                details=[error],
            )
            properties |= {"provisioningState": "Failed", "error": failed.body()}
        else:
            properties |= {
                "provisioningState": "Succeeded",
                "outputs": outputs,
                "outputResources": [{"id": resource.resource_id} for resource in template.resources],
            }
        properties["duration"] = f"PT{time.monotonic() - start_s:.3f}S"
        body = self._resource(request, properties)
        if payload.tags:
            body["tags"] = payload.tags
        is_new = self._resource_groups.deployment(request.group, request.names["deployment"]) is None
        record = DeploymentRecord(
            name=request.names["deployment"],
            group=request.group,
            resource=body,
            operations=tuple(done),
            shown_to=self._nesting.shown_to,
        )
        self._resource_groups.put_deployment(record)
        version = request.query.get("api-version", API_VERSIONS[0])
        location = (
            f"{request.base_url}{body['id']}/operationStatuses/{properties['correlationId']}?api-version={version}"
        )
        accepted = {**body, "properties": {**properties, "provisioningState": "Accepted"}}
        return ArmAnswer(201 if is_new else 200, accepted, {"Azure-AsyncOperation": location, "Retry-After": "1"})

    @contextmanager
    def _expanded(self, request: ArmRequest) -> Iterator[tuple[DeploymentPayload, ExpandedTemplate]]:
        """Yield what a request deploys. Raises ArmError."""
        nesting = self._nesting
        if nesting.depth >= MAX_NESTED:
            raise invalid_template(f"deployments are nested at most {MAX_NESTED} deep")
        is_outermost = nesting.depth == 0
        if is_outermost:
            nesting.shown_to = PrincipalRole.READER
        if is_outermost and not self._slots.acquire(timeout=_SLOT_TIMEOUT_S):
            raise ArmError(429, "TooManyRequests", "too many deployments are running", headers={"Retry-After": "5"})
        nesting.depth += 1
        try:
            payload = self._read(request)
            template = ExpandedTemplate(
                payload.properties.template or {}, payload.properties.parameters, self._constants(request)
            )
            try:
                nesting.resources += len(template.resources)
                if nesting.resources > MAX_RESOURCES:
                    raise invalid_template(f"with nested deployments it has more than {MAX_RESOURCES} resources")
                yield payload, template
            finally:
                template.close()
        finally:
            nesting.depth -= 1
            if is_outermost:
                nesting.resources = 0
                self._slots.release()

    def _read(self, request: ArmRequest) -> DeploymentPayload:
        """Return a request's body. Raises ArmError."""
        payload = read_payload(DeploymentPayload, request.body)
        properties = payload.properties
        if properties.template_link is not None or properties.parameters_link is not None:
            raise bad_request("linked templates and parameters are not fetched: send them", "InvalidTemplate")
        if properties.template is None:
            raise bad_request("properties.template is missing", "InvalidTemplateDeployment")
        if properties.mode.lower() != "incremental":
            raise bad_request("the mode Complete, which deletes resources, is not supported; use Incremental")
        return payload

    def _constants(self, request: ArmRequest) -> dict[str, Any]:
        group = self._resource_groups.groups.get(request.group.lower())
        group_id = f"/subscriptions/{request.subscription}/resourceGroups/{request.group}"
        return {
            "resourcegroup": {
                "id": group_id,
                "name": request.group,
                "type": "Microsoft.Resources/resourceGroups",
                "location": self._resource_groups.location(request.group),
                "tags": {} if group is None else group.tags,
                "properties": {"provisioningState": "Succeeded"},
            },
            "subscription": subscription_resource(request.subscription),
            "tenant": {"tenantId": DEFAULT_TENANT, "displayName": "Tidegate"},
            "deployment": {"name": request.names["deployment"], "properties": {"mode": "Incremental"}},
            "environment": {
                "name": "Tidegate",
                "resourceManager": f"{request.base_url}/",
                "portal": f"{request.base_url}/",
                "authentication": {"loginEndpoint": f"{request.base_url}/adfs/", "audiences": [request.base_url]},
                "suffixes": {"storage": "core.windows.net"},
            },
        }

    def _deploy(self, request: ArmRequest, template: ExpandedTemplate, done: list[dict[str, Any]]) -> dict[str, Any]:
        """Make the resources and return the outputs. Raises ArmError for the first that cannot be made."""
        runtime = self._runtime(request, template)
        for resource in template.resources:
            made = self._request(request, resource, template.body(resource, runtime))
            try:
                answer = self.perform(made)
                self._check_nested(answer)
            except ArmError as error:
                done.append(_operation(request, resource, error))
                raise
            done.append(_operation(request, resource, None))
        return template.outputs(runtime)

    def _check_nested(self, answer: ArmAnswer) -> None:
        """Raise ArmError for a nested deployment that failed."""
        body = answer.body
        error = body.get("properties", {}).get("error") if isinstance(body, dict) else None
        if isinstance(error, dict) and error.get("code") == "DeploymentFailed":
            inner = (error.get("details") or [error])[0]
            raise ArmError(409, str(inner["code"]), str(inner["message"]))

    def _request(self, request: ArmRequest, resource: DeployedResource, body: Any = None) -> ArmRequest:
        return ArmRequest(
            method="PUT",
            path=resource.resource_id,
            query={"api-version": resource.api_version},
            body=body,
            base_url=request.base_url,
            who=request.who,
            role=request.role,
        )

    def _runtime(self, request: ArmRequest, template: ExpandedTemplate) -> Runtime:
        """Return what evaluates `reference` and `listKeys`: requests with the rights of the caller."""

        def evaluate(function: str, arguments: list[Any]) -> Any:
            if not arguments or not isinstance(arguments[0], str):
                raise invalid_template(f"the template function '{function}' takes the id of a resource")
            path = template.symbols.get(arguments[0].lower(), arguments[0])
            if not path.lower().startswith("/subscriptions/"):
                place = f"/subscriptions/{request.subscription}/resourceGroups/{request.group}"
                path = f"{place}/providers/{path.removeprefix('/providers/')}"
            is_list = function != "reference"
            asked = ArmRequest(
                method="POST" if is_list else "GET",
                path=f"{path}/{function}" if is_list else path,
                query={"api-version": arguments[1] if len(arguments) > 1 else API_VERSIONS[0]},
                body=arguments[2] if len(arguments) > 2 and is_list else None,
                base_url=request.base_url,
                who=request.who,
                role=request.role,
            )
            body = self.perform(asked).body
            self._note(self._least_role(asked) if is_list else self._shown_to_of(path))
            is_full = len(arguments) > 2 and str(arguments[2]).lower() == "full"
            return body if is_list or is_full or not isinstance(body, dict) else body.get("properties", {})

        return evaluate

    def _least_role(self, asked: ArmRequest) -> PrincipalRole:
        """Return the least role that may ask for keys as a template has done."""
        try:
            self.perform(replace(asked, role=PrincipalRole.CONTRIBUTOR, is_dry=True))
        except ArmError:
            return PrincipalRole.OWNER
        return PrincipalRole.CONTRIBUTOR

    def _shown_to_of(self, path: str) -> PrincipalRole:
        """Return the least role that sees all of what a template refers to: of deployments, their outputs."""
        segments = path.strip("/").lower().split("/")
        if segments[-3:-1] != DEPLOYMENTS.lower().split("/") or len(segments) < 8:
            return PrincipalRole.READER
        record = self._resource_groups.deployment(segments[3], segments[-1])
        return PrincipalRole.READER if record is None else record.shown_to

    def _note(self, role: PrincipalRole) -> None:
        """Note that what is being deployed has read what only this role may read."""
        if not self._nesting.shown_to.includes(role):
            self._nesting.shown_to = role

    def _resource(self, request: ArmRequest, properties: Mapping[str, Any]) -> dict[str, Any]:
        name = request.names["deployment"]
        group = f"/subscriptions/{request.subscription}/resourceGroups/{request.group}"
        return {
            "id": f"{group}/providers/{DEPLOYMENTS}/{name}",
            "name": name,
            "type": DEPLOYMENTS,
            "properties": dict(properties),
        }


class _Nesting(threading.local):
    """Of the deployment that a thread makes: how deep it is, and how many resources it has with those nested in it."""

    depth = 0
    resources = 0
    shown_to = PrincipalRole.READER
    """The least role that may see all that the deployment has read."""


def _head(template: ExpandedTemplate) -> dict[str, Any]:
    return {**template.head, "mode": "Incremental"}


def _shown(record: DeploymentRecord, role: PrincipalRole) -> dict[str, Any]:
    """Return a deployment as a role sees it: without values that may be keys which the role may not list."""
    if role.includes(record.shown_to):
        return record.resource
    properties = record.resource["properties"]
    kept = {name: value for name, value in properties.items() if name not in ("outputs", "parameters")}
    if "error" in kept:  # its details may repeat a value
        kept["error"] = {name: value for name, value in kept["error"].items() if name != "details"}
    return {**record.resource, "properties": kept}


def _shown_operations(record: DeploymentRecord, role: PrincipalRole) -> list[dict[str, Any]]:
    """Return the operations of a deployment as a role sees them: likewise without the reasons of a failure."""
    if role.includes(record.shown_to):
        return list(record.operations)
    return [
        {**one, "properties": {name: value for name, value in one["properties"].items() if name != "statusMessage"}}
        for one in record.operations
    ]


def _operation(request: ArmRequest, resource: DeployedResource, error: ArmError | None) -> dict[str, Any]:
    """Return the record of one resource that was made, or not."""
    number = hashlib.sha256(resource.resource_id.lower().encode("utf-8", "surrogatepass")).hexdigest()[:16].upper()
    target = {
        "id": resource.resource_id,
        "resourceType": resource.kind,
        "resourceName": resource.resource_id.rpartition("/")[2],
    }
    properties: dict[str, Any] = {
        "provisioningOperation": "Create",
        "provisioningState": "Succeeded" if error is None else "Failed",
        "timestamp": time_text(datetime.now(UTC)),
        "statusCode": "OK" if error is None else str(error.status),
        "targetResource": target,
    }
    if error is not None:
        properties["statusMessage"] = {"error": error.body()}
    return {"id": f"{request.path}/operations/{number}", "operationId": number, "properties": properties}


def _dry(request: ArmRequest) -> ArmRequest:
    """Return a request that only asks whether it would be allowed."""
    return ArmRequest(
        method="PUT", path=request.path, base_url=request.base_url, who=request.who, role=request.role, is_dry=True
    )


def _no_what_if(_request: ArmRequest) -> ArmAnswer:
    raise bad_request("what-if is not supported; validate is", "NotSupported")


def _not_ready(_request: ArmRequest) -> ArmAnswer:
    raise ArmError(503, "ServiceUnavailable", "the server is starting")
