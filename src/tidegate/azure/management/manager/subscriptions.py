"""Tenants, subscriptions, locations, providers and resource groups, as far as clients ask for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import StringConstraints

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
from tidegate.azure.management.access.tokens import DEFAULT_TENANT
from tidegate.azure.management.manager.resource_groups import (
    DEFAULT_SUBSCRIPTION,
    ResourceGroups,
    subscription_resource,
)
from tidegate.azure.management.manager.resource_manager import ResourceProvider, provider_resource
from tidegate.azure.management.manager.state import DEFAULT_LOCATION, GroupRecord

MAX_TAGS = 50
TagName = Annotated[str, StringConstraints(min_length=1, max_length=512)]
TagValue = Annotated[str, StringConstraints(max_length=256)]
Tags = dict[TagName, TagValue]
_GROUP_NAME = re.compile(r"[\w().-]{0,89}[\w()-]")
_FILTERS = ("resourcetype", "resourcegroup", "name", "location", "tagname", "tagvalue")
_FILTER = re.compile(r"\s*(\w+)\s+eq\s+'((?:[^']|'')*)'\s*(?:and\b|$)", re.IGNORECASE)


class GroupPayload(Payload):
    """A resource group as clients send it."""

    location: str | None = None
    tags: Tags | None = None
    managed_by: str | None = None


def check_tags(tags: Tags | None) -> dict[str, str]:
    """Return the tags of a resource. Raises ArmError for too many."""
    if tags is not None and len(tags) > MAX_TAGS:
        raise bad_request(f"a resource has at most {MAX_TAGS} tags, not {len(tags)}", "TooManyTags")
    return dict(tags or {})


class Subscriptions:
    """What lies above the resources of the providers."""

    def __init__(self, resource_groups: ResourceGroups, providers: Sequence[ResourceProvider]) -> None:
        self._resource_groups = resource_groups
        self._providers = providers

    def operations(self) -> list[Operation]:
        """Return what it serves."""
        return [
            Operation("GET", "/tenants", self._tenants),
            Operation("GET", "/subscriptions", self._subscriptions),
            Operation("GET", SUBSCRIPTION, _subscription),
            Operation("GET", f"{SUBSCRIPTION}/locations", _locations),
            Operation("GET", "/providers", self._list_providers),
            Operation("GET", "/providers/{provider}", self._provider),
            Operation("GET", "/providers/{provider}/operations", self._provider_operations),
            Operation("GET", f"{SUBSCRIPTION}/providers", self._list_providers),
            Operation("GET", f"{SUBSCRIPTION}/providers/{{provider}}", self._provider),
            Operation("POST", f"{SUBSCRIPTION}/providers/{{provider}}/register", self._provider),
            Operation("GET", f"{SUBSCRIPTION}/resourceGroups", self._groups),
            Operation("GET", GROUP, self._group),
            Operation("PUT", GROUP, self._put_group),
            Operation("PATCH", GROUP, self._patch_group),
            Operation("DELETE", GROUP, self._delete_group),
            Operation("GET", f"{SUBSCRIPTION}/resources", self._resources),
            Operation("GET", f"{GROUP}/resources", self._resources),
        ]

    def _tenants(self, request: ArmRequest) -> ArmAnswer:
        tenant = {"id": f"/tenants/{DEFAULT_TENANT}", "tenantId": DEFAULT_TENANT, "displayName": "Tidegate"}
        return ArmAnswer(body={"value": [tenant]})

    def _subscriptions(self, request: ArmRequest) -> ArmAnswer:
        return ArmAnswer(body={"value": [subscription_resource(DEFAULT_SUBSCRIPTION)]})

    def _list_providers(self, request: ArmRequest) -> ArmAnswer:
        prefix = f"/subscriptions/{request.subscription}" if request.subscription else ""
        return ArmAnswer(body={"value": [provider_resource(provider, prefix) for provider in self._providers]})

    def _provider(self, request: ArmRequest) -> ArmAnswer:
        prefix = f"/subscriptions/{request.subscription}" if request.subscription else ""
        for provider in self._providers:
            if provider.namespace.lower() == request.names["provider"].lower():
                return ArmAnswer(body=provider_resource(provider, prefix))
        served = ", ".join(provider.namespace for provider in self._providers)
        raise ArmError(
            404,
            "InvalidResourceNamespace",
            f"The resource namespace '{request.names['provider']}' is invalid; Tidegate serves {served}.",
        )

    def _provider_operations(self, request: ArmRequest) -> ArmAnswer:
        """Answer with what a provider serves, by the names of the rights that it takes."""
        asked = request.names["provider"].lower()
        found = next((one for one in self._providers if one.namespace.lower() == asked), None)
        if found is None:
            return self._provider(request)  # which refuses it
        actions = sorted({one.action for one in found.operations() if one.action.lower().startswith(asked)})
        value = [
            {
                "name": action,
                "isDataAction": False,
                "display": {
                    "provider": found.namespace,
                    "resource": "/".join(action.split("/")[1:-1]),
                    "operation": action.rpartition("/")[2],
                    "description": action,
                },
            }
            for action in actions
        ]
        return ArmAnswer(body={"value": value})

    # -- resource groups

    def _groups(self, request: ArmRequest) -> ArmAnswer:
        found = [
            self._group_resource(request.subscription, group.name) for group in self._resource_groups.groups.values()
        ]
        return ArmAnswer(body={"value": found})

    def _group(self, request: ArmRequest) -> ArmAnswer:
        body = self._group_resource(request.subscription, _checked_group(request.group))
        return ArmAnswer(204) if request.method == "HEAD" else ArmAnswer(body=body)

    def _put_group(self, request: ArmRequest) -> ArmAnswer:
        name = _checked_group(request.group)
        payload = read_payload(GroupPayload, request.body)
        former = self._resource_groups.groups.get(name.lower())
        location = _location(payload.location or (former.location if former else None))
        if former is not None and location != former.location:
            raise ArmError(
                409,
                "InvalidResourceGroupLocation",
                f"The resource group '{former.name}' is in '{former.location}' and cannot move to '{location}'.",
            )
        record = GroupRecord(
            name=former.name if former else name,
            location=location,
            tags=check_tags(payload.tags),
            managed_by=payload.managed_by,
        )
        self._resource_groups.put_group(record)
        return ArmAnswer(200 if former else 201, self._group_resource(request.subscription, name))

    def _patch_group(self, request: ArmRequest) -> ArmAnswer:
        name = _checked_group(request.group)
        payload = read_payload(GroupPayload, request.body)
        former = self._resource_groups.groups.get(name.lower())
        if former is None:
            raise _no_group(name)
        if payload.tags is not None:
            self._resource_groups.put_group(former.model_copy(update={"tags": check_tags(payload.tags)}))
        return ArmAnswer(body=self._group_resource(request.subscription, name))

    def _delete_group(self, request: ArmRequest) -> ArmAnswer:
        if self._resource_groups.groups.get(request.group.lower()) is None:
            raise _no_group(request.group)
        for provider in self._providers:
            provider.delete_group(request.group)
        self._resource_groups.drop_group(request.group)
        return ArmAnswer()

    def _group_resource(self, subscription: str, name: str) -> dict[str, Any]:
        record = self._resource_groups.groups.get(name.lower()) or GroupRecord(name=name, location=DEFAULT_LOCATION)
        body: dict[str, Any] = {
            "id": f"/subscriptions/{subscription}/resourceGroups/{record.name}",
            "name": record.name,
            "type": "Microsoft.Resources/resourceGroups",
            "location": record.location,
            "tags": record.tags,
            "properties": {"provisioningState": "Succeeded"},
        }
        return body if record.managed_by is None else {**body, "managedBy": record.managed_by}

    # -- resources of all providers

    def _resources(self, request: ArmRequest) -> ArmAnswer:
        keep, group = _resource_filter(request.query.get("$filter", ""))
        found = [
            {name: part for name, part in resource.items() if name not in ("properties", "systemData")}
            for provider in self._providers
            for resource in provider.top_level(request.subscription, request.group or group)
            if keep(resource)
        ]
        return ArmAnswer(body={"value": found})


def _subscription(request: ArmRequest) -> ArmAnswer:
    return ArmAnswer(body=subscription_resource(request.subscription))


def _locations(request: ArmRequest) -> ArmAnswer:
    location = {
        "id": f"/subscriptions/{request.subscription}/locations/{DEFAULT_LOCATION}",
        "name": DEFAULT_LOCATION,
        "displayName": "Local",
        "regionalDisplayName": "Local",
        "type": "Region",
        "metadata": {"regionType": "Physical", "regionCategory": "Recommended"},
    }
    return ArmAnswer(body={"value": [location]})


def _checked_group(name: str) -> str:
    if not _GROUP_NAME.fullmatch(name):
        raise bad_request(
            f"The provided resource group name '{name[:100]}' is invalid: 1 to 90 letters, digits, '_', '-', '.', "
            "'(' or ')', not ending with a period",
            "InvalidResourceGroup",
        )
    return name


def _location(written: str | None) -> str:
    """Return a location as Azure normalises it: `West Europe` is westeurope."""
    location = (written or "").replace(" ", "").lower()
    if not location:
        raise bad_request("The location property is required for this definition.", "LocationRequired")
    return location[:90]


def _no_group(name: str) -> ArmError:
    return ArmError(404, "ResourceGroupNotFound", f"Resource group '{name}' could not be found.")


def _resource_filter(text: str) -> tuple[Callable[[dict[str, Any]], bool], str]:
    """Return what keeps the resources of a `$filter` such as `name eq '…' and location eq '…'`, and its group."""
    wanted: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _FILTER.match(text, position)
        if match is None or match[1].lower() not in _FILTERS:
            raise bad_request(
                f"the $filter {text[:200]!r} is not supported: resourceType, resourceGroup, name, location, "
                "tagName and tagValue can be compared by eq and joined by and",
                "InvalidFilterInQueryString",
            )
        wanted[match[1].lower()] = match[2].replace("''", "'")
        position = match.end()

    def keep(resource: dict[str, Any]) -> bool:
        tags = {str(name).lower(): value for name, value in resource.get("tags", {}).items()}
        tag = wanted.get("tagname")
        return (
            all(
                str(resource.get(field, "")).lower() == wanted[name].lower()
                for name, field in (("resourcetype", "type"), ("name", "name"), ("location", "location"))
                if name in wanted
            )
            and (tag is None or tag.lower() in tags)
            and (tag is None or "tagvalue" not in wanted or tags[tag.lower()] == wanted["tagvalue"])
        )

    return keep, wanted.get("resourcegroup", "")
