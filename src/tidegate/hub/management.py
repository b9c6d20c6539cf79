"""Management while the hub runs: creating, changing and deleting what a namespace holds.

Every method returns after its change is durable. If it raises, nothing has changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from pydantic import ValidationError

from tidegate.hub.access_rules import NAMESPACE_LEVEL, AccessRule, Right
from tidegate.hub.config import EventHubConfig, NamespaceLimits
from tidegate.hub.errors import AlreadyExists, ArgumentError, QuotaExceeded
from tidegate.hub.event_hub import EventHub, with_changes, with_group, without_group
from tidegate.hub.registry import Registry
from tidegate.hub.snapshot import HubDefinition, NamespaceSnapshot
from tidegate.log import Clock

_NAME_IN_DIRECTORY = 200


def new_definition(config: EventHubConfig, created_at_ms: int) -> HubDefinition:
    """Return a new hub with a folder that no hub had before, so that it cannot find a deleted hub's events."""
    # a file's name has at most 255 bytes
    directory = f"{config.name.lower()[:_NAME_IN_DIRECTORY]}-{uuid.uuid4().hex[:8]}"
    return HubDefinition(config, config, created_at_ms, directory)


@contextmanager
def _explaining(what: str) -> Iterator[None]:
    """Turn a value that the configuration rejects into the caller's mistake."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # What a group is refused for, `what` names already.
        place = "".join(f"{step}: " for step in first["loc"][:1] if step != "consumer_groups")
        raise ArgumentError(f"{what}: {place}{first['msg'].removeprefix('Value error, ')}") from None


def _check_level(snapshot: NamespaceSnapshot, hub_name: str) -> None:
    if hub_name != NAMESPACE_LEVEL:
        snapshot.hub(hub_name)


class Management:
    """Changes the hubs, consumer groups, access rules, publishers and limits of a registry."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock

    def update_limits(self, **changes: object) -> NamespaceLimits:
        """Set another tier, other throughput units (None: no limit) or another auto_inflate_to (None: off).

        Open links keep the largest publication they were attached with. Raises ArgumentError, OSError.
        """
        with self._registry.changing() as snapshot:
            with _explaining(f"namespace {snapshot.name}"):
                limits = NamespaceLimits(**{**snapshot.limits.model_dump(), **changes})
            self._registry.commit(snapshot, limits=limits)
        return limits

    # -- event hubs

    def create_event_hub(self, config: EventHubConfig) -> EventHub:
        """Create an event hub. Raises AlreadyExists, QuotaExceeded, LogError, OSError."""
        with self._registry.changing() as snapshot:
            if config.name.lower() in snapshot.hubs:
                raise AlreadyExists(f"there is an event hub {config.name} already")
            try:
                snapshot.limits.check_event_hub(config)
            except ValueError as error:
                raise QuotaExceeded(str(error)) from None
            hub = new_definition(config, self._clock.now_ms())
            self._registry.commit(snapshot.with_hub(hub))
            return self._registry.event_hubs[hub.key]

    def update_event_hub(self, name: str, **changes: object) -> EventHub:
        """Change fields of a hub's configuration: retention, capture, user metadata.

        Raises NotFound, ArgumentError (also for the partition count, which is fixed), OSError.
        """
        with self._registry.changing() as snapshot:
            hub = snapshot.hub(name)
            created_with = hub.config.partition_count
            if changes.pop("partition_count", created_with) != created_with:
                raise ArgumentError(
                    f"the event hub {hub.config.name} was created with {created_with} partitions, which cannot change: "
                    "create another one"
                )
            with _explaining(f"event hub {hub.config.name}"):
                self._configure(snapshot, hub, with_changes(hub.config, **changes))
            return self._registry.event_hubs[hub.key]

    def add_partitions(self, name: str, partition_count: int) -> EventHub:
        """Give a hub more partitions, up to a count. Keys are placed anew from then on.

        Raises NotFound, ArgumentError, QuotaExceeded, LogError, OSError.
        """
        with self._registry.changing() as snapshot:
            hub = snapshot.hub(name)
            now = hub.config.partition_count
            if partition_count <= now:
                raise ArgumentError(f"the event hub {hub.config.name} has {now} partitions: ask for more than those")
            with _explaining(f"event hub {hub.config.name}"):
                config = with_changes(hub.config, partition_count=partition_count)
            try:
                snapshot.limits.check_event_hub(config)
            except ValueError as error:
                raise QuotaExceeded(str(error)) from None
            self._configure(snapshot, hub, config)
            return self._registry.event_hubs[hub.key]

    def delete_event_hub(self, name: str) -> None:
        """Delete a hub with its events and rules. Events still in use are removed later. Raises NotFound, OSError."""
        with self._registry.changing() as snapshot:
            self._registry.commit(snapshot.without_hub(name))

    def _configure(self, snapshot: NamespaceSnapshot, hub: HubDefinition, config: EventHubConfig) -> None:
        self._registry.commit(snapshot.with_hub(replace(hub, config=config)))

    # -- consumer groups

    def create_consumer_group(self, hub_name: str, name: str, user_metadata: str = "") -> None:
        """Create a consumer group. Raises NotFound, ArgumentError, AlreadyExists, QuotaExceeded, OSError."""
        with self._registry.changing() as snapshot:
            hub = snapshot.hub(hub_name)
            groups = hub.config.consumer_groups
            if name.lower() in map(str.lower, groups):
                raise AlreadyExists(f"the event hub {hub.config.name} has a consumer group {name} already")
            limit = snapshot.limits.max_consumer_groups
            if len(groups) > limit:
                raise QuotaExceeded(f"an event hub has at most {limit} consumer groups besides $Default")
            with _explaining(f"consumer group {name!r}"):
                self._configure(snapshot, hub, with_group(hub.config, name, user_metadata))

    def update_consumer_group(self, hub_name: str, name: str, user_metadata: str) -> None:
        """Change a consumer group's user metadata. Raises NotFound, ArgumentError, OSError."""
        with self._registry.changing() as snapshot:
            hub = snapshot.hub(hub_name)
            key = hub.consumer_group(name).lower()
            metadata = {**hub.config.group_metadata, key: user_metadata}
            self._configure(snapshot, hub, with_changes(hub.config, group_metadata=metadata))

    def delete_consumer_group(self, hub_name: str, name: str) -> None:
        """Delete a consumer group. Raises NotFound, ArgumentError for $Default, OSError."""
        with self._registry.changing() as snapshot:
            hub = snapshot.hub(hub_name)
            config = without_group(hub.config, hub.consumer_group(name))
            if config == hub.config:
                raise ArgumentError("the consumer group $Default cannot be deleted")
            self._configure(snapshot, hub, config)

    # -- access rules, of the namespace unless a hub is named

    def create_access_rule(self, rule: AccessRule, hub_name: str = NAMESPACE_LEVEL) -> None:
        """Add a rule. Raises NotFound, ArgumentError, AlreadyExists, QuotaExceeded, OSError."""
        with self._registry.changing() as snapshot:
            _check_level(snapshot, hub_name)
            if snapshot.rules.find(rule.name, hub_name) is not None:
                raise AlreadyExists(f"there is an access rule {rule.name} already")
            self._set_rule(snapshot, rule, hub_name)

    def update_access_rule(self, name: str, rights: Iterable[Right], hub_name: str = NAMESPACE_LEVEL) -> AccessRule:
        """Give a rule other rights; it keeps its keys. Raises NotFound, ArgumentError, OSError."""
        with self._registry.changing() as snapshot:
            _check_level(snapshot, hub_name)
            rule = replace(snapshot.rules.rule(name, hub_name), rights=frozenset(rights))
            self._set_rule(snapshot, rule, hub_name)
        return rule

    def set_access_rule(self, rule: AccessRule, hub_name: str = NAMESPACE_LEVEL) -> None:
        """Add or replace a rule. Raises NotFound, ArgumentError, QuotaExceeded, OSError."""
        with self._registry.changing() as snapshot:
            _check_level(snapshot, hub_name)
            self._set_rule(snapshot, rule, hub_name)

    def delete_access_rule(self, name: str, hub_name: str = NAMESPACE_LEVEL) -> None:
        """Delete a rule. Raises NotFound, ArgumentError for the namespace's last rule that may manage, OSError."""
        with self._registry.changing() as snapshot:
            _check_level(snapshot, hub_name)
            self._registry.commit(replace(snapshot, rules=snapshot.rules.without_rule(name, hub_name)))

    def roll_key(self, name: str, which: str, hub_name: str = NAMESPACE_LEVEL) -> AccessRule:
        """Give a rule a new "primary" or "secondary" key; tokens signed with the former one end.

        Raises NotFound, ArgumentError, OSError.
        """
        with self._registry.changing() as snapshot:
            _check_level(snapshot, hub_name)
            rule = snapshot.rules.rule(name, hub_name).with_new_key(which)
            self._set_rule(snapshot, rule, hub_name)
        return rule

    def _set_rule(self, snapshot: NamespaceSnapshot, rule: AccessRule, hub_name: str) -> None:
        self._registry.commit(replace(snapshot, rules=snapshot.rules.with_rule(rule, hub_name)))

    # -- publishers

    def revoke_publisher(self, hub_name: str, publisher: str) -> None:
        """Refuse a publisher from now on, even with a valid token. Raises NotFound, OSError."""
        with self._registry.changing() as snapshot:
            hub = snapshot.hub(hub_name)
            revoked = hub.revoked_publishers | {publisher.lower()}
            self._registry.commit(snapshot.with_hub(replace(hub, revoked_publishers=revoked)))

    def restore_publisher(self, hub_name: str, publisher: str) -> None:
        """Admit a revoked publisher again. Raises NotFound, OSError."""
        with self._registry.changing() as snapshot:
            hub = snapshot.hub(hub_name)
            revoked = hub.revoked_publishers - {publisher.lower()}
            self._registry.commit(snapshot.with_hub(replace(hub, revoked_publishers=revoked)))
