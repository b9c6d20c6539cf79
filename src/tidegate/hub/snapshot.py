"""What a namespace holds at one moment, as an immutable value.

A change is another snapshot. It is written before it is served, so a change that cannot be written does not happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidegate.durable_files import read_checked, write_checked
from tidegate.hub.access_rules import NAMESPACE_LEVEL, AccessRule, Right, RuleTable, emulator_rule
from tidegate.hub.config import ConfigError, EventHubConfig, NamespaceLimits
from tidegate.hub.errors import entity_not_found

FILE_NAME = "namespace.json"
_ADVICE = "restore it from a backup"


class RuleState(BaseModel):
    """An access rule with its keys; only the owner of the file may read it."""

    model_config = ConfigDict(extra="forbid")

    name: str
    rights: tuple[Right, ...]
    primary_key: str = Field(repr=False)
    secondary_key: str = Field(repr=False)

    @classmethod
    def of(cls, rule: AccessRule) -> RuleState:
        """Return the rule in the form in which it is kept."""
        rights = tuple(right for right in Right if right in rule.rights)
        return cls(name=rule.name, rights=rights, primary_key=rule.primary_key, secondary_key=rule.secondary_key)

    def rule(self) -> AccessRule:
        """Return the rule that was kept."""
        return AccessRule(self.name, frozenset(self.rights), self.primary_key, self.secondary_key)


class EventHubState(BaseModel):
    """An event hub.

    `configured` is what the configuration said last, so that repeating it does not undo a change made since.
    """

    model_config = ConfigDict(extra="forbid")

    config: EventHubConfig
    configured: EventHubConfig | None = None
    created_at_ms: int
    directory: str
    rules: tuple[RuleState, ...] = ()
    revoked_publishers: tuple[str, ...] = ()


class LimitsState(BaseModel):
    """The current limits, and those that were configured last."""

    model_config = ConfigDict(extra="forbid")

    now: NamespaceLimits
    configured: NamespaceLimits


class NamespaceState(BaseModel):
    """Everything that is kept. `deleted_directories` may still hold events of deleted hubs."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    name: str
    limits: LimitsState | None = None
    rules: tuple[RuleState, ...]
    event_hubs: tuple[EventHubState, ...] = ()
    deleted_directories: tuple[str, ...] = ()


def read_state(directory: Path) -> NamespaceState | None:
    """Return what was kept in the directory, None if nothing was.

    Raises:
        FileDamaged: The file is not as it was written.
        ConfigError: The file holds something else than a namespace.
        OSError: The file cannot be read.
    """
    path = directory / FILE_NAME
    document = read_checked(path, advice=_ADVICE)
    if document is None:
        return None
    try:
        return NamespaceState.model_validate(document)
    except ValidationError as error:
        places = ", ".join(".".join(map(str, item["loc"])) or item["msg"] for item in error.errors(include_url=False))
        raise ConfigError(f"{path} cannot be used (look at: {places}); {_ADVICE}") from None


def write_state(directory: Path, state: NamespaceState) -> None:
    """Keep the state, durably. Raises OSError."""
    write_checked(directory / FILE_NAME, state.model_dump(mode="json"), indented=True, mode=0o600)


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
        # The others are not named: a token of one group may come here, and one that may only send.
        hub = self.config.name
        raise entity_not_found(
            f"{hub}/ConsumerGroups/{name}",
            f"the event hub {hub} has no consumer group {name!r}; create it, or read in $Default, which every hub has",
        )


@dataclass(frozen=True, slots=True)
class NamespaceSnapshot:
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
    limits: NamespaceLimits
    configured_limits: NamespaceLimits
    rules: RuleTable = field(default_factory=lambda: RuleTable.of_namespace([emulator_rule()]))
    hubs: Mapping[str, HubDefinition] = field(default_factory=lambda: MappingProxyType({}))
    deleted_directories: frozenset[str] = frozenset()

    @classmethod
    def from_state(cls, state: NamespaceState, configured: NamespaceLimits) -> NamespaceSnapshot:
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

    def with_hub(self, hub: HubDefinition) -> NamespaceSnapshot:
        """Return the snapshot with a hub added, or in place of the one of its name."""
        return replace(self, hubs=MappingProxyType({**self.hubs, hub.key: hub}))

    def without_hub(self, name: str) -> NamespaceSnapshot:
        """Return the snapshot without a hub and its rules. Raises NotFound."""
        hub = self.hub(name)
        return replace(
            self,
            hubs=MappingProxyType({key: other for key, other in self.hubs.items() if key != hub.key}),
            rules=self.rules.without_hub(hub.key),
            deleted_directories=self.deleted_directories | {hub.directory},
        )
