"""Event hubs that a job names by the namespace of this server: they are reached here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidegate import outbound
from tidegate.azure.management.stream_analytics.document import is_described, parts_of
from tidegate.hub.access_rules import AccessRule
from tidegate.hub.namespace import Namespace
from tidegate.outbound import AddressPolicy
from tidegate.service import JobDocument

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
