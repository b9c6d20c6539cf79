"""A namespace as a worker sees it: definitions that the store passes on, logs that it writes, links that it admits.

Links are opened, publications checked and events read here. What all workers share is asked of the store: who may read
a partition, what idempotent producers have stored, and throughput units.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tidegate.hub.access import Access, Grant
from tidegate.hub.addresses import receive_source
from tidegate.hub.errors import HubError, InternalError
from tidegate.hub.event_hub import Admission, EventHub
from tidegate.hub.group_offsets import GroupOffset, GroupOffsets
from tidegate.hub.namespace import Namespace, Reader
from tidegate.hub.partition import Partition, ReaderSlot, ReaderSlots, ReadingJob
from tidegate.hub.producers import Numbers
from tidegate.hub.registry import Registry
from tidegate.hub.schema_registry import SchemaRegistry
from tidegate.hub.snapshot import NamespaceSnapshot, NamespaceState
from tidegate.hub.throughput import PartitionIngress, Throughput
from tidegate.kafka.records import RecordBatch
from tidegate.log import LogFacts, LogMirror
from tidegate.log.group import OnDurable


class StoreLink(Protocol):
    """The worker's end of its sockets to the store."""

    def ask(self, question: str, **arguments: object) -> Any:
        """Ask the store something and wait for the answer. Raises HubError, LogError, OSError."""

    def publish(
        self, partition: int, events: Sequence[bytes | memoryview], numbers: Numbers | None, on_durable: OnDurable
    ) -> None:
        """Have events stored, without waiting."""

    def publish_batch(self, partition: int, batch: RecordBatch, on_durable: OnDurable) -> None:
        """Have a record batch stored, without waiting."""

    def watch(self, partition: int, is_watched: bool) -> None:
        """Have growth of a partition passed on, or no longer."""

    def vacate(self, claim: int, next_sequence_number: int | None) -> None:
        """Give up a reader's place, without waiting."""

    def note_job(self, partition: int, consumer_group: str, name: str, next_sequence_number: int) -> None:
        """Pass on how far a job has read, without waiting."""

    @property
    def claims(self) -> dict[int, ReaderSlot]:
        """The places of this worker's readers."""


class PartitionOwner:
    """The store as the owner of one log."""

    def __init__(self, link: StoreLink, partition: int) -> None:
        self.link = link
        self.partition = partition

    def append(self, events: Sequence[bytes | memoryview], on_durable: OnDurable) -> None:
        """Have events stored."""
        self.link.publish(self.partition, events, None, on_durable)

    def append_batch(self, batch: RecordBatch, on_durable: OnDurable) -> None:
        """Have a record batch stored."""
        self.link.publish_batch(self.partition, batch, on_durable)

    def watch(self, is_watched: bool) -> None:
        """Have growth passed on, or no longer."""
        self.link.watch(self.partition, is_watched)

    def facts(self) -> tuple[LogFacts, int]:
        """Ask what is durable, and for the lower bound on arrivals."""
        encoded, lower_bound_ms = self.link.ask("facts", partition=self.partition)
        return LogFacts.decode(bytes.fromhex(encoded)), lower_bound_ms


class SharedProducers:
    """The idempotent producers of a partition: the store accepts, refuses and remembers their publications."""

    def __init__(self, owner: PartitionOwner) -> None:
        self._link = owner.link
        self._partition = owner.partition

    def attach(self, properties: Mapping[str, object]) -> tuple[int, int, int]:
        """Attach a producer, and return its id, epoch and last number. Raises HubError."""
        plain = {name: value for name, value in properties.items() if isinstance(value, int | str)}
        found = self._link.ask("attach", partition=self._partition, properties=plain)
        return found[0], found[1], found[2]

    def sequence_number_of(self, numbers: Numbers) -> int | None:
        """Return the first sequence number of a recent publication."""
        values = [numbers.producer_id, numbers.epoch, numbers.first, numbers.last]
        found = self._link.ask("sequence_number_of", partition=self._partition, numbers=values)
        return None if found is None else int(found)

    def append(self, numbers: Numbers, events: Sequence[bytes], on_durable: OnDurable) -> bool:
        """Have a publication stored, and return True: the store tells whether it was stored before."""
        self._link.publish(self._partition, events, numbers, on_durable)
        return True

    def append_batch(self, numbers: Numbers, batch: RecordBatch, on_durable: OnDurable) -> bool:
        """Have a record batch stored; like `append`."""
        self._link.publish_batch(self._partition, batch, on_durable)
        return True

    def close(self) -> None:
        """The store keeps the state."""


class SharedSlots(ReaderSlots):
    """The slots of one partition in one consumer group, over all workers."""

    def __init__(self, owner: PartitionOwner, consumer_group: str) -> None:
        super().__init__()
        self._link = owner.link
        self._where: dict[str, Any] = {"partition": owner.partition, "consumer_group": consumer_group}
        self._claims: dict[ReaderSlot, int] = {}

    def occupy(self, epoch: int | None, name: str, on_stolen: Callable[[HubError], None]) -> ReaderSlot:
        """Admit a reader and evict those its owner level displaces. Raises LinkStolen, QuotaExceeded."""
        claim = int(self._link.ask("claim", **self._where, epoch=epoch, name=name))
        slot = ReaderSlot(epoch, name, on_stolen)
        self._claims[slot] = claim
        self._link.claims[claim] = slot
        return slot

    def vacate(self, slot: ReaderSlot) -> None:
        """Free a slot. Calling it again does nothing."""
        claim = self._claims.pop(slot, None)
        if claim is not None:
            self._link.claims.pop(claim, None)
            self._link.vacate(claim, slot.next_sequence_number)

    def note_job(self, name: str, next_sequence_number: int) -> None:
        """Note how far a job has come that reads the segments themselves."""
        where = self._where
        self._link.note_job(where["partition"], where["consumer_group"], name, next_sequence_number)

    @property
    def jobs(self) -> tuple[ReadingJob, ...]:
        """The jobs that read the segments themselves, by name."""
        return tuple(ReadingJob(str(name), int(number), 0.0) for name, number in self._link.ask("jobs", **self._where))


class SharedIngress(PartitionIngress):
    """The ingress limit of one partition, over all workers."""

    def __init__(self, partition: int) -> None:
        super().__init__()
        self.partition = partition


class SharedPartition(Partition):
    """One partition, whose log the store writes."""

    def __init__(self, hub_name: str, partition_id: str, owner: PartitionOwner, log: LogMirror) -> None:
        super().__init__(hub_name, partition_id, log, SharedProducers(owner), partial(SharedSlots, owner))
        self.mirror = log
        self.ingress = SharedIngress(owner.partition)


class SharedThroughput(Throughput):
    """The units of the namespace, which the store counts for all workers."""

    def __init__(self, link: StoreLink) -> None:
        super().__init__(None)
        self._link = link

    def ingress_wait_s(self, size: int, count: int, partition: PartitionIngress | None = None) -> float:
        """Return 0 if a publication is admitted, else how many seconds its publisher should wait."""
        number = partition.partition if isinstance(partition, SharedIngress) else None
        return float(self._link.ask("ingress_wait_s", size=size, count=count, partition=number))

    def partition_wait_s(self, partition: PartitionIngress) -> float:
        """Return how many seconds publishers to a partition should wait because its unit is used up."""
        if self.units is None or self.units == 1 or not isinstance(partition, SharedIngress):
            return 0.0
        return float(self._link.ask("partition_wait_s", partition=partition.partition))

    def egress_wait_s(self, size: int = 0, count: int = 0) -> float:
        """Return 0 if events may be delivered, else how many seconds to wait."""
        return float(self._link.ask("egress_wait_s", size=size, count=count))

    def spend_egress(self, size: int, count: int) -> None:
        """Charge for events that were delivered after egress_wait_s() returned 0."""
        self._link.ask("spend_egress", size=size, count=count)


class SharedRegistry(Registry):
    """The hubs that the store serves, as it has described them last."""

    def __init__(self, link: StoreLink) -> None:
        """`adopt` begins to serve."""
        self.link = link
        self._lock = threading.RLock()
        self.event_hubs: Mapping[str, EventHub] = {}
        self.partitions: dict[int, SharedPartition] = {}
        self.throughput: Throughput = SharedThroughput(link)
        self.on_change: Callable[[], None] = lambda: None
        self._is_access_open = False

    def adopt(self, described: Mapping[str, Any]) -> None:
        """Serve what the store serves now. Raises LogError."""
        state = NamespaceState.model_validate(described["namespace"])
        assert state.limits is not None
        snapshot = NamespaceSnapshot.from_state(state, state.limits.configured)
        with self._lock:
            if not self._is_access_open:
                self.access = Access(snapshot.rules, lambda name: name.lower() in self.event_hubs)
                self._is_access_open = True
            self._snapshot = snapshot
            self.access.rule_table = snapshot.rules
            limits = snapshot.limits
            if (limits.throughput_units, limits.auto_inflate_to) != (
                self.throughput.units,
                self.throughput.auto_inflate_to,
            ):
                self.throughput.set(limits.throughput_units, limits.auto_inflate_to)
            admission = Admission(
                limits.max_message_bytes, None if limits.throughput_units is None else self.throughput
            )
            former: Mapping[str, EventHub] = self.event_hubs
            hubs: dict[str, EventHub] = {}
            for key, definition in snapshot.hubs.items():
                hub = former.get(key)
                if hub is None or hub.definition.directory != definition.directory:
                    hub = EventHub(definition, (), admission)
                known = hub.partitions
                added = [
                    self._open(definition.config.name, str(number), values)
                    for number, values in enumerate(described["partitions"][key])
                    if number >= len(known)
                ]
                if added:
                    hub.set_partitions((*known, *added))
                hub.definition, hub.admission = definition, admission
                hubs[key] = hub
            self.event_hubs = hubs
            for key, hub in former.items():
                if hubs.get(key) is not hub:
                    hub.is_deleted = True
                    hub.close()
        self.on_change()

    def _open(self, hub_name: str, partition_id: str, values: Sequence[Any]) -> Partition:
        number, directory, facts = values
        owner = PartitionOwner(self.link, number)
        log = LogMirror(directory, LogFacts.decode(bytes.fromhex(facts)), owner)
        partition = self.partitions[number] = SharedPartition(hub_name, partition_id, owner, log)
        return partition

    def remove_deleted_directories(self) -> None:
        """The store removes them."""

    def close(self) -> None:
        """Close all hubs."""
        for hub in self.event_hubs.values():
            hub.close()


class _StoreClock:
    """The clock of the store, which stamps what arrives."""

    def now_ms(self) -> int:
        raise InternalError("the store stamps events")

    def arrival_lower_bound_ms(self) -> int:
        raise InternalError("the store knows the bound")


class _StoreOffsets(GroupOffsets):
    """The positions of groups of Kafka's clients, which connect to the store's process."""

    def __init__(self, link: StoreLink) -> None:
        """Open nothing."""
        self._link = link

    def in_hub(self, directory: str) -> Mapping[str, Mapping[int, GroupOffset]]:
        """Ask for the positions that groups have in one incarnation of a hub, by group and partition."""
        found = self._link.ask("kafka_groups", directory=directory)
        return {group: {number: GroupOffset(*position) for number, *position in rows} for group, rows in found.items()}

    def close(self) -> None:
        """Nothing is open."""


class _StoreSchemas(SchemaRegistry):
    """The schema registry, which is served over HTTP by the store's process."""

    def __init__(self) -> None:
        """Open nothing."""

    def close(self) -> None:
        """Nothing is open."""


class SharedNamespace(Namespace):
    """A namespace that a worker serves. Changes are made in the store's process."""

    def __init__(self, registry: SharedRegistry, data_dir: Path) -> None:
        super().__init__(registry, _StoreClock(), data_dir, _StoreOffsets(registry.link), _StoreSchemas())

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
        """Open a reader; see `Namespace.open_reader`. Positions count from what is durable now, in any worker."""
        source = receive_source(address)
        hub = self.event_hubs.get(source.hub.lower())
        open_now = partial(
            super().open_reader,
            address,
            grants,
            now_s,
            selector=selector,
            epoch=epoch,
            receiver_name=receiver_name,
            on_stolen=on_stolen,
        )
        if hub is not None:
            for partition in hub.partitions:
                if partition.partition_id == source.partition_id and isinstance(partition, SharedPartition):
                    partition.mirror.refresh()
        return open_now()
