"""Event hubs and consumer groups as resources."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from tidegate.arm.event_hubs.names import (
    EVENT_HUB_PATH,
    NAMESPACE_PATH,
    check_namespace,
    envelope,
    namespace_id,
    namespace_key,
    time_of_ms,
)
from tidegate.arm.event_hubs.payloads import (
    DEFAULT_PARTITIONS,
    CapturePayload,
    ConsumerGroupPayload,
    EventHubPayload,
    EventHubProperties,
    retention_figures,
)
from tidegate.arm.manager.places import Places
from tidegate.arm.manager.state import ResourceRecord
from tidegate.arm.model.errors import ArmError, bad_request
from tidegate.arm.model.operations import Operation
from tidegate.arm.model.requests import ArmAnswer, ArmRequest, read_payload, reasons
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.store import StoreError, changed_capture
from tidegate.hub.config import EventHubConfig
from tidegate.hub.event_hub import EventHub
from tidegate.hub.namespace import Namespace

_BLOBS = "EventHubArchive.AzureBlockBlob"
_FOLDER = "Tidegate.Folder"
_CONTAINER_URL = "az://"
_GROUPS = f"{EVENT_HUB_PATH}/consumergroups"
_GROUP = f"{_GROUPS}/{{consumer_group}}"


class EventHubs:
    """The event hubs of the namespace and their consumer groups."""

    def __init__(self, namespace: Namespace, places: Places, default_capture: CaptureDescription | None) -> None:
        self._namespace = namespace
        self._places = places
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
        self._places.drop_records(self._key(name))
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
            self._places.put_record(self._key(hub.name), ResourceRecord(more={"storageAccountResourceId": account}))

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
            more = self._places.record(self._key(hub.name)).more
            properties["captureDescription"] = _capture_resource(capture, more)
        parent = namespace_id(self._namespace, request.subscription, request.group)
        return envelope(parent, "namespaces/eventhubs", hub.name, properties, self._location())

    def _location(self) -> str:
        return self._places.record(namespace_key(self._namespace)).location

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
