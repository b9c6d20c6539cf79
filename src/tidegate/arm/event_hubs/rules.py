"""Authorization rules of the namespace and of event hubs, and their keys.

The key of the namespace's root rule is also a credential of this API, that of an owner. So only an owner may list or
change what belongs to that rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidegate.arm.event_hubs.names import EVENT_HUB_PATH, NAMESPACE_PATH, check_namespace, envelope, namespace_id
from tidegate.arm.event_hubs.payloads import KeyPayload, RulePayload
from tidegate.arm.manager.state import DEFAULT_LOCATION
from tidegate.arm.model.errors import bad_request
from tidegate.arm.model.operations import Operation
from tidegate.arm.model.requests import ArmAnswer, ArmRequest, read_payload
from tidegate.hub.access_rules import AccessRule, Right, is_root_rule
from tidegate.hub.config import check_hub_name
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
