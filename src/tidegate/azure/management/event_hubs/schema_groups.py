"""Schema groups of the namespace as resources."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tidegate.azure.management.access.requests import ArmAnswer, ArmRequest, Operation, Payload, read_payload
from tidegate.azure.management.event_hubs.payloads import (
    NAMESPACE_PATH,
    check_namespace,
    envelope,
    namespace_id,
    time_of_ms,
)
from tidegate.azure.management.manager.state import DEFAULT_LOCATION
from tidegate.hub.namespace import Namespace
from tidegate.hub.schema_state import GROUP_NOT_FOUND, SchemaGroup, SchemaRefused
from tidegate.schemas import Compatibility, SchemaFormat

_GROUPS = f"{NAMESPACE_PATH}/schemagroups"
_GROUP = f"{_GROUPS}/{{schema_group}}"
_TYPES = {"unknown": None, "avro": SchemaFormat.AVRO, "protobuf": SchemaFormat.PROTOBUF, "json": SchemaFormat.JSON}
_NAMES = {
    SchemaFormat.AVRO: "Avro",
    SchemaFormat.PROTOBUF: "ProtoBuf",
    SchemaFormat.JSON: "Json",
    SchemaFormat.CUSTOM: "Unknown",
}
MAX_PROPERTIES = 100


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class SchemaGroupProperties(Payload):
    """What may be said of a group. The levels that the service does not have are Tidegate's own."""

    schema_type: Annotated[Literal["unknown", "avro", "protobuf", "json"], BeforeValidator(_lower)] | None = None
    schema_compatibility: Annotated[str, Field(max_length=30)] | None = None
    group_properties: Annotated[dict[str, str], Field(max_length=MAX_PROPERTIES)] | None = None


class SchemaGroupPayload(Payload):
    """A group."""

    properties: SchemaGroupProperties = SchemaGroupProperties()


class SchemaGroups:
    """The groups of the namespace's schema registry."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def operations(self) -> list[Operation]:
        """Return what is served."""
        return [
            Operation("GET", _GROUPS, self._list),
            Operation("GET", _GROUP, self._show),
            Operation("PUT", _GROUP, self._put),
            Operation("DELETE", _GROUP, self._delete),
        ]

    def _list(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        groups = self._namespace.schema_registry.groups()
        return ArmAnswer(body={"value": [self._resource(request, group) for group in groups]})

    def _show(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        return ArmAnswer(
            body=self._resource(request, self._namespace.schema_registry.group(request.names["schema_group"]))
        )

    def _put(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        given = read_payload(SchemaGroupPayload, request.body).properties
        group = self._namespace.schema_registry.put_group(
            request.names["schema_group"],
            schema_format=None if given.schema_type is None else _TYPES[given.schema_type],
            compatibility=_level(given.schema_compatibility),
            properties=given.group_properties,
        )
        return ArmAnswer(body=self._resource(request, group))

    def _delete(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        try:
            self._namespace.schema_registry.delete_group(request.names["schema_group"])
        except SchemaRefused as error:
            if error.code != GROUP_NOT_FOUND:
                raise
            return ArmAnswer(204)
        return ArmAnswer()

    def _resource(self, request: ArmRequest, group: SchemaGroup) -> dict[str, Any]:
        created = time_of_ms(group.created_at_ms)
        properties = {
            "createdAtUtc": created,
            "updatedAtUtc": created,
            "eTag": f"{group.created_at_ms:x}",
            "groupProperties": dict(group.properties),
            "schemaCompatibility": "".join(part.capitalize() for part in group.compatibility.value.split("_")),
            "schemaType": "Unknown" if group.schema_format is None else _NAMES[group.schema_format],
        }
        parent = namespace_id(self._namespace, request.subscription, request.group)
        return envelope(parent, "namespaces/schemagroups", group.name, properties, DEFAULT_LOCATION)


def _level(text: str | None) -> Compatibility | None:
    """Return the level of a name such as Backward or FullTransitive. Raises SchemaRefused."""
    if text is None:
        return None
    for level in Compatibility:
        if level.value.replace("_", "").lower() == text.replace("_", "").lower():
            return level
    names = ", ".join("".join(part.capitalize() for part in level.value.split("_")) for level in Compatibility)
    raise SchemaRefused(400, f"schemaCompatibility cannot be {text!r}: it is {names}")
