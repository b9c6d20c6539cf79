"""The provider Microsoft.EventHub: the namespace itself, and what clients ask about namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.azure.management.access.requests import (
    GROUP,
    SUBSCRIPTION,
    ArmAnswer,
    ArmRequest,
    Operation,
    bad_request,
    conflict,
    read_payload,
)
from tidegate.azure.management.event_hubs.hubs import AuthorizationRules, ConnectionString, EventHubs, RevokedPublishers
from tidegate.azure.management.event_hubs.payloads import (
    NAMESPACE_PATH,
    NAMESPACES,
    NO_LIMIT,
    PROVIDER,
    NamePayload,
    NamespacePayload,
    NamespaceProperties,
    check_namespace,
    namespace_id,
    namespace_key,
)
from tidegate.azure.management.event_hubs.schema_groups import SchemaGroups
from tidegate.azure.management.manager.resource_groups import ResourceGroups, time_text
from tidegate.azure.management.manager.resource_manager import ResourceKind
from tidegate.azure.management.manager.subscriptions import check_tags
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.config import NamespaceLimits, Tier, check_hub_name
from tidegate.hub.namespace import Namespace

API_VERSIONS = (
    "2024-01-01",
    "2026-01-01",
    "2025-05-01-preview",
    "2024-05-01-preview",
    "2023-01-01-preview",
    "2022-10-01-preview",
    "2022-01-01-preview",
    "2021-11-01",
    "2018-01-01-preview",
    "2017-04-01",
    "2015-08-01",
)
"""What clients are offered. Any other version is served alike."""


class EventHubProvider:
    """Serves the namespace of a hub under the paths of Microsoft.EventHub."""

    namespace = PROVIDER
    kinds: Sequence[ResourceKind] = tuple(
        ResourceKind(name, API_VERSIONS)
        for name in (
            NAMESPACES,
            "namespaces/eventhubs",
            "namespaces/eventhubs/consumergroups",
            "namespaces/eventhubs/revokedPublishers",
            "namespaces/eventhubs/authorizationRules",
            "namespaces/authorizationRules",
            "namespaces/schemagroups",
            "checkNameAvailability",
        )
    )

    def __init__(
        self,
        namespace: Namespace,
        resource_groups: ResourceGroups,
        default_capture: CaptureDescription | None,
        connection_string: ConnectionString,
    ) -> None:
        self._namespace = namespace
        self._resource_groups = resource_groups
        self._connection_string = connection_string
        self._hubs = EventHubs(namespace, resource_groups, default_capture)
        self._rules = AuthorizationRules(namespace, connection_string)
        self._publishers = RevokedPublishers(namespace)
        self._schema_groups = SchemaGroups(namespace)

    def operations(self) -> Sequence[Operation]:
        provider = f"/providers/{PROVIDER}"
        return [
            Operation("GET", f"{SUBSCRIPTION}{provider}/namespaces", self._list),
            Operation("GET", f"{GROUP}{provider}/namespaces", self._list),
            Operation("POST", f"{SUBSCRIPTION}{provider}/checkNameAvailability", self._check_name),
            Operation("GET", NAMESPACE_PATH, self._show),
            Operation("PUT", NAMESPACE_PATH, self._put),
            Operation("PATCH", NAMESPACE_PATH, self._patch),
            Operation("DELETE", NAMESPACE_PATH, self._delete),
            Operation("GET", f"{NAMESPACE_PATH}/networkRuleSets/default", self._network_rules),
            Operation("GET", f"{NAMESPACE_PATH}/privateEndpointConnections", self._nothing),
            Operation("GET", f"{NAMESPACE_PATH}/disasterRecoveryConfigs", self._nothing),
            Operation("GET", f"{NAMESPACE_PATH}/applicationGroups", self._nothing),
            *self._hubs.operations(),
            *self._rules.operations(),
            *self._publishers.operations(),
            *self._schema_groups.operations(),
        ]

    def top_level(self, subscription: str, group: str) -> Sequence[dict[str, Any]]:
        """There is one namespace, and every group shows it."""
        return [self._resource(subscription, group)]

    def delete_group(self, group: str) -> None:
        """The namespace belongs to Config.json, so it and its event hubs stay."""

    def _list(self, request: ArmRequest) -> ArmAnswer:
        return ArmAnswer(body={"value": [self._resource(request.subscription, request.group)]})

    def _show(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        return ArmAnswer(body=self._resource(request.subscription, request.group))

    def _put(self, request: ArmRequest) -> ArmAnswer:
        asked = request.names["namespace"]
        if asked.lower() != self._namespace.name.lower():
            raise conflict(
                f"the namespace '{asked[:100]}' cannot be created: this hub serves one namespace, "
                f"{self._namespace.name}, whose name is in Config.json",
                "NamespaceQuotaExceeded",
            )
        return self._patch(request)

    def _patch(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        payload = read_payload(NamespacePayload, request.body)
        _check_access(payload.properties)
        changes = self._limits(payload)
        if changes:
            self._namespace.management.update_limits(**changes)
        key = namespace_key(self._namespace)
        record = self._resource_groups.record(key)
        if payload.tags is not None:
            record = record.model_copy(update={"tags": check_tags(payload.tags)})
        if payload.location is not None:
            record = record.model_copy(update={"location": payload.location[:90]})
        if record != self._resource_groups.record(key):
            self._resource_groups.put_record(key, record)
        return ArmAnswer(body=self._resource(request.subscription, request.group))

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the namespace."""
        return self._resource_groups.record(namespace_key(self._namespace)).tags

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Replace the tags of the namespace. Raises OSError."""
        key = namespace_key(self._namespace)
        self._resource_groups.put_record(key, self._resource_groups.record(key).model_copy(update={"tags": dict(tags)}))

    def _limits(self, payload: NamespacePayload) -> dict[str, object]:
        """Return the changes of limits that a payload asks for, as fields of NamespaceLimits."""
        now, changes = self._namespace.limits, dict[str, object]()
        properties = payload.properties
        if payload.sku is not None:
            if payload.sku.name is not None:
                changes["tier"] = Tier(payload.sku.name.lower())
            if payload.sku.capacity:
                changes["throughput_units"] = None if payload.sku.capacity == NO_LIMIT else payload.sku.capacity
        if "throughput_units" in changes and changes["throughput_units"] is None:
            if properties.is_auto_inflate_enabled:
                raise bad_request("isAutoInflateEnabled is for namespaces with throughput units")
            changes["auto_inflate_to"] = None
            return _differing(now, changes)
        if properties.is_auto_inflate_enabled is False:
            changes["auto_inflate_to"] = None
        elif properties.is_auto_inflate_enabled or now.auto_inflate_to is not None:
            maximum = properties.maximum_throughput_units or now.auto_inflate_to
            if not maximum:
                raise bad_request("isAutoInflateEnabled needs maximumThroughputUnits: up to how many?")
            changes["auto_inflate_to"] = maximum
        elif properties.maximum_throughput_units:
            raise bad_request("maximumThroughputUnits is for namespaces with isAutoInflateEnabled")
        return _differing(now, changes)

    def _delete(self, request: ArmRequest) -> ArmAnswer:
        if request.names["namespace"].lower() != self._namespace.name.lower():
            return ArmAnswer(204)
        raise conflict(
            f"the namespace {self._namespace.name} is the one that this hub serves and cannot be deleted; "
            "its event hubs can"
        )

    def _network_rules(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        body = {
            "id": f"{namespace_id(self._namespace, request.subscription, request.group)}/networkRuleSets/default",
            "name": "default",
            "type": f"{PROVIDER}/Namespaces/NetworkRuleSets",
            "properties": {
                "defaultAction": "Allow",
                "publicNetworkAccess": "Enabled",
                "virtualNetworkRules": [],
                "ipRules": [],
                "trustedServiceAccessEnabled": False,
            },
        }
        return ArmAnswer(body=body)

    def _nothing(self, request: ArmRequest) -> ArmAnswer:
        check_namespace(self._namespace, request)
        return ArmAnswer(body={"value": []})

    def _check_name(self, request: ArmRequest) -> ArmAnswer:
        name = read_payload(NamePayload, request.body).name
        served = self._namespace.name
        if name.lower() == served.lower():
            reason, message = "NameInUse", f"{served} is the namespace that this hub serves"
        elif not _is_name(name):
            reason, message = "InvalidName", "letters, digits, '.', '-' or '_', beginning and ending with the former"
        else:
            reason = "TooManyNamespaceInCurrentSubscription"
            message = f"this hub serves one namespace, {served}, whose name is in Config.json"
        return ArmAnswer(body={"nameAvailable": False, "reason": reason, "message": message})

    def _resource(self, subscription: str, group: str) -> dict[str, Any]:
        limits = self._namespace.limits
        record = self._resource_groups.record(namespace_key(self._namespace))
        created = time_text(self._resource_groups.created_at)
        tier = limits.tier.value.capitalize()
        sku = {"name": tier, "tier": tier}
        return {
            "id": namespace_id(self._namespace, subscription, group),
            "name": self._namespace.name,
            "type": f"{PROVIDER}/Namespaces",
            "location": record.location,
            "tags": record.tags,
            "sku": sku if limits.throughput_units is None else {**sku, "capacity": limits.throughput_units},
            "properties": {
                "minimumTlsVersion": "1.2",
                "publicNetworkAccess": "Enabled",
                "disableLocalAuth": False,
                "zoneRedundant": False,
                "isAutoInflateEnabled": limits.auto_inflate_to is not None,
                "maximumThroughputUnits": limits.auto_inflate_to or 0,
                "maxMessageSizeInBytes": limits.max_message_bytes,
                "kafkaEnabled": False,
                "provisioningState": "Succeeded",
                "status": "Active",
                "serviceBusEndpoint": self._endpoint(),
                "metricId": f"{subscription}:{self._namespace.name.lower()}",
                "createdAt": created,
                "updatedAt": created,
                "privateEndpointConnections": [],
            },
        }

    def _endpoint(self) -> str:
        """Return where Event Hubs clients connect, as connection strings have it."""
        rule = self._namespace.access.rule_table.root_rule
        return self._connection_string(rule, rule.primary_key, "").partition(";")[0].removeprefix("Endpoint=") + "/"


def _check_access(properties: NamespaceProperties) -> None:
    """Raise ArmError for a setting that would close the namespace to clients that it stays open to."""
    if properties.disable_local_auth:
        raise bad_request(
            "properties.disableLocalAuth: true is not supported: clients sign in with shared access signatures here. "
            "Delete or regenerate the authorization rules whose keys are not to be used"
        )
    if properties.minimum_tls_version == "1.3":
        raise bad_request("properties.minimumTlsVersion: 1.3 is not supported: clients may use TLS 1.2")
    access = properties.public_network_access
    if access is not None and access.lower() != "enabled":
        raise bad_request(
            f"properties.publicNetworkAccess: {access[:40]!r} is not supported; expected Enabled. The option --host of "
            "`tidegate up` and a firewall decide who can connect"
        )


def _differing(limits: NamespaceLimits, changes: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in changes.items() if value != getattr(limits, name)}


def _is_name(name: str) -> bool:
    try:
        check_hub_name(name)
    except ValueError:
        return False
    return True
