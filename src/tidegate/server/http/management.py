"""What the operations of the management API do to the namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from tidegate.hub.access_rules import AccessRule
from tidegate.hub.addresses import split_address
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.store import StoreError, open_store
from tidegate.hub.config import EventHubConfig, check_hub_name
from tidegate.hub.errors import ArgumentError, NotFound
from tidegate.hub.event_hub import EventHub
from tidegate.hub.namespace import Namespace
from tidegate.server.http.resources import (
    AuthorizationRuleKeys,
    AuthorizationRuleResource,
    AuthorizationRuleSettings,
    CaptureSettings,
    ConsumerGroupResource,
    ConsumerGroupSettings,
    EventHubChanges,
    EventHubCreation,
    EventHubResource,
    KeyChoice,
    NamespaceChanges,
    NamespaceResource,
    RevokedPublisher,
    retention_ms,
)

Names = Mapping[str, str]
"""The names in a request's path, by what they are of: `hub`, `group`, `rule`, `publisher`."""


class Management:
    """What the operations do. Called in worker threads; names come from the path, the body is a checked model."""

    def __init__(
        self,
        namespace: Namespace,
        default_capture: CaptureDescription | None,
        connection_string: Callable[[AccessRule, str, str], str],
    ) -> None:
        self._namespace = namespace
        self._connection_string = connection_string
        self._default_capture = default_capture

    def show_namespace(self, names: Names, body: None) -> NamespaceResource:
        return NamespaceResource.of(self._namespace.name, self._namespace.limits)

    def update_namespace(self, names: Names, body: NamespaceChanges) -> NamespaceResource:
        try:
            changes = body.changes()
        except ValueError as error:
            raise ArgumentError(f"namespace {self._namespace.name}: {error}") from None
        self._namespace.management.update_limits(**changes)
        return self.show_namespace(names, None)

    def list_event_hubs(self, names: Names, body: None) -> list[EventHubResource]:
        return [self._event_hub(hub) for hub in self._namespace.event_hubs.values()]

    def show_event_hub(self, names: Names, body: None) -> EventHubResource:
        return self._event_hub(self._namespace.event_hub(names["hub"]))

    def create_event_hub(self, names: Names, body: EventHubCreation) -> EventHubResource:
        try:
            config = EventHubConfig(
                name=names["hub"],
                partition_count=body.partition_count,
                retention_ms=retention_ms(body.retention_time_in_hours),
                retention_bytes=body.retention_size_in_bytes,
                user_metadata=body.user_metadata,
                capture=None if body.capture is None else self._capture(body.capture, self._default_capture),
            )
        except ValidationError as error:
            raise ArgumentError(f"event hub {names['hub']!r}: {reasons(error)}") from None
        return self._event_hub(self._namespace.management.create_event_hub(config))

    def update_event_hub(self, names: Names, body: EventHubChanges) -> EventHubResource:
        changes = body.changes()
        if "capture" in body.model_fields_set:
            former = self._namespace.event_hub(names["hub"]).config.capture or self._default_capture
            changes["capture"] = body.capture and self._capture(body.capture, former)
        return self._event_hub(self._namespace.management.update_event_hub(names["hub"], **changes))

    def _event_hub(self, hub: EventHub) -> EventHubResource:
        return EventHubResource.of(hub, self._default_capture)

    @staticmethod
    def _capture(settings: CaptureSettings, former: CaptureDescription | None) -> CaptureDescription:
        """What is asked for, tried as far as can be without writing anything. Raises ArgumentError."""
        try:
            description = settings.over(former)
            if "://" not in description.destination:
                # the same folder also after a start from another one
                folder = str(Path(description.destination).absolute())
                description = description.model_copy(update={"destination": folder})
            if description.enabled:
                open_store(description.destination)
        except ValidationError as error:
            raise ArgumentError(f"capture: {reasons(error)}") from None
        except (StoreError, ModuleNotFoundError) as error:
            raise ArgumentError(f"capture: destination: {error}") from None
        return description

    def delete_event_hub(self, names: Names, body: None) -> None:
        self._namespace.management.delete_event_hub(names["hub"])

    def list_consumer_groups(self, names: Names, body: None) -> list[ConsumerGroupResource]:
        hub = self._namespace.event_hub(names["hub"])
        return [ConsumerGroupResource.of(hub, group) for group in hub.consumer_groups]

    def show_consumer_group(self, names: Names, body: None) -> ConsumerGroupResource:
        return ConsumerGroupResource.of(self._namespace.event_hub(names["hub"]), names["group"])

    def create_consumer_group(self, names: Names, body: ConsumerGroupSettings) -> ConsumerGroupResource:
        self._namespace.management.create_consumer_group(names["hub"], names["group"], body.user_metadata)
        return self.show_consumer_group(names, None)

    def update_consumer_group(self, names: Names, body: ConsumerGroupSettings) -> ConsumerGroupResource:
        self._namespace.management.update_consumer_group(names["hub"], names["group"], body.user_metadata)
        return self.show_consumer_group(names, None)

    def delete_consumer_group(self, names: Names, body: None) -> None:
        self._namespace.management.delete_consumer_group(names["hub"], names["group"])

    def list_authorization_rules(self, names: Names, body: None) -> list[AuthorizationRuleResource]:
        return [
            AuthorizationRuleResource.of(rule) for rule in self._namespace.access.rule_table.rules(names.get("hub", ""))
        ]

    def show_authorization_rule(self, names: Names, body: None) -> AuthorizationRuleResource:
        return AuthorizationRuleResource.of(self._rule(names))

    def create_authorization_rule(self, names: Names, body: AuthorizationRuleSettings) -> AuthorizationRuleResource:
        try:
            rule = AccessRule.create(check_hub_name(names["rule"]), body.as_rights())
        except ValueError as error:
            raise ArgumentError(f"authorization rule {names['rule']!r}: {error}") from None
        self._namespace.management.create_access_rule(rule, names.get("hub", ""))
        return AuthorizationRuleResource.of(rule)

    def update_authorization_rule(self, names: Names, body: AuthorizationRuleSettings) -> AuthorizationRuleResource:
        rule = self._namespace.management.update_access_rule(names["rule"], body.as_rights(), names.get("hub", ""))
        return AuthorizationRuleResource.of(rule)

    def delete_authorization_rule(self, names: Names, body: None) -> None:
        self._namespace.management.delete_access_rule(names["rule"], names.get("hub", ""))

    def list_keys(self, names: Names, body: None) -> AuthorizationRuleKeys:
        return self._keys(self._rule(names), names)

    def renew_key(self, names: Names, body: KeyChoice) -> AuthorizationRuleKeys:
        return self._keys(self._namespace.management.roll_key(names["rule"], body.key, names.get("hub", "")), names)

    def list_revoked_publishers(self, names: Names, body: None) -> list[RevokedPublisher]:
        revoked = self._namespace.event_hub(names["hub"]).revoked_publishers
        return [RevokedPublisher(name=name) for name in sorted(revoked)]

    def revoke_publisher(self, names: Names, body: None) -> RevokedPublisher:
        (name,) = split_address(names["publisher"])
        self._namespace.management.revoke_publisher(names["hub"], name)
        return RevokedPublisher(name=name.lower())

    def restore_publisher(self, names: Names, body: None) -> None:
        if not self._namespace.event_hub(names["hub"]).is_revoked(names["publisher"]):
            raise NotFound(f"the publisher {names['publisher']!r} is not revoked")
        self._namespace.management.restore_publisher(names["hub"], names["publisher"])

    def _rule(self, names: Names) -> AccessRule:
        return self._namespace.access.rule_table.rule(names["rule"], names.get("hub", ""))

    def _keys(self, rule: AccessRule, names: Names) -> AuthorizationRuleKeys:
        hub = self._namespace.event_hub(names["hub"]).name if "hub" in names else ""
        return AuthorizationRuleKeys(
            key_name=rule.name,
            primary_key=rule.primary_key,
            secondary_key=rule.secondary_key,
            primary_connection_string=self._connection_string(rule, rule.primary_key, hub),
            secondary_connection_string=self._connection_string(rule, rule.secondary_key, hub),
        )


def reasons(error: ValidationError) -> str:
    """Every mistake with its place. The values are left out: they may be anything, and long."""
    return "; ".join(
        ": ".join(
            (
                ".".join(to_camel(str(step)) for step in item["loc"]) or "the document",
                item["msg"].removeprefix("Value error, "),
            )
        )
        for item in error.errors(include_url=False, include_input=False)
    )
