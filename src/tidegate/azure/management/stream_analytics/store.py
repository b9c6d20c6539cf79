"""Streaming jobs in the service: what the API describes, with the job file that it means.

`LocalHubs` makes connection strings for event hubs that a job names by the namespace of this server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegate import outbound
from tidegate.azure.management.access.requests import (
    ArmAnswer,
    ArmError,
    ArmRequest,
    bad_request,
    conflict,
    resource_not_found,
)
from tidegate.azure.management.manager.resource_groups import DEFAULT_GROUP, ResourceGroups
from tidegate.azure.management.manager.state import ResourceRecord
from tidegate.azure.management.stream_analytics.document import (
    DEFAULT_TRANSFORMATION,
    PART_KINDS,
    is_described,
    parts_of,
)
from tidegate.hub.access_rules import AccessRule
from tidegate.hub.namespace import Namespace
from tidegate.outbound import AddressPolicy
from tidegate.service import (
    Changed,
    InvalidJob,
    JobDocument,
    JobExists,
    JobNotFound,
    JobResource,
    Jobs,
    JobsUnavailable,
    Scale,
    ServiceError,
    WrongState,
)

PROVIDER = "Microsoft.StreamAnalytics"
JOBS = "streamingjobs"
KIND = f"{PROVIDER}/{JOBS}"

Document = Mapping[str, Any]


class JobStore:
    """Reads and writes the jobs that a request's place holds."""

    def __init__(self, jobs: Jobs, resource_groups: ResourceGroups, hubs: LocalHubs, output_folder: Path) -> None:
        self.jobs = jobs
        self.resource_groups = resource_groups
        self.hubs = hubs
        self.output_folder = output_folder

    def listed(self, group: str) -> list[JobResource]:
        """Return the jobs of a group, of all groups if it is empty."""
        return [job for job in self.jobs.list() if self.resource_groups.is_in(key_of(job.name), group)]

    def job(self, request: ArmRequest) -> JobResource:
        """Return the job that a request names. Raises ArmError."""
        name = request.names["job"]
        try:
            job = self.jobs.show(name)
        except JobNotFound:
            raise resource_not_found(KIND, name, request.group) from None
        if not self.resource_groups.is_in(key_of(name), request.group):
            raise resource_not_found(KIND, name, request.group)
        return job

    def exists(self, request: ArmRequest) -> bool:
        """Return whether the job that a request names exists. Raises ArmError if another group has it."""
        try:
            self.job(request)
        except ArmError:
            pass
        else:
            return True
        if any(job.name.lower() == request.names["job"].lower() for job in self.jobs.list()):
            owner = self.resource_groups.record(key_of(request.names["job"])).group or DEFAULT_GROUP
            raise conflict(f"the job '{request.names['job']}' exists in the resource group '{owner}': names are unique")
        return False

    def create(self, request: ArmRequest, document: Document) -> JobResource:
        """Create a job in the request's place. Raises ArmError, ServiceError."""
        return self.create_from_file(request, self._document(request.names["job"], JobDocument(), document))

    def placed(self, request: ArmRequest, job: JobResource) -> ArmRequest:
        """Return a request for a whole subscription as one for the group that a job is in."""
        if request.group:
            return request
        owner = self.resource_groups.groups.get(self.resource_groups.record(key_of(job.name)).group)
        return replace(request, names={**request.names, "group": DEFAULT_GROUP if owner is None else owner.name})

    def create_from_file(self, request: ArmRequest, document: JobDocument) -> JobResource:
        """Create a job of a job file in the request's place. Raises ServiceError, OSError."""
        job = self.jobs.create(request.names["job"], document)
        self.resource_groups.put_record(
            key_of(job.name), ResourceRecord(group=self.resource_groups.group_key(request.group))
        )
        return job

    def edit(self, request: ArmRequest, change: Callable[[dict[str, Any]], Document]) -> JobResource:
        """Change a job's description; `change` is given the present one with its secrets. Raises ArmError."""
        job = self.job(request)
        if not is_described(job.arm):
            raise conflict(
                f"the job '{job.name}' was made from a job file, with settings that Azure's API does not have: change "
                "its properties.jobFile (`tidegate job update`) or change it in the portal, or create another one",
                "JobFile",
            )
        return self.jobs.edit(job.name, lambda former: self._document(job.name, former, change(current(former))))

    def refresh(self, job: JobResource) -> None:
        """Make the job file anew, for connection strings of this server's own hubs, whose keys may have changed."""
        if is_described(job.arm):
            self.jobs.edit(job.name, lambda former: self._document(job.name, former, current(former)))

    def delete(self, job: JobResource) -> None:
        """Delete a job. Raises ServiceError, OSError."""
        self.jobs.delete(job.name)
        self.resource_groups.drop_records(key_of(job.name))

    def _document(self, name: str, former: JobDocument, document: Document) -> JobDocument:
        """Return what the service keeps for a description. Raises ArmError."""
        # it loads the engine, which a hub without jobs must not pay for
        from tidegate.azure.management.stream_analytics.job_file import definition_of_document

        folder = self.output_folder / name.lower()
        definition = definition_of_document(document, self.hubs.connection_string, folder)
        units = document.get("transformation", {}).get("properties", {}).get("streamingUnits")
        scale = former.scale if units is None else Scale(streaming_units=units)
        # what the portal or a job file says beyond the API, such as functions in Python, remains
        others = {key: value for key, value in former.definition.items() if key not in definition and key not in _NAMED}
        for kind in PART_KINDS:
            own = {part["name"].lower() for source in (former.arm, document) for part in parts_of(source, kind)}
            kept = {
                name: section for name, section in former.definition.get(kind, {}).items() if name.lower() not in own
            }
            if kept or kind in definition:
                definition[kind] = {**kept, **definition.get(kind, {})}
        definition["event_ordering"] = {**former.definition.get("event_ordering", {}), **definition["event_ordering"]}
        return JobDocument(definition={**others, **definition}, arm=document, scale=scale)


_NAMED = frozenset({"query", "functions"})
"""What a description may leave out, and what then is not taken over from the former job file as a whole."""


def current(document: JobDocument) -> dict[str, Any]:
    """Return a job's description with the query, units and policy of its job file, which others may have changed."""
    arm, definition = dict(document.arm), document.definition
    if (query := definition.get("query")) is not None:
        part = arm.get("transformation", {"name": DEFAULT_TRANSFORMATION, "properties": {}})
        properties = {**part["properties"], "query": query}
        if "streamingUnits" in properties:
            properties["streamingUnits"] = document.scale.streaming_units
        arm["transformation"] = {**part, "properties": properties}
    ordering, properties = definition.get("event_ordering", {}), dict(arm.get("properties", {}))
    for name, value in (
        ("eventsOutOfOrderPolicy", str(ordering.get("action", "adjust")).capitalize()),
        ("eventsOutOfOrderMaxDelayInSeconds", int(ordering.get("out_of_order_tolerance_s", 0))),
        ("eventsLateArrivalMaxDelayInSeconds", int(ordering.get("late_arrival_tolerance_s", -1))),
        ("outputErrorPolicy", error_policy_of(definition)),
    ):
        if str(properties.get(name, _ABSENT[name])).lower() != str(value).lower():
            properties[name] = value
    return {**arm, "properties": properties}


def error_policy_of(definition: Mapping[str, Any]) -> str:
    """Return the output error policy of a job file, which also takes the service's names, as the API has it."""
    return "Drop" if str(definition.get("output_error_policy", "stop")).lower() == "drop" else "Stop"


_ABSENT = {
    "eventsOutOfOrderPolicy": "Adjust",
    "eventsOutOfOrderMaxDelayInSeconds": 0,
    "eventsLateArrivalMaxDelayInSeconds": -1,
    "outputErrorPolicy": "Stop",
}


def key_of(name: str) -> str:
    """Return what a job's place is recorded under."""
    return f"{PROVIDER}/{JOBS}/{name}".lower()


def serving(act: Callable[[ArmRequest], ArmAnswer]) -> Callable[[ArmRequest], ArmAnswer]:
    """Return an operation whose refusals by the service are in Resource Manager's words."""

    def answer(request: ArmRequest) -> ArmAnswer:
        try:
            return act(request)
        except ServiceError as error:
            raise refused_by_service(error) from None
        except ModuleNotFoundError as error:
            raise conflict(f"jobs cannot run here, as {error.name} is not installed", "JobsUnavailable") from None

    return answer


def refused_by_service(error: ServiceError) -> ArmError:
    """Return a refusal of the service in Resource Manager's words."""
    match error:
        case JobNotFound():
            return ArmError(404, "ResourceNotFound", str(error))
        case JobExists() | WrongState():
            return conflict(str(error))
        case InvalidJob():
            details = [bad_request(problem) for problem in error.problems]
            return ArmError(400, "InvalidJob", str(error), details=details if len(details) > 1 else ())
        case Changed():
            return ArmError(412, "PreconditionFailed", str(error))
        case JobsUnavailable():
            return conflict(str(error), "JobsUnavailable")
        case _:
            return ArmError(500, "InternalError", str(error))


_DOMAINS = (".servicebus.windows.net", ".servicebus.usgovcloudapi.net", ".servicebus.chinacloudapi.cn", ".localhost")


Ports = tuple[frozenset[int], frozenset[int]]
"""Those that serve AMQP, and those that serve HTTP."""


class LocalHubs:
    """Makes connection strings for the hub beside the jobs."""

    def __init__(
        self,
        namespace: Namespace,
        connection_string: Callable[[AccessRule, str, str], str],
        own_ports: Callable[[], Ports] = lambda: (frozenset(), frozenset()),
    ) -> None:
        self._namespace = namespace
        self._connection_string = connection_string
        self._own_ports = own_ports

    def address_policy(self) -> AddressPolicy:
        """Return which addresses are connected to for callers: those of this process, or without any, of a test."""
        policy = outbound.current()
        policy = policy if policy.is_guarded else AddressPolicy.guarded(outbound.LOOPBACK)
        return policy.beside(*self._own_ports())

    def refreshed(self, document: JobDocument) -> JobDocument:
        """Return a job with the present addresses and keys of this server's hubs, where it names none of its own."""
        if not is_described(document.arm):
            return document
        definition = dict(document.definition)
        for kind in ("inputs", "outputs"):
            sections = dict(definition.get(kind, {}))
            for part in parts_of(document.arm, kind):
                datasource = part["properties"].get("datasource") or {}
                section = sections.get(part["name"])
                if section is None or section.get("type") != "eventhub":
                    continue
                text = self.connection_string(datasource.get("properties") or {})
                if text is not None:
                    sections[part["name"]] = {**section, "connection_string": text}
            if sections:
                definition[kind] = sections
        return replace(document, definition=definition)

    def connection_string(self, datasource: Mapping[str, Any]) -> str | None:
        """Return the connection string of a data source's settings, None if they name another namespace.

        A key that is given is used. Without one, or with a managed identity, it is the current key of the policy that
        is named, or else of the root rule: whoever may define jobs here may read and write the hub.
        """
        settings = {str(key).lower(): value for key, value in datasource.items()}
        asked = str(settings.get("servicebusnamespace") or "").lower()
        for domain in _DOMAINS:
            asked = asked.removesuffix(domain)
        if asked != self._namespace.name.lower():
            return None
        hub = str(settings.get("eventhubname") or "")
        policy = str(settings.get("sharedaccesspolicyname") or "")
        table = self._namespace.access.rule_table
        named = (table.find(policy, hub) or table.find(policy)) if policy else None
        rule = named or table.root_rule
        key = settings.get("sharedaccesspolicykey")
        if isinstance(key, str) and key and ";" not in key and set(key) != {"*"}:
            rule = AccessRule(policy or rule.name, rule.rights, key, key)
        return self._connection_string(rule, rule.primary_key, "")
