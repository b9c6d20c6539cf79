"""A namespace: the event hubs of one data directory, as clients reach them.

The server calls `put_token`, `open_publisher`, `open_reader` and `open_management`. `management` creates, changes and
deletes while the hub runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tidegate.durable_files import refuses_writes
from tidegate.hub.access import Access, Grant
from tidegate.hub.access_rules import Right
from tidegate.hub.addresses import path_of, publish_target, receive_source
from tidegate.hub.backend import Backend, DataDirectory
from tidegate.hub.cluster_groups import ClusterGroups
from tidegate.hub.config import ConfigError, EventHubConfig, NamespaceConfig, NamespaceLimits
from tidegate.hub.errors import ArgumentError, HubError, PublisherRevoked, ServerBusy, Unauthorized, entity_not_found
from tidegate.hub.event_hub import EventHub, HubProperties, LogSettings
from tidegate.hub.group_offsets import GroupOffsets
from tidegate.hub.management import Management, new_definition
from tidegate.hub.partition import Partition, PartitionProperties
from tidegate.hub.positions import depends_on_end, known_sequence_number, parse_selector
from tidegate.hub.publish import Publisher
from tidegate.hub.reader import Reader
from tidegate.hub.registry import Registry
from tidegate.hub.schema_registry import SchemaRegistry
from tidegate.hub.snapshot import HubDefinition, NamespaceSnapshot, NamespaceState
from tidegate.hub.throughput import Throughput
from tidegate.log import Clock, Committer, LogError, PartitionStore, Storage, expiry_time_ms

_logger = logging.getLogger(__name__)

__all__ = ["EventHub", "HubProperties", "Namespace", "Partition", "PartitionProperties", "Publisher", "Reader"]


class Namespace:
    """The hubs of one data directory. Use `open`. Safe to call from any thread."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        data_dir: Path,
        group_offsets: GroupOffsets | ClusterGroups,
        schema_registry: SchemaRegistry,
    ) -> None:
        """Use `open`."""
        self._registry = registry
        self.group_offsets = group_offsets
        self.schema_registry = schema_registry
        self.storage = Storage(data_dir, self._logs)
        self._clock = clock
        self.management = Management(registry, clock)

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
        backend: Backend | None = None,
    ) -> Namespace:
        """Serve what the data directory holds and what the configuration names.

        Args:
            data_dir: Created if it is missing.
            config: What there must be at least.
            clock: What stamps arrival.
            committer: The threads that write.
            durable: False leaves syncing to the operating system, for measurements.
            monotonic_s: The clock of throughput units.
            backend: Where events and definitions are; None: in the data directory.

        Raises:
            ConfigError: The configuration contradicts the data directory (a partition count is fixed at creation).
            DirectoryLocked: Another process serves the data directory.
            FileDamaged: A file that decides what was acknowledged is damaged; the message says what to do.
            LogError: A partition's log cannot be read or written.
            OSError: The data directory cannot be read or written.
        """
        with ExitStack() as opened:
            backend = backend or DataDirectory(data_dir, LogSettings(clock, committer, durable))
            opened.callback(backend.close)
            state = backend.read_state() or _begin_state(backend, config)
            snapshot = _configured(state, config, clock)
            served_before = frozenset(hub.directory for hub in state.event_hubs)
            registry = Registry(backend, snapshot, served_before, monotonic_s)
            group_offsets = backend.open_groups()
            opened.callback(group_offsets.close)
            schemas = SchemaRegistry(backend.open_schemas(), clock)
            opened.callback(schemas.close)
            postponed = _serve(registry, NamespaceSnapshot.from_state(state, config.limits), snapshot, state)
            opened.pop_all()
        namespace = cls(registry, clock, data_dir, group_offsets, schemas)
        if postponed is not None:
            namespace.storage.postpone(postponed)
        return namespace

    @property
    def name(self) -> str:
        """The namespace's name."""
        return self._registry.snapshot.name

    def _logs(self) -> list[PartitionStore]:
        return [partition.log for hub in self._registry.event_hubs.values() for partition in hub.partitions]

    def state(self) -> NamespaceState:
        """Return all definitions, keys included, in the form in which they are kept."""
        return self._registry.snapshot.to_state()

    @property
    def access(self) -> Access:
        """What checks tokens and keys."""
        return self._registry.access

    def follow(self) -> None:
        """Serve what another gateway of this namespace has committed. Raises ConfigError, LogError, OSError."""
        self._registry.follow()

    def on_change(self, call: Callable[[], None]) -> None:
        """Have a function called after each change of hubs, groups, rules or publishers, in the changing thread."""
        self._registry.on_change = call

    @property
    def limits(self) -> NamespaceLimits:
        """The current limits, with the units that auto-inflate has added."""
        return self._registry.snapshot.limits

    @property
    def throughput(self) -> Throughput:
        """The throughput units."""
        return self._registry.throughput

    @property
    def event_hubs(self) -> Mapping[str, EventHub]:
        """The hubs by their names in lower case."""
        return self._registry.event_hubs

    def event_hub(self, name: str) -> EventHub:
        """Return a hub by its name in any case. Raises NotFound."""
        hub = self._registry.event_hubs.get(name.lower())
        if hub is None:
            raise entity_not_found(name, f"the namespace {self.name} has no event hub {name!r}")
        return hub

    def put_token(self, audience: str, token: str, now_s: float) -> Grant:
        """Verify the token of a `$cbs` put-token request.

        As in the service, a hub that does not exist is reported here, before any link: Microsoft's Python client takes
        a link's `amqp:not-found` for a lost connection. Only a valid token that covers the hub's name gets that far, so
        nobody else learns which hubs exist. Raises Unauthorized, ArgumentError, NotFound.
        """
        path = path_of(audience)
        grant = self.access.check_token(token, now_s)
        covers = path[: len(grant.scope)] == grant.scope or grant.scope[: len(path)] == path
        if not covers:
            raise Unauthorized("the token is for another resource than the one it is put for")
        if path:
            self.event_hub(path[0])
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
        """Open a publisher on the target `hub`, `hub/Partitions/N` or `hub/Publishers/NAME`.

        Args:
            address: The target's address.
            grants: The connection's valid tokens.
            now_s: The time in seconds since 1970.
            idempotent: True to number the events.
            properties: Those of the attach, with plain keys and values.

        Raises:
            HubError: NotFound, Unauthorized, ArgumentError, PublisherRevoked, NotAllowed, ProducerFenced or ServerBusy.
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
        """Open a reader on the source `hub/ConsumerGroups/GROUP/Partitions/N`.

        Args:
            address: The source's address.
            grants: The connection's valid tokens.
            now_s: The time in seconds since 1970.
            selector: The text of the selector filter that says where to begin.
            epoch: The owner level.
            receiver_name: For people.
            on_stolen: Called when a reader with an owner level takes over, in the thread that opens that reader.

        Raises:
            HubError: NotFound, Unauthorized, ArgumentError, LinkStolen, QuotaExceeded or ServerBusy.
        """
        source = receive_source(address)
        grant = self.access.authorize(grants, Right.LISTEN, source.path, now_s)
        hub = self.event_hub(source.hub)
        group = hub.consumer_group(source.consumer_group)
        partition = hub.partition(source.partition_id)
        position = parse_selector(selector)
        if depends_on_end(position, partition.log):
            try:
                partition.log.catch_up()  # the reader may have read more at another gateway than was seen here
            except LogError as error:
                raise ServerBusy(f"where the partition ends cannot be looked up now: {error}") from error
        first = known_sequence_number(position, partition.log)
        slots = partition.reader_slots(group)
        slot = slots.occupy(epoch, receiver_name, on_stolen)
        return Reader(hub, partition, position if first is None else first, slots, slot, source, self.access, grant)

    def open_management(self, address: str, grants: Sequence[Grant], now_s: float) -> EventHub:
        """Return the hub whose properties a client asks for. Raises NotFound, Unauthorized, ArgumentError."""
        path = path_of(address)
        if not path:
            raise ArgumentError("properties are those of an event hub: name one")
        self.access.authorize_any(grants, path[0], now_s)
        return self.event_hub(path[0])

    def apply_retention(self) -> int:
        """Delete what the hubs' retention no longer keeps, and folders of deleted hubs; to be called periodically.

        Return how many events were deleted. Raises LogError.
        """
        self._registry.remove_deleted_directories()
        return self._registry.apply_retention(expiry_time_ms(self._clock))

    def close(self) -> None:
        """Finish what is under way in all partitions and release the directory."""
        self.group_offsets.close()
        self.schema_registry.close()
        self._registry.close()


def _serve(
    registry: Registry, kept: NamespaceSnapshot, configured: NamespaceSnapshot, state: NamespaceState
) -> Callable[[], None] | None:
    """Serve what is configured; on a disk that takes no writes, what was kept, and return what to call later.

    Raises what Registry.commit raises.
    """
    try:
        registry.commit(configured, is_kept=configured.to_state() == state)
        return None
    except (LogError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or not refuses_writes(cause):
            raise
        registry.commit(kept, is_kept=True)
        _logger.error("the configuration cannot be kept yet, so what was kept before is served: %s", error)
        return lambda: registry.commit(configured)


def _begin_state(backend: Backend, config: NamespaceConfig) -> NamespaceState:
    """Write the state of a new namespace before anything else is there. Raises LogError, OSError."""
    state = NamespaceSnapshot(config.name, config.limits, config.limits).to_state()
    backend.write_state(state)
    return state


def _configured(state: NamespaceState, config: NamespaceConfig, clock: Clock) -> NamespaceSnapshot:
    """Return what was kept, with what the configuration adds and changes. Raises ConfigError."""
    snapshot = NamespaceSnapshot.from_state(state, config.limits)
    if config.is_initial and snapshot.hubs:
        return snapshot
    snapshot = replace(snapshot, name=config.name)
    for hub in config.event_hubs:
        try:
            snapshot.limits.check_event_hub(hub)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        snapshot = snapshot.with_hub(_merged(snapshot.hubs.get(hub.name.lower()), hub, clock))
    return snapshot


def _merged(hub: HubDefinition | None, config: EventHubConfig, clock: Clock) -> HubDefinition:
    """Return a hub that the configuration names, with the settings and groups that were changed or added since."""
    if hub is None:
        return new_definition(config, clock.now_ms())
    given = config
    was_added_to = hub.configured is not None and hub.configured.partition_count == config.partition_count
    if was_added_to and hub.config.partition_count > config.partition_count:
        config = config.model_copy(update={"partition_count": hub.config.partition_count})
    if hub.config.partition_count != config.partition_count:
        raise ConfigError(
            f"event hub {config.name}: configured with {config.partition_count} partitions, but it was created with "
            f"{hub.config.partition_count}, which cannot change: set it back, give the hub another name, or delete it "
            "with its events"
        )
    configured = {group.lower() for group in config.consumer_groups}
    added = [group for group in hub.config.consumer_groups if group.lower() not in configured]
    changes: dict[str, object] = {"consumer_groups": (*config.consumer_groups, *added)}
    for field in ("retention_ms", "retention_bytes", "capture"):
        said = getattr(config, field)
        if said is not None and (hub.configured is None or getattr(hub.configured, field) != said):
            changes[field] = said
    return replace(hub, config=hub.config.model_copy(update=changes), configured=given)
