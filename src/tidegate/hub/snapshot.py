"""What a namespace holds at one moment, as an immutable value.

A change is another snapshot. It is written before it is served, so a change that cannot be written does not happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tidegate.hub.access_rules import NAMESPACE_LEVEL, RuleTable, emulator_rule
from tidegate.hub.config import EventHubConfig, Limits
from tidegate.hub.errors import entity_not_found
from tidegate.hub.state import EventHubState, LimitsState, NamespaceState, RuleState


@dataclass(frozen=True, slots=True)
class HubDefinition:
    """An event hub without its events.

    Attributes:
        config: Its settings.
        configured: What the configuration said last, None for a hub that it never named.
        created_at_ms: When it was created.
        directory: The name of its folder, never used again for another hub.
        revoked_publishers: In lower case.
    """

    config: EventHubConfig
    configured: EventHubConfig | None
    created_at_ms: int
    directory: str
    revoked_publishers: frozenset[str] = frozenset()

    @classmethod
    def from_state(cls, state: EventHubState) -> HubDefinition:
        """Return the hub that was kept."""
        revoked = frozenset(name.lower() for name in state.revoked_publishers)
        return cls(state.config, state.configured, state.created_at_ms, state.directory, revoked)

    @property
    def key(self) -> str:
        """The name in lower case."""
        return self.config.name.lower()

    def consumer_group(self, name: str) -> str:
        """Return a consumer group's name as it was given. Raises NotFound."""
        for group in self.config.consumer_groups:
            if group.lower() == name.lower():
                return group
        hub = self.config.name
        raise entity_not_found(f"{hub}/ConsumerGroups/{name}", f"the event hub {hub} has no consumer group {name!r}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The hubs by their names in lower case, the rules and the limits of a namespace.

    Attributes:
        name: The namespace's name.
        limits: The current limits; auto-inflate may have raised them since.
        configured_limits: What the configuration said last.
        rules: The access rules of all levels.
        hubs: The hubs.
        deleted_directories: Folders of deleted hubs that may still be there.
    """

    name: str
    limits: Limits
    configured_limits: Limits
    rules: RuleTable = field(default_factory=lambda: RuleTable.of_namespace([emulator_rule()]))
    hubs: Mapping[str, HubDefinition] = field(default_factory=lambda: MappingProxyType({}))
    deleted_directories: frozenset[str] = frozenset()

    @classmethod
    def from_state(cls, state: NamespaceState, configured: Limits) -> Snapshot:
        """Return what was kept; limits that the configuration has changed since are taken from there."""
        limits = configured
        if state.limits is not None and state.limits.configured == configured:
            limits = state.limits.now
        levels = {NAMESPACE_LEVEL: state.rules, **{hub.config.name.lower(): hub.rules for hub in state.event_hubs}}
        rules = RuleTable({level: {rule.name.lower(): rule.rule() for rule in kept} for level, kept in levels.items()})
        hubs = {hub.config.name.lower(): HubDefinition.from_state(hub) for hub in state.event_hubs}
        return cls(state.name, limits, configured, rules, MappingProxyType(hubs), frozenset(state.deleted_directories))

    def to_state(self) -> NamespaceState:
        """Return the snapshot in the form in which it is kept."""
        hubs = [
            EventHubState(
                config=hub.config,
                configured=hub.configured,
                created_at_ms=hub.created_at_ms,
                directory=hub.directory,
                rules=tuple(map(RuleState.of, self.rules.rules(key))),
                revoked_publishers=tuple(sorted(hub.revoked_publishers)),
            )
            for key, hub in self.hubs.items()
        ]
        return NamespaceState(
            name=self.name,
            limits=LimitsState(now=self.limits, configured=self.configured_limits),
            rules=tuple(map(RuleState.of, self.rules.rules())),
            event_hubs=tuple(hubs),
            deleted_directories=tuple(sorted(self.deleted_directories)),
        )

    def hub(self, name: str) -> HubDefinition:
        """Return a hub by its name in any case. Raises NotFound."""
        hub = self.hubs.get(name.lower())
        if hub is None:
            raise entity_not_found(name, f"the namespace {self.name} has no event hub {name!r}")
        return hub

    def with_hub(self, hub: HubDefinition) -> Snapshot:
        """Return the snapshot with a hub added, or in place of the one of its name."""
        return replace(self, hubs=MappingProxyType({**self.hubs, hub.key: hub}))

    def without_hub(self, name: str) -> Snapshot:
        """Return the snapshot without a hub and its rules. Raises NotFound."""
        hub = self.hub(name)
        return replace(
            self,
            hubs=MappingProxyType({key: other for key, other in self.hubs.items() if key != hub.key}),
            rules=self.rules.without_hub(hub.key),
            deleted_directories=self.deleted_directories | {hub.directory},
        )
