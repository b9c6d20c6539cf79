"""Event hubs and consumer groups as resources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from tidegate.azure.management.access.requests import (
    ArmAnswer,
    ArmError,
    ArmRequest,
    Operation,
    bad_request,
    read_payload,
    reasons,
)
from tidegate.azure.management.event_hubs.payloads import (
    DEFAULT_PARTITIONS,
    EVENT_HUB_PATH,
    NAMESPACE_PATH,
    CapturePayload,
    ConsumerGroupPayload,
    EventHubPayload,
    EventHubProperties,
    KeyPayload,
    RulePayload,
    check_namespace,
    envelope,
    namespace_id,
    namespace_key,
    retention_figures,
    time_of_ms,
)
from tidegate.azure.management.manager.resource_groups import ResourceGroups
from tidegate.azure.management.manager.state import DEFAULT_LOCATION, ResourceRecord
from tidegate.hub.access_rules import AccessRule, Right, is_root_rule
from tidegate.hub.addresses import split_address
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.store import StoreError, changed_capture
from tidegate.hub.config import EventHubConfig, check_hub_name
from tidegate.hub.errors import NotFound
from tidegate.hub.event_hub import EventHub
from tidegate.hub.namespace import Namespace

ConnectionString = Callable[[AccessRule, str, str], str]
_RIGHT_NAMES = ("Manage", "Listen", "Send")


class AuthorizationRules:
    """The rules at both levels."""

    def __init__(self, namespace: Namespace, connection_string: ConnectionString) -> None:
        self._namespace = namespace
        self._connection_string = connection_string

    def operations(self) -> list[Operation]:
        """Return what is served."""
        return [
            operation
            for level in (NAMESPACE_PATH, EVENT_HUB_PATH)
            for rule in (f"{level}/authorizationRules/{{rule}}",)
            for operation in (
                Operation("GET", f"{level}/authorizationRules", self._list),
                Operation("GET", rule, self._show),
                Operation("PUT", rule, self._put, owner_only=_is_root),
                Operation("DELETE", rule, self._delete, owner_only=_is_root),
                Operation("POST", f"{rule}/listKeys", self._list_keys, owner_only=_is_root),
                Operation("POST", f"{rule}/regenerateKeys", self._regenerate_keys, owner_only=_is_root),
            )
        ]

    def _list(self, request: ArmRequest) -> ArmAnswer:
        level = self._level(request)
        rules = self._namespace.access.rule_table.rules(level)
        return ArmAnswer(body={"value": [self._resource(request, rule) for rule in rules]})

    def _show(self, request: ArmRequest) -> ArmAnswer:
        return ArmAnswer(body=self._resource(request, self._rule(request)))

    def _put(self, request: ArmRequest) -> ArmAnswer:
        level, name = self._level(request), request.names["rule"]
        rights = [Right(right) for right in read_payload(RulePayload, request.body).properties.rights]
        if self._namespace.access.rule_table.find(name, level) is not None:
            rule = self._namespace.management.update_access_rule(name, rights, level)
        else:
            try:
                rule = AccessRule.create(check_hub_name(name), rights)
            except ValueError as error:
                raise bad_request(f"authorization rule {name[:100]!r}: {error}") from None
            self._namespace.management.create_access_rule(rule, level)
        return ArmAnswer(body=self._resource(request, rule))

    def _delete(self, request: ArmRequest) -> ArmAnswer:
        level, name = self._level(request), request.names["rule"]
        if self._namespace.access.rule_table.find(name, level) is None:
            return ArmAnswer(204)
        self._namespace.management.delete_access_rule(name, level)
        return ArmAnswer()

    def _list_keys(self, request: ArmRequest) -> ArmAnswer:
        return self._keys(request, self._rule(request))

    def _regenerate_keys(self, request: ArmRequest) -> ArmAnswer:
        level, name = self._level(request), request.names["rule"]
        payload = read_payload(KeyPayload, request.body)
        is_primary = payload.key_type == "Primarykey"
        if payload.key is None:
            which = "primary" if is_primary else "secondary"
            return self._keys(request, self._namespace.management.roll_key(name, which, level))
        former = self._rule(request)
        rule = replace(former, primary_key=payload.key) if is_primary else replace(former, secondary_key=payload.key)
        self._namespace.management.set_access_rule(rule, level)
        return self._keys(request, rule)

    def _level(self, request: ArmRequest) -> str:
        """Return the level whose rules are meant: an event hub's name, empty for the namespace. Raises HubError."""
        check_namespace(self._namespace, request)
        return self._namespace.event_hub(request.names["hub"]).name if "hub" in request.names else ""

    def _rule(self, request: ArmRequest) -> AccessRule:
        return self._namespace.access.rule_table.rule(request.names["rule"], self._level(request))

    def _keys(self, request: ArmRequest, rule: AccessRule) -> ArmAnswer:
        hub = self._level(request)
        body = {
            "keyName": rule.name,
            "primaryKey": rule.primary_key,
            "secondaryKey": rule.secondary_key,
            "primaryConnectionString": self._connection_string(rule, rule.primary_key, hub),
            "secondaryConnectionString": self._connection_string(rule, rule.secondary_key, hub),
        }
        return ArmAnswer(body=body, headers={"Cache-Control": "no-store"})

    def _resource(self, request: ArmRequest, rule: AccessRule) -> dict[str, Any]:
        parent, kind = namespace_id(self._namespace, request.subscription, request.group), "namespaces/"
        if hub := self._level(request):
            parent, kind = f"{parent}/eventhubs/{hub}", "namespaces/eventhubs/"
        rights = [name for name in _RIGHT_NAMES if Right(name) in rule.rights]
        return envelope(parent, f"{kind}authorizationRules", rule.name, {"rights": rights}, DEFAULT_LOCATION)


def _is_root(request: ArmRequest) -> bool:
    return "hub" not in request.names and is_root_rule(request.names["rule"])


_PUBLISHERS = f"{EVENT_HUB_PATH}/revokedPublishers"
_PUBLISHER = f"{_PUBLISHERS}/{{publisher}}"


class RevokedPublishers:
    """The publishers from which nothing more is taken, whatever their tokens say."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def operations(self) -> list[Operation]:
        """Return what is served."""
        return [
            Operation("GET", _PUBLISHERS, self._list),
            Operation("GET", _PUBLISHER, self._show),
            Operation("PUT", _PUBLISHER, self._put),
            Operation("DELETE", _PUBLISHER, self._delete),
        ]

    def _list(self, request: ArmRequest) -> ArmAnswer:
        hub = self._hub(request)
        return ArmAnswer(
            body={"value": [self._resource(request, hub, name) for name in sorted(hub.revoked_publishers)]}
        )

    def _show(self, request: ArmRequest) -> ArmAnswer:
        hub, name = self._hub(request), request.names["publisher"]
        if not hub.is_revoked(name):
            raise NotFound(f"the publisher {name!r} is not revoked")
        return ArmAnswer(body=self._resource(request, hub, name.lower()))

    def _put(self, request: ArmRequest) -> ArmAnswer:
        hub = self._hub(request)
        segments = split_address(request.names["publisher"])
        if len(segments) != 1:
            raise bad_request(f"{request.names['publisher'][:100]!r} is not the name of a publisher")
        name = segments[0]
        status = 200 if hub.is_revoked(name) else 201
        self._namespace.management.revoke_publisher(hub.name, name)
        return ArmAnswer(status, self._resource(request, hub, name.lower()))

    def _delete(self, request: ArmRequest) -> ArmAnswer:
        hub, name = self._hub(request), request.names["publisher"]
        if not hub.is_revoked(name):
            return ArmAnswer(204)
        self._namespace.management.restore_publisher(hub.name, name)
        return ArmAnswer()

    def _hub(self, request: ArmRequest) -> EventHub:
        check_namespace(self._namespace, request)
        return self._namespace.event_hub(request.names["hub"])

    def _resource(self, request: ArmRequest, hub: EventHub, name: str) -> dict[str, Any]:
        parent = f"{namespace_id(self._namespace, request.subscription, request.group)}/eventhubs/{hub.name}"
        return envelope(parent, "namespaces/eventhubs/revokedPublishers", name, {}, DEFAULT_LOCATION)


_BLOBS = "EventHubArchive.AzureBlockBlob"
_FOLDER = "Tidegate.Folder"
_CONTAINER_URL = "az://"
_GROUPS = f"{EVENT_HUB_PATH}/consumergroups"
_GROUP = f"{_GROUPS}/{{consumer_group}}"


class EventHubs:
    """The event hubs of the namespace and their consumer groups."""

    def __init__(
        self, namespace: Namespace, resource_groups: ResourceGroups, default_capture: CaptureDescription | None
    ) -> None:
        self._namespace = namespace
        self._resource_groups = resource_groups
        self._default_capture = default_capture

    def operations(self) -> list[Operation]:
        """Return what is served."""
        return [
            Operation("GET", f"{NAMESPACE_PATH}/eventhubs", self._list),
            Operation("GET", EVENT_HUB_PATH, self._show),
            Operation("PUT", EVENT_HUB_PATH, self._put),
            Operation("DELETE", EVENT_HUB_PATH, self._delete),
            Operation("GET", _GROUPS, self._list_groups),
            Operation("GET", _GROUP, self._show_group),
            Operation("PUT", _GROUP, self._put_group),
            Operation("DELETE", _GROUP, self._delete_group),
        ]

    # -- event hubs

    def _list(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        hubs = list(self._namespace.event_hubs.values())
        return ArmAnswer(body={"value": [self._resource(request, hub) for hub in _page(hubs, request)]})

    def _show(self, request: ArmRequest) -> ArmAnswer:
        return ArmAnswer(body=self._resource(request, self._hub(request)))

    def _put(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        name = request.names["hub"]
        properties = read_payload(EventHubPayload, request.body).properties
        if properties.status is not None and properties.status.lower() not in ("active", "unknown"):
            raise bad_request(f"the status {properties.status[:40]!r} is not supported: event hubs are Active")
        former = self._namespace.event_hubs.get(name.lower())
        self._check_folder(request, former, properties.capture_description)
        hub = self._create(name, properties) if former is None else self._update(former, properties)
        self._keep_destination(hub, properties.capture_description)
        return ArmAnswer(body=self._resource(request, hub))

    def _delete(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        name = request.names["hub"]
        if name.lower() not in self._namespace.event_hubs:
            return ArmAnswer(204)
        self._namespace.management.delete_event_hub(name)
        self._resource_groups.drop_records(self._key(name))
        return ArmAnswer()

    def _create(self, name: str, properties: EventHubProperties) -> EventHub:
        capture = properties.capture_description
        try:
            config = EventHubConfig(
                name=name,
                partition_count=properties.partition_count or DEFAULT_PARTITIONS,
                retention_ms=properties.retention_ms(),
                retention_bytes=properties.retention_bytes(),
                user_metadata=properties.user_metadata or "",
                capture=None if capture is None else _capture(capture, self._default_capture),
            )
        except ValidationError as error:
            raise bad_request(f"event hub {name!r}: {reasons(error)}") from None
        return self._namespace.management.create_event_hub(config)

    def _update(self, former: EventHub, properties: EventHubProperties) -> EventHub:
        changes: dict[str, object] = {}
        if properties.partition_count is not None:
            changes["partition_count"] = properties.partition_count
        if properties.names_retention:
            changes["retention_ms"] = properties.retention_ms()
        if properties.names_retention_size:
            changes["retention_bytes"] = properties.retention_bytes()
        if properties.user_metadata is not None:
            changes["user_metadata"] = properties.user_metadata
        if properties.capture_description is not None:
            current = former.config.capture or self._default_capture
            changes["capture"] = _capture(properties.capture_description, current)
        return self._namespace.management.update_event_hub(former.name, **changes)

    def _check_folder(self, request: ArmRequest, hub: EventHub | None, capture: CapturePayload | None) -> None:
        """Raise ArmError if someone who is no owner names another folder of this machine than the present one."""
        destination = capture.destination if capture is not None else None
        folder = destination.properties.folder if destination is not None else None
        if folder is None or request.role.may("Microsoft.Authorization/write"):
            return
        current = (hub.config.capture if hub is not None else None) or self._default_capture
        if current is None or current.destination != folder:
            raise ArmError(
                403,
                "AuthorizationFailed",
                f"The client '{request.who}' with the role {request.role.value} cannot choose where this machine "
                "writes files: another folder for capture needs the role of an owner.",
            )

    def _keep_destination(self, hub: EventHub, capture: CapturePayload | None) -> None:
        """Keep the storage account's id, which the hub does not need and clients compare."""
        destination = capture.destination if capture is not None else None
        account = None if destination is None else destination.properties.storage_account_resource_id
        if account is not None:
            self._resource_groups.put_record(
                self._key(hub.name), ResourceRecord(more={"storageAccountResourceId": account})
            )

    def _key(self, name: str) -> str:
        return f"{namespace_key(self._namespace)}/eventhubs/{name.lower()}"

    def _hub(self, request: ArmRequest) -> EventHub:
        check_namespace(self._namespace, request)
        return self._namespace.event_hub(request.names["hub"])

    def _resource(self, request: ArmRequest, hub: EventHub) -> dict[str, Any]:
        days, hours = retention_figures(hub.config.retention_ms)
        retention: dict[str, Any] = {"cleanupPolicy": "Delete", "retentionTimeInHours": hours}
        if hub.config.retention_bytes is not None:
            retention["retentionSizeInBytes"] = hub.config.retention_bytes
        created = time_of_ms(hub.definition.created_at_ms)
        properties: dict[str, Any] = {
            "messageRetentionInDays": days,
            "partitionCount": len(hub.partitions),
            "partitionIds": [partition.partition_id for partition in hub.partitions],
            "status": "Active",
            "createdAt": created,
            "updatedAt": created,
            "retentionDescription": retention,
            "consumerGroups": list(hub.consumer_groups),
        }
        if hub.config.user_metadata:
            properties["userMetadata"] = hub.config.user_metadata
        capture = hub.config.capture or self._default_capture
        if capture is not None:
            more = self._resource_groups.record(self._key(hub.name)).more
            properties["captureDescription"] = _capture_resource(capture, more)
        parent = namespace_id(self._namespace, request.subscription, request.group)
        return envelope(parent, "namespaces/eventhubs", hub.name, properties, self._location())

    def _location(self) -> str:
        return self._resource_groups.record(namespace_key(self._namespace)).location

    # -- consumer groups

    def _list_groups(self, request: ArmRequest) -> ArmAnswer:
        hub = self._hub(request)
        found = [self._group_resource(request, hub, group) for group in _page(list(hub.consumer_groups), request)]
        return ArmAnswer(body={"value": found})

    def _show_group(self, request: ArmRequest) -> ArmAnswer:
        hub = self._hub(request)
        name = hub.consumer_group(request.names["consumer_group"])
        return ArmAnswer(body=self._group_resource(request, hub, name))

    def _put_group(self, request: ArmRequest) -> ArmAnswer:
        hub = self._hub(request)
        name = request.names["consumer_group"]
        metadata = read_payload(ConsumerGroupPayload, request.body).properties.user_metadata
        if name.lower() in map(str.lower, hub.consumer_groups):
            self._namespace.management.update_consumer_group(hub.name, name, metadata)
        else:
            self._namespace.management.create_consumer_group(hub.name, name, metadata)
        hub = self._hub(request)
        return ArmAnswer(body=self._group_resource(request, hub, hub.consumer_group(name)))

    def _delete_group(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        hub, name = request.names["hub"], request.names["consumer_group"]
        served = self._namespace.event_hubs.get(hub.lower())
        if served is None or name.lower() not in map(str.lower, served.consumer_groups):
            return ArmAnswer(204)
        self._namespace.management.delete_consumer_group(hub, name)
        return ArmAnswer()

    def _group_resource(self, request: ArmRequest, hub: EventHub, name: str) -> dict[str, Any]:
        created = time_of_ms(hub.definition.created_at_ms)
        properties: dict[str, Any] = {"createdAt": created, "updatedAt": created}
        if metadata := hub.config.group_metadata.get(name.lower(), ""):
            properties["userMetadata"] = metadata
        parent = f"{namespace_id(self._namespace, request.subscription, request.group)}/eventhubs/{hub.name}"
        return envelope(parent, "namespaces/eventhubs/consumergroups", name, properties, self._location())


def _page(items: list[Any], request: ArmRequest) -> list[Any]:
    """Return the part of a list that `$skip` and `$top` ask for. Raises ArmError."""
    bounds = []
    for name in ("$skip", "$top"):
        text = request.query.get(name, "")
        if text and not (text.isascii() and text.isdecimal() and len(text) < 7):
            raise bad_request(f"{name} is a number, not {text[:40]!r}")
        bounds.append(int(text) if text else None)
    skip, top = bounds
    return items[skip or 0 :][:top]


def _capture(payload: CapturePayload, former: CaptureDescription | None) -> CaptureDescription:
    """Return the capture that is asked for, tried as far as can be without writing. Raises ArmError."""
    if payload.encoding != "Avro":
        raise bad_request("captureDescription.encoding: capture writes Avro; AvroDeflate is not supported")
    asked: dict[str, Any] = {
        "enabled": payload.enabled,
        "interval_in_seconds": payload.interval_in_seconds,
        "size_limit_in_bytes": payload.size_limit_in_bytes,
        "skip_empty_archives": payload.skip_empty_archives,
    }
    if payload.destination is not None:
        place = payload.destination.properties
        asked["archive_name_format"] = place.archive_name_format
        match payload.destination.name:
            case "EventHubArchive.AzureBlockBlob":
                asked["destination"] = f"{_CONTAINER_URL}{place.blob_container or ''}" if place.blob_container else None
            case "Tidegate.Folder":
                asked["destination"] = place.folder or None
            case other:
                raise bad_request(f"the capture destination {other[:80]!r} is unknown; {_BLOBS} and {_FOLDER} are not")
    try:
        return changed_capture(former, asked)
    except ValidationError as error:
        raise bad_request(f"captureDescription: {reasons(error)}") from None
    except StoreError as error:
        raise bad_request(f"captureDescription.destination: {error}") from None


def _capture_resource(capture: CaptureDescription, more: dict[str, Any]) -> dict[str, Any]:
    if capture.destination.startswith(_CONTAINER_URL):
        kind, place = _BLOBS, {"blobContainer": capture.destination.removeprefix(_CONTAINER_URL), **more}
    else:
        kind, place = _FOLDER, {"folder": capture.destination}
    return {
        "enabled": capture.enabled,
        "encoding": "Avro",
        "intervalInSeconds": capture.interval_in_seconds,
        "sizeLimitInBytes": capture.size_limit_in_bytes,
        "skipEmptyArchives": capture.skip_empty_archives,
        "destination": {"name": kind, "properties": {**place, "archiveNameFormat": capture.archive_name_format}},
    }
