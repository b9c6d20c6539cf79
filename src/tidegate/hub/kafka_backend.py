"""A namespace in a cluster of Kafka, which any number of gateways serve: topics, shared definitions, shared readers."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pydantic import ValidationError

from tidegate.hub.cluster_groups import ClusterGroups
from tidegate.hub.config import ConfigError, EventHubConfig
from tidegate.hub.errors import HubError, LinkStolen, QuotaExceeded, ServerBusy
from tidegate.hub.event_hub import EventHub
from tidegate.hub.partition import MAX_READERS, Partition, ReaderSlot, ReaderSlots
from tidegate.hub.producers import PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQUENCE_NUMBER, Numbers, integer_property
from tidegate.hub.schema_registry import EntriesMoved, SchemaLog
from tidegate.hub.snapshot import HubDefinition, NamespaceState
from tidegate.hub.throughput import Demand, Throughput
from tidegate.kafka.records import RecordBatch
from tidegate.log import LogError, Numbering
from tidegate.log.group import OnDurable
from tidegate.store.client.cluster import TopicPartition
from tidegate.store.client.connection import KafkaError, LoginRefused
from tidegate.store.client.settings import ClientSettings
from tidegate.store.kafka.log import KafkaLog
from tidegate.store.kafka.shared import LOST_AFTER_S
from tidegate.store.kafka.shared_topic import SharedTopic, Stale
from tidegate.store.kafka.store import KafkaStore
from tidegate.store.kafka.topics import (
    add_partitions,
    alter_topic,
    check_hub_topic,
    create_topic,
    delete_topic,
    find_topic,
    hub_settings,
    possible_replication,
    retention_settings,
    unserved_partitions,
)

_logger = logging.getLogger(__name__)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
SCHEMAS = "schemas"
"""The name of the list of the schema registry's entries."""
_UNCONNECTED = "the gateway has no connection to its cluster; try again"
_LOST = "the gateway has lost its cluster, and others may own the partition now"


class ChangedElsewhere(LogError):
    """Another gateway has changed the namespace meanwhile; nothing was changed here."""


class GatewayFacts(NamedTuple):
    """What a gateway knows of its cluster.

    Attributes:
        is_connected: Whether it hears the cluster.
        silence_s: How long ago it wrote the last sign of life that it has read back.
        gateways: How many gateways serve the namespace, with this one.
        under_replicated: Partitions of the namespace's topics that have fewer replicas in sync than replicas.
        offline: Partitions without a leader.
    """

    is_connected: bool
    silence_s: float
    gateways: int
    under_replicated: int
    offline: int


class KafkaBackend:
    """A namespace whose hubs are topics `NAMESPACE.HUB-…`, with `_tidegate.NAMESPACE` for what gateways share."""

    def __init__(self, settings: ClientSettings, namespace: str) -> None:
        """Connect to the cluster. Raises LogError."""
        if not _TOPIC.fullmatch(namespace):
            raise LogError(f"the namespace's name {namespace!r} cannot begin the name of a topic: use A-Z, 0-9, . _ -")
        self.namespace = namespace
        self.store = KafkaStore(settings)
        self.shared = SharedTopic(self.store, namespace)
        self._work = ThreadPoolExecutor(1, "kafka-namespace")
        self._retention: dict[str, dict[str, str]] = {}
        self._slots: dict[str, tuple[SharedReaderSlots, ReaderSlot, asyncio.AbstractEventLoop]] = {}
        self._lock = threading.Lock()
        self._version = 0
        self.on_definitions: Callable[[], None] = lambda: None
        """Called when another gateway has changed the definitions, in a thread that may wait."""
        self.shared.on_definitions = lambda: self.submit(self._adopt)
        self.shared.on_evicted = self._evicted
        self.shared.on_lost = self._lost
        self.shared.on_declared_dead = self._declared_dead
        try:
            self.store.open()
            self.store.wait(self.shared.open())
        except KafkaError as error:
            self.store.close()
            hint = "see sasl.* and ssl.* in --store-config" if isinstance(error, LoginRefused) else "see --store"
            raise LogError(f"the cluster of Kafka cannot be used: {error}; {hint}") from error
        except BaseException:
            self.store.close()
            raise

    @property
    def is_connected(self) -> bool:
        """Whether this gateway hears the cluster."""
        return self.shared.is_connected

    def facts(self) -> GatewayFacts:
        """Return what is known of the cluster, without asking it. From any thread."""
        known = [
            info for topic in self.store.topics for info in list(self.store.cluster.known_partitions(topic).values())
        ]
        return GatewayFacts(
            self.is_connected,
            self.shared.silence_s,
            len(self.shared.state.gateways),
            sum(len(info.in_sync) < len(info.replicas) for info in known),
            sum(info.leader is None for info in known),
        )

    # -- definitions

    def read_state(self) -> NamespaceState | None:
        self._version, definitions = self.shared.definitions()
        if definitions is None:
            return None
        try:
            return NamespaceState.model_validate(definitions)
        except ValidationError as error:
            raise ConfigError(
                f"the definitions in {self.shared.where.topic} cannot be used: a newer Tidegate may have written them "
                f"({error.error_count()} differences)"
            ) from None

    def write_state(self, state: NamespaceState) -> None:
        version = self._version + 1  # what the state was computed from, which others may have replaced
        try:
            self.store.wait(self.shared.define(version, state.model_dump(mode="json")))
            self._version = version
        except Stale:
            raise ChangedElsewhere("another gateway has changed the namespace meanwhile; try again") from None
        except KafkaError as error:
            raise LogError(f"the change cannot be stored in the cluster: {error}") from error

    def _adopt(self) -> None:
        try:
            self.on_definitions()
        except (ConfigError, LogError, OSError) as error:
            _logger.error("a change by another gateway cannot be followed: %s", error)

    # -- hubs

    def topic(self, directory: str) -> str:
        """Return the name of a hub's topic."""
        return f"{self.namespace}.{directory}"

    def open_partitions(self, definition: HubDefinition, *, is_new: bool, first: int = 0) -> tuple[Partition, ...]:
        try:
            return self.store.wait(self._open_partitions(definition, is_new, first))
        except KafkaError as error:
            raise LogError(str(error)) from error

    async def _open_partitions(self, definition: HubDefinition, is_new: bool, first: int) -> tuple[Partition, ...]:
        cluster, config = self.store.cluster, definition.config
        name = self.topic(definition.directory)
        facts = await find_topic(cluster, name)
        if facts is None:
            if not is_new:
                raise KafkaError(
                    f"the topic {name} of the event hub {config.name} is missing: restore it, or delete the event hub"
                )
            replication = await possible_replication(cluster)
            settings = hub_settings(replication, config.retention_ms, config.retention_bytes)
            await create_topic(cluster, name, config.partition_count, settings)
            while facts is None or len(await cluster.partitions(name) or ()) < config.partition_count:
                await asyncio.sleep(0.05)
                facts = await find_topic(cluster, name)
        if first and first <= facts.partitions < config.partition_count:
            await add_partitions(cluster, name, config.partition_count)
            while len(await cluster.partitions(name) or ()) < config.partition_count:
                await asyncio.sleep(0.05)
            facts = replace(facts, partitions=config.partition_count)
        check_hub_topic(name, facts, config.partition_count)
        unserved = unserved_partitions(name, facts, config.partition_count)
        if unserved is not None:
            _logger.warning("%s", unserved)
        await cluster.partitions(name)
        numbers = range(first, config.partition_count)
        topic_id = facts.topic_id
        logs = await asyncio.gather(
            *(self.store.open_log_soon(TopicPartition(name, number), topic_id) for number in numbers)
        )
        return tuple(
            Partition(
                config.name,
                str(log.where.partition),
                log,
                ClusterProducers(self.store, log),
                partial(SharedReaderSlots, self, f"{definition.directory}/{log.where.partition}"),
            )
            for log in logs
        )

    def discard(self, directory: str) -> None:
        self.remove(directory)

    def remove(self, directory: str) -> bool:
        try:
            self.store.wait(delete_topic(self.store.cluster, self.topic(directory)))
            self.store.wait(self.shared.remove_documents(f"{self.topic(directory)}/"))
        except (KafkaError, LogError) as error:
            _logger.warning("the topic %s of a deleted hub cannot be deleted yet: %s", self.topic(directory), error)
            return False
        return True

    def apply_retention(self, hub: EventHub, now_ms: int) -> int:
        """Have the brokers know the hub's retention; they delete."""
        wanted = _retention(hub.config)
        directory = hub.definition.directory
        if self._retention.get(directory) != wanted:
            try:
                self.store.wait(alter_topic(self.store.cluster, self.topic(directory), wanted))
            except KafkaError as error:
                raise LogError(str(error)) from error
            self._retention[directory] = wanted
        return 0

    def open_groups(self) -> ClusterGroups:
        return ClusterGroups(self.store, self.namespace)

    def open_schemas(self) -> SchemaLog:
        return SharedSchemas(self)

    def share_throughput(self, throughput: Throughput) -> None:
        """Report what is used here to the other gateways, and give out what all reports leave to this one."""

        def report() -> Mapping[str, Any]:
            ingress, egress = throughput.demand()
            return {} if throughput.units is None else {"ingress": ingress, "egress": egress}

        def share() -> None:
            demands = {gateway: _demands(said) for gateway, said in list(self.shared.state.reports.items())}
            throughput.share(self.shared.gateway, demands)

        self.shared.report = report
        self.shared.on_reports = share

    def submit(self, work: Callable[[], None]) -> None:
        self._work.submit(_logged, work)

    def close(self) -> None:
        self._work.shutdown(wait=False, cancel_futures=True)
        if not self.store.is_closed:
            self.store.wait(self.shared.close())
        self.store.close()

    # -- readers

    def claim(self, resource: str, level: int | None, name: str) -> str:
        """Claim a partition for a reader, and return the claim's id. Raises LinkStolen, QuotaExceeded, ServerBusy."""
        if not self.shared.is_connected:
            raise ServerBusy(_UNCONNECTED)
        try:
            # No longer than it takes until the gateway knows that it has lost the cluster: other clients wait, too.
            verdict = self.store.wait(self.shared.claim(resource, level, name), LOST_AFTER_S)
        except (KafkaError, LogError) as error:
            raise ServerBusy(f"the partition cannot be claimed now: {error}") from error
        if verdict.refusal == "owned":
            raise LinkStolen(f"a reader with owner level {verdict.highest_level} has this partition")
        if verdict.refusal == "full":
            raise QuotaExceeded(
                f"a partition has at most {MAX_READERS} readers without an owner level in a consumer group"
            )
        if verdict.refusal is not None:
            raise ServerBusy("the gateway is being replaced; try again")
        return verdict.claim.claim_id

    def attach(self, claim_id: str, resource: str, slots: SharedReaderSlots, slot: ReaderSlot) -> None:
        """Have a reader closed when its claim is lost."""
        if slot.epoch is not None:
            slot.confirm = self._confirm_ownership
        with self._lock:
            self._slots[claim_id] = slots, slot, asyncio.get_running_loop()
        # Until now there was nobody to close, so the claim may be lost already.
        if not self.shared.holds(resource, claim_id) or (slot.confirm is not None and not self.shared.may_own):
            self._close(claim_id, ServerBusy("the partition was lost again at once; try again"))

    def _confirm_ownership(self) -> None:
        """Raise ServerBusy when others may own partitions, also where that was not noticed in time."""
        if not self.shared.may_own:
            raise ServerBusy(_LOST)

    def release(self, claim_id: str) -> None:
        """Give a claim back."""
        with self._lock:
            self._slots.pop(claim_id, None)
        if not self.store.is_closed:
            self.store.call_soon(self.shared.release, claim_id)

    def _evicted(self, claim_id: str, level: int | None) -> None:
        self._close(claim_id, LinkStolen(f"a reader with owner level {level} has taken this partition"))

    def _lost(self) -> None:
        with self._lock:
            owners = [claim_id for claim_id, (_, slot, _) in self._slots.items() if slot.epoch is not None]
        for claim_id in owners:
            self._close(claim_id, ServerBusy(_LOST))

    def _declared_dead(self) -> None:
        """Close all readers, as the others know of none of them any more."""
        with self._lock:
            readers = list(self._slots)
        for claim_id in readers:
            self._close(claim_id, ServerBusy(_LOST))

    def _close(self, claim_id: str, error: HubError) -> None:
        with self._lock:
            found = self._slots.get(claim_id)
        if found is not None:
            slots, slot, loop = found
            slots.forget(slot)
            loop.call_soon_threadsafe(slot.on_stolen, error)


class SharedReaderSlots(ReaderSlots):
    """The slots of one partition in one consumer group, of which those at other gateways count too."""

    def __init__(self, backend: KafkaBackend, resource: str, group: str) -> None:
        super().__init__()
        self._backend = backend
        self._resource = f"{resource}/{group}"
        self._claims: dict[int, str] = {}

    def occupy(self, epoch: int | None, name: str, on_stolen: Callable[[HubError], None]) -> ReaderSlot:
        """Admit a reader, once the state that all gateways share has. Raises LinkStolen, QuotaExceeded, ServerBusy."""
        claim_id = self._backend.claim(self._resource, epoch, name)
        slot = self.add(epoch, name, on_stolen)
        self._claims[id(slot)] = claim_id
        self._backend.attach(claim_id, self._resource, self, slot)
        return slot

    def vacate(self, slot: ReaderSlot) -> None:
        """Free a slot. Calling it again does nothing."""
        super().vacate(slot)
        claim_id = self._claims.pop(id(slot), None)
        if claim_id is not None:
            self._backend.release(claim_id)

    def forget(self, slot: ReaderSlot) -> None:
        """Take a slot from a reader whose claim was lost."""
        super().vacate(slot)


class SharedSchemas:
    """The entries of the schema registry that all gateways share."""

    def __init__(self, backend: KafkaBackend) -> None:
        self._store = backend.store
        self._shared = backend.shared

    def follow(self, apply: Callable[[Mapping[str, Any]], None]) -> None:
        self._store.wait(self._shared.follow_entries(SCHEMAS, apply))

    def append(self, number: int, entry: Mapping[str, Any]) -> None:
        try:
            self._store.wait(self._shared.append_entry(SCHEMAS, number, entry))
        except Stale:
            raise EntriesMoved("another gateway has changed the schema registry meanwhile") from None
        except KafkaError as error:
            raise LogError(str(error)) from error

    def catch_up(self) -> None:
        try:
            self._store.wait(self._shared.catch_up())
        except KafkaError as error:
            raise LogError(str(error)) from error

    def close(self) -> None:
        """Do nothing: the store is closed by itself."""


class ClusterProducers:
    """Idempotent producers whose state the brokers keep: id, epoch and numbers are those of Kafka."""

    def __init__(self, store: KafkaStore, log: KafkaLog) -> None:
        self._store = store
        self._log = log

    def attach(self, properties: Mapping[str, object]) -> tuple[int, int, int]:
        """Attach a producer and return its id, epoch and last number. Raises ArgumentError, ServerBusy."""
        producer_id, epoch, last = (
            integer_property(properties, name) for name in (PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQUENCE_NUMBER)
        )
        shared = self._store.shared
        if shared is not None and not shared.is_connected:
            raise ServerBusy(_UNCONNECTED)
        try:
            # No longer than readers are waited for: other clients wait, too.
            if producer_id is None:
                return *self._store.wait(self._store.cluster.init_producer_id(), LOST_AFTER_S), last or 0
            known = self._store.wait(self._store.last_number(self._log.where, producer_id), LOST_AFTER_S)
        except (KafkaError, LogError) as error:
            raise ServerBusy(f"the producer cannot be looked up now: {error}") from error
        if known is None:
            return producer_id, epoch or 0, last or 0
        if epoch is not None and epoch > known[0]:
            return producer_id, epoch, last or 0
        return producer_id, *known

    def sequence_number_of(self, numbers: Numbers) -> int | None:
        """Return None: the answer to the append says where a duplicate is."""
        return None

    def append(self, numbers: Numbers, events: Sequence[bytes], on_durable: OnDurable) -> bool:
        """Store events under their producer's numbers, and return True: the leader tells duplicates, gaps and epochs
        that are over. Raises LogClosed."""
        self._log.append(events, on_durable, Numbering(numbers.producer_id, numbers.epoch, numbers.first))
        return True

    def append_batch(self, numbers: Numbers, batch: RecordBatch, on_durable: OnDurable) -> bool:
        """Store a record batch, which has its numbers itself; like `append`."""
        self._log.append_batch(batch, on_durable)
        return True

    def close(self) -> None:
        """Do nothing: the brokers have the state."""


def _retention(config: EventHubConfig) -> dict[str, str]:
    return retention_settings(config.retention_ms, config.retention_bytes)


def _demands(report: Mapping[str, Any]) -> tuple[Demand, Demand]:
    """Return what a gateway reported of ingress and egress; nothing if it has not, or a newer one does otherwise."""
    try:
        return Demand(*report["ingress"]), Demand(*report["egress"])
    except (KeyError, TypeError):
        return Demand(), Demand()


def _logged(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        _logger.exception("work for the namespace failed")
