"""A namespace: the event hubs of one data directory, and the doors to them.

The server calls `put_token`, `open_publisher`, `open_reader` and `management_read`; the rest creates, changes and
deletes while the hub runs. What must survive a restart is in `namespace.json`; a change that cannot be written
there does not happen.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from tidegate.durable_files import DirectoryLock
from tidegate.hub.access import Access, AccessRule, Grant, Right, emulator_rule
from tidegate.hub.addresses import path_of, publish_target, receive_source
from tidegate.hub.config import MAX_CONSUMER_GROUPS, ConfigError, EventHubConfig, Limits, NamespaceConfig
from tidegate.hub.errors import (
    AlreadyExists,
    ArgumentError,
    HubError,
    NotFound,
    PublisherRevoked,
    QuotaExceeded,
    Unauthorized,
)
from tidegate.hub.event_hub import EventHub, HubProperties, open_partitions, with_changes, with_group, without_group
from tidegate.hub.partition import Partition, PartitionProperties
from tidegate.hub.positions import first_sequence_number, parse_selector
from tidegate.hub.publish import Publisher
from tidegate.hub.reader import Reader
from tidegate.hub.state import EventHubState, LimitsState, NamespaceState, RuleState, read_state, write_state
from tidegate.hub.throughput import Throughput
from tidegate.log import Clock, Committer

__all__ = ["EventHub", "HubProperties", "Namespace", "Partition", "PartitionProperties", "Publisher", "Reader"]

_logger = logging.getLogger(__name__)
_HUBS = "hubs"
_NAME_IN_DIRECTORY = 200


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """A value that the configuration does not take is the caller's mistake."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"{step}: " for step in first["loc"][:1])
        raise ArgumentError(f"{what}: {place}{first['msg'].removeprefix('Value error, ')}") from None


class Namespace:
    """The hubs of one data directory. Use `open`. Safe to call from any thread."""

    def __init__(
        self,
        data_dir: Path,
        config: NamespaceConfig,
        clock: Clock,
        committer: Committer,
        durable: bool,
        directory_lock: DirectoryLock,
        monotonic_s: Callable[[], float],
    ) -> None:
        """Use `open`."""
        self.name = config.name
        self.access = Access()
        self._data_dir = data_dir
        self._configured_limits = config.limits
        self._tier = config.tier
        self.throughput = Throughput(
            config.throughput_units, config.auto_inflate_to, monotonic_s, lambda: committer.submit(self._keep)
        )
        self._clock = clock
        self._committer = committer
        self._durable = durable
        self._directory_lock = directory_lock
        self._lock = threading.RLock()
        self._hubs: dict[str, EventHub] = {}
        self._directories: dict[str, str] = {}
        self._deleted_directories: frozenset[str] = frozenset()
        self._closed = False

    @classmethod
    def open(
        cls,
        data_dir: Path,
        config: NamespaceConfig,
        *,
        clock: Clock,
        committer: Committer,
        durable: bool = True,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> Namespace:
        """Serve what the data directory holds and, beside it, what the configuration names.

        monotonic_s is the clock of throughput units.

        Raises ConfigError when the two contradict each other (a partition count is fixed at creation), DirectoryLocked,
        LogError, OSError.
        """
        directory_lock = DirectoryLock(data_dir)
        namespace = cls(data_dir, config, clock, committer, durable, directory_lock, monotonic_s)
        try:
            namespace._load(config)
        except BaseException:
            namespace.close()
            raise
        return namespace

    def _load(self, config: NamespaceConfig) -> None:
        state = read_state(self._data_dir)
        rules = [rule.rule() for rule in state.rules] if state else [emulator_rule()]
        self.access = Access(rules, lambda name: name.lower() in self._hubs)
        if state and state.limits and state.limits.configured == config.limits:
            self._apply_limits(state.limits.now)  # changed since, and the configuration says what it said then
        self._deleted_directories = frozenset(state.deleted_directories) if state else frozenset()
        self._remove_deleted()
        known = {hub.config.name.lower(): hub for hub in state.event_hubs} if state else {}
        for hub in config.event_hubs:
            former = known.get(hub.name.lower())
            if former is not None and former.config.partition_count != hub.partition_count:
                raise ConfigError(
                    f"event hub {hub.name}: configured with {hub.partition_count} partitions, but it was "
                    f"created with {former.config.partition_count}, which cannot change: set it back, give the hub "
                    "another name, or delete it with its events"
                )
        for hub_state in known.values():
            self._serve(hub_state)
        for hub in config.event_hubs:
            self._merge(hub)
        self._save()

    def _serve(self, state: EventHubState) -> EventHub:
        config = state.config
        directory = self._data_dir / _HUBS / state.directory
        partitions = open_partitions(config, directory, self._clock, self._committer, self._durable)
        hub = EventHub(config, state.created_at_ms, partitions, self._tier.max_message_bytes, state.revoked_publishers)
        hub.configured = state.configured
        hub.throughput = self._limiting()
        # other threads go through the hubs meanwhile: replaced, never changed
        self._hubs = {**self._hubs, config.name.lower(): hub}
        self._directories[config.name.lower()] = state.directory
        for rule in state.rules:
            self.access.set_rule(rule.rule(), config.name)
        return hub

    def _merge(self, config: EventHubConfig) -> None:
        """A hub that the configuration names is there, with its groups and those that were added to it since."""
        hub = self._hubs.get(config.name.lower())
        if hub is None:
            self._serve(self._new_state(config))
            return
        there = {group.lower() for group in config.consumer_groups}
        added = [group for group in hub.consumer_groups if group.lower() not in there]
        changes: dict[str, object] = {"consumer_groups": (*config.consumer_groups, *added)}
        former = hub.configured
        for field in ("retention_ms", "retention_bytes", "capture"):
            said = getattr(config, field)
            if said is not None and (former is None or getattr(former, field) != said):
                changes[field] = said
        hub.config = hub.config.model_copy(update=changes)
        hub.configured = config

    def _new_state(self, config: EventHubConfig) -> EventHubState:
        # a hub that is deleted and created again must not find the former one's events; a file's name has 255 bytes
        directory = f"{config.name.lower()[:_NAME_IN_DIRECTORY]}-{uuid.uuid4().hex[:8]}"
        return EventHubState(config=config, configured=config, created_at_ms=self._clock.now_ms(), directory=directory)

    def _save(self) -> None:
        hubs = [
            EventHubState(
                config=hub.config,
                configured=hub.configured,
                created_at_ms=hub.created_at_ms,
                directory=self._directories[name],
                rules=tuple(map(RuleState.of, self.access.rules(name))),
                revoked_publishers=tuple(sorted(hub.revoked_publishers)),
            )
            for name, hub in self._hubs.items()
        ]
        rules = tuple(map(RuleState.of, self.access.rules()))
        deleted = tuple(sorted(self._deleted_directories))
        state = NamespaceState(
            name=self.name,
            limits=LimitsState(now=self.limits, configured=self._configured_limits),
            rules=rules,
            event_hubs=tuple(hubs),
            deleted_directories=deleted,
        )
        write_state(self._data_dir, state)

    def _keep(self) -> None:
        """Auto-inflate has added a unit: it is still there after a restart."""
        with self._lock:
            if self._closed:
                return
            try:
                self._save()
            except OSError as error:
                _logger.warning("the throughput units cannot be written down: %s", error)

    # -- limits

    @property
    def limits(self) -> Limits:
        """As they are now, auto-inflate's steps with them."""
        throughput = self.throughput
        return Limits(tier=self._tier, throughput_units=throughput.units, auto_inflate_to=throughput.auto_inflate_to)

    def update_limits(self, **changes: object) -> Limits:
        """Have another tier, other throughput units (None: no limit) or another auto_inflate_to (None: off).

        Links that are open keep the largest publication they were told of. Raises ArgumentError, OSError.
        """
        with self._change():
            with _explained(f"namespace {self.name}"):
                limits = Limits(**{**self.limits.model_dump(), **changes})
            self._apply_limits(limits)
        return limits

    def _apply_limits(self, limits: Limits) -> None:
        self._tier = limits.tier
        self.throughput.set(limits.throughput_units, limits.auto_inflate_to)
        for hub in self._hubs.values():
            hub.max_message_bytes = limits.max_message_bytes
            hub.throughput = self._limiting()

    def _limiting(self) -> Throughput | None:
        """None where there is no limit: publishers then need not ask."""
        return None if self.throughput.units is None else self.throughput

    # -- the doors

    @property
    def event_hubs(self) -> Mapping[str, EventHub]:
        """The hubs by their names in lower case."""
        return self._hubs

    def event_hub(self, name: str) -> EventHub:
        """A hub by its name, whatever its case. Raises NotFound."""
        hub = self._hubs.get(name.lower())
        if hub is None:
            raise NotFound(f"the namespace {self.name} has no event hub {name!r}")
        return hub

    def put_token(self, audience: str, token: str, now_s: float) -> Grant:
        """$cbs put-token. Raises NotFound for a hub that is not there, Unauthorized, ArgumentError."""
        path = path_of(audience)
        grant = self.access.check_token(token, now_s)
        if path:
            self.event_hub(path[0])  # which hubs there are is not for everybody to know
        covers = path[: len(grant.scope)] == grant.scope or grant.scope[: len(path)] == path
        if not covers:
            raise Unauthorized("the token is for another resource than the one it is put for")
        return grant

    def open_publisher(
        self,
        address: str,
        grants: Sequence[Grant],
        now_s: float,
        *,
        idempotent: bool = False,
        properties: Mapping[str, object] | None = None,
    ) -> Publisher:
        """A publisher on the target `hub`, `hub/Partitions/N` or `hub/Publishers/NAME`.

        properties are those of the attach, with plain keys and values. Raises NotFound, Unauthorized, ArgumentError,
        PublisherRevoked, NotAllowed, ProducerFenced, ServerBusy.
        """
        target = publish_target(address)
        grant = self.access.authorize(grants, Right.SEND, target.path, now_s)
        hub = self.event_hub(target.hub)
        if target.publisher is not None and hub.is_revoked(target.publisher):
            raise PublisherRevoked(f"the publisher {target.publisher} is revoked")
        publisher = Publisher(hub, target, self.access, grant)
        if idempotent:
            publisher.be_idempotent(dict(properties or {}))
        return publisher

    def open_reader(
        self,
        address: str,
        grants: Sequence[Grant],
        now_s: float,
        *,
        selector: str | None = None,
        epoch: int | None = None,
        receiver_name: str = "",
        on_stolen: Callable[[HubError], None],
    ) -> Reader:
        """A reader on the source `hub/ConsumerGroups/GROUP/Partitions/N`, from where the selector filter's text says.

        on_stolen is called, in the thread of the open_reader that causes it, when a reader with an owner level takes
        over. Raises NotFound, Unauthorized, ArgumentError, LinkStolen, QuotaExceeded.
        """
        source = receive_source(address)
        grant = self.access.authorize(grants, Right.LISTEN, source.path, now_s)
        hub = self.event_hub(source.hub)
        group = hub.consumer_group(source.consumer_group)
        partition = hub.partition(source.partition_id)
        first = first_sequence_number(parse_selector(selector), partition.log)
        slots = partition.reader_slots(group)
        slot = slots.occupy(epoch, receiver_name, on_stolen)
        return Reader(hub, partition, first, slots, slot, source, self.access, grant)

    def management_read(self, address: str, grants: Sequence[Grant], now_s: float) -> EventHub:
        """The hub whose properties a client may ask for. Raises NotFound, Unauthorized, ArgumentError."""
        path = path_of(address)
        if not path:
            raise ArgumentError("properties are those of an event hub: name one")
        self.access.authorize_any(grants, path[0], now_s)
        return self.event_hub(path[0])

    # -- management while running

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Change what is kept, all of it or nothing: if it cannot be written, it is as before in memory too."""
        with self._lock:
            hubs, directories, rules = self._hubs, dict(self._directories), self.access.all_rules()
            deleted, limits = self._deleted_directories, self.limits
            settings = {hub: (hub.config, hub.revoked_publishers) for hub in hubs.values()}
            try:
                yield
                self._save()
            except BaseException:
                added = [hub for name, hub in self._hubs.items() if name not in hubs]
                self._hubs, self._directories, self._deleted_directories = hubs, directories, deleted
                self.access.restore_rules(rules)
                if self.limits != limits:
                    self._apply_limits(limits)
                for hub, (config, revoked) in settings.items():
                    hub.config, hub.revoked_publishers = config, revoked
                for hub in added:
                    hub.close()
                raise

    def create_event_hub(self, config: EventHubConfig) -> EventHub:
        """Raises AlreadyExists, LogError, OSError."""
        state = self._new_state(config)
        try:
            with self._change():
                if config.name.lower() in self._hubs:
                    raise AlreadyExists(f"there is an event hub {config.name} already")
                return self._serve(state)
        except BaseException:
            shutil.rmtree(self._data_dir / _HUBS / state.directory, ignore_errors=True)
            raise

    def update_event_hub(self, name: str, **changes: object) -> EventHub:
        """Give fields of a hub's configuration other values: retention, user metadata.

        Raises NotFound, ArgumentError (for the partition count, which is fixed, too), OSError.
        """
        with self._change():
            hub = self.event_hub(name)
            count = changes.pop("partition_count", len(hub.partitions))
            if count != len(hub.partitions):
                raise ArgumentError(
                    f"the event hub {hub.name} was created with {len(hub.partitions)} partitions, which cannot change: "
                    "create another one"
                )
            with _explained(f"event hub {hub.name}"):
                hub.config = with_changes(hub.config, **changes)
        return hub

    def delete_event_hub(self, name: str) -> None:
        """Delete a hub with its events. Events that cannot be removed at once go later. Raises NotFound, OSError."""
        with self._change():
            hub = self.event_hub(name)
            key = hub.name.lower()
            directory = self._directories.pop(key)
            # kept in mind until the events are gone, which takes longer than a crash
            self._deleted_directories |= {directory}
            self._hubs = {other: served for other, served in self._hubs.items() if other != key}
            self.access.delete_hub(key)
        hub.is_deleted = True
        hub.close()
        self._remove_deleted()

    def _remove_deleted(self) -> None:
        for directory in self._deleted_directories:
            path = self._data_dir / _HUBS / directory
            try:
                if path.exists():
                    shutil.rmtree(path)
            except OSError as error:  # somebody is still at work in it
                _logger.warning("%s of a deleted hub cannot be removed, it is tried again: %s", path, error)
            else:
                with self._lock:
                    self._deleted_directories -= {directory}

    def create_consumer_group(self, hub_name: str, name: str, user_metadata: str = "") -> None:
        """Raises NotFound, ArgumentError, AlreadyExists, QuotaExceeded, OSError."""
        with self._change():
            hub = self.event_hub(hub_name)
            if name.lower() in map(str.lower, hub.consumer_groups):
                raise AlreadyExists(f"the event hub {hub.name} has a consumer group {name} already")
            if len(hub.consumer_groups) > MAX_CONSUMER_GROUPS:
                raise QuotaExceeded(f"an event hub has at most {MAX_CONSUMER_GROUPS} consumer groups beside $Default")
            with _explained(f"consumer group {name!r}"):
                hub.config = with_group(hub.config, name, user_metadata)

    def update_consumer_group(self, hub_name: str, name: str, user_metadata: str) -> None:
        """Raises NotFound, OSError."""
        with self._change():
            hub = self.event_hub(hub_name)
            key = hub.consumer_group(name).lower()
            hub.config = with_changes(hub.config, group_metadata={**hub.config.group_metadata, key: user_metadata})

    def delete_consumer_group(self, hub_name: str, name: str) -> None:
        """Raises NotFound, ArgumentError for $Default, OSError."""
        with self._change():
            hub = self.event_hub(hub_name)
            config = without_group(hub.config, hub.consumer_group(name))
            if config == hub.config:
                raise ArgumentError("the consumer group $Default cannot be deleted")
            hub.config = config

    def create_access_rule(self, rule: AccessRule, hub_name: str = "") -> None:
        """Raises NotFound, ArgumentError, AlreadyExists, QuotaExceeded, OSError."""
        with self._change():
            self._check_level(hub_name)
            if any(rule.name.lower() == other.name.lower() for other in self.access.rules(hub_name)):
                raise AlreadyExists(f"there is an access rule {rule.name} already")
            self.access.set_rule(rule, hub_name)

    def update_access_rule(self, name: str, rights: Iterable[Right], hub_name: str = "") -> AccessRule:
        """Give a rule other rights; it keeps its keys. Raises NotFound, ArgumentError, OSError."""
        with self._change():
            self._check_level(hub_name)
            rule = replace(self.access.rule(name, hub_name), rights=frozenset(rights))
            self.access.set_rule(rule, hub_name)
        return rule

    def set_access_rule(self, rule: AccessRule, hub_name: str = "") -> None:
        """Add or replace a rule of the namespace or a hub. Raises NotFound, ArgumentError, QuotaExceeded, OSError."""
        with self._change():
            self._check_level(hub_name)
            self.access.set_rule(rule, hub_name)

    def delete_access_rule(self, name: str, hub_name: str = "") -> None:
        """Raises NotFound, ArgumentError for the last rule that may manage the namespace, OSError."""
        with self._change():
            self._check_level(hub_name)
            self.access.delete_rule(name, hub_name)

    def roll_key(self, name: str, which: str, hub_name: str = "") -> AccessRule:
        """Give a rule a new "primary" or "secondary" key; what rests on the former ends.

        Raises NotFound, ArgumentError, OSError.
        """
        with self._change():
            self._check_level(hub_name)
            rule = self.access.rule(name, hub_name).with_new_key(which)
            self.access.set_rule(rule, hub_name)
        return rule

    def _check_level(self, hub_name: str) -> None:
        if hub_name:
            self.event_hub(hub_name)

    def revoke_publisher(self, hub_name: str, publisher: str) -> None:
        """Take nothing more from a publisher, whatever its token says. Raises NotFound, OSError."""
        with self._change():
            self.event_hub(hub_name).revoked_publishers |= {publisher.lower()}

    def restore_publisher(self, hub_name: str, publisher: str) -> None:
        """Undo revoke_publisher. Raises NotFound, OSError."""
        with self._change():
            self.event_hub(hub_name).revoked_publishers -= {publisher.lower()}

    def apply_retention(self) -> int:
        """Delete what the hubs' retention no longer keeps, and what is left of deleted hubs; to be called now and then.

        Returns how many events. Raises LogError.
        """
        self._remove_deleted()
        now_ms = self._clock.now_ms()
        return sum(hub.apply_retention(now_ms) for hub in list(self._hubs.values()))

    def close(self) -> None:
        """Finish what is under way in all partitions and release the directory."""
        with self._lock:
            self._closed = True
            for hub in self._hubs.values():
                hub.close()
            self._directory_lock.release()
