"""What is wrong with a cluster that holds namespaces: brokers, clocks, topics, settings and replicas."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from tidegate.kafka.messages import Api, Message
from tidegate.kafka.records import decode, encode, parse_batches
from tidegate.store.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from tidegate.store.client.connection import BrokerError, KafkaError
from tidegate.store.client.settings import ClientSettings
from tidegate.store.kafka.shared import SharedState
from tidegate.store.kafka.topics import (
    MIN_IN_SYNC,
    REPLICATION,
    TopicUnfit,
    check_hub_topic,
    check_shared_topic,
    delete_topic,
    find_topic,
    unserved_partitions,
)

SHARED_PREFIX = "_tidegate."
_PROBE_PREFIX = "_tidegate-probe-"
CLOCKS_AGREE_MS = 1000
_VERSIONS = (
    (Api.FETCH, 18, "4.1"),
    (Api.PRODUCE, 12, "4.0"),
    (Api.FETCH, 17, "3.9"),
    (Api.PRODUCE, 11, "3.8"),
    (Api.PRODUCE, 10, "3.7"),
    (Api.FETCH, 15, "3.5"),
    (Api.FETCH, 13, "3.1"),
    (Api.DESCRIBE_PRODUCERS, 0, "2.8"),
)
"""Requests, and the version of Kafka that first knew a version of them; brokers do not say which Kafka they are."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker.

    Attributes:
        kafka: The oldest version of Kafka that it may be.
        clock_ms: By how much its clock is ahead of this machine's; None if it was not asked.
    """

    broker: int
    address: str
    kafka: str | None
    clock_ms: int | None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of a namespace. `under_replicated` and `offline` are partitions."""

    topic: str
    event_hub: str | None
    partitions: int
    replication: int
    under_replicated: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """Something that an operator should know. An error breaks a promise or will; a warning weakens one."""

    severity: str
    what: str


@dataclass(slots=True)
class CheckReport:
    """What was found.

    Attributes:
        gateways: By namespace, how many gateways have registered and not been declared dead.
    """

    cluster: str = ""
    brokers: list[Broker] = field(default_factory=list)
    gateways: dict[str, int] = field(default_factory=dict)
    topics: list[Topic] = field(default_factory=list)
    findings: list[ClusterFinding] = field(default_factory=list)

    def error(self, what: str) -> None:
        """Note what breaks a promise."""
        self.findings.append(ClusterFinding("error", what))

    def warn(self, what: str) -> None:
        """Note what weakens a promise."""
        self.findings.append(ClusterFinding("warning", what))

    @property
    def is_sound(self) -> bool:
        """Whether there is no error."""
        return all(finding.severity != "error" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**asdict(self), "sound": self.is_sound}


async def check_store(
    settings: ClientSettings, namespace: str | None = None, *, probe_clocks: bool = True
) -> CheckReport:
    """Examine a cluster and the namespaces in it, or one of them.

    Args:
        settings: How to connect.
        namespace: Its name; None for all.
        probe_clocks: Whether to compare the brokers' clocks, for which a topic is created for a moment.

    Raises:
        KafkaError: The cluster cannot be reached or refuses.
    """
    cluster = Cluster(settings)
    report = CheckReport()
    try:
        await cluster.refresh()
        report.cluster = cluster.cluster_id
        clocks = await _clocks(cluster, report) if probe_clocks else {}
        for node, (host, port) in sorted(cluster.brokers.items()):
            version = await _version(cluster, report, node)
            report.brokers.append(Broker(node, f"{host}:{port}", version, clocks.get(node)))
        if len(report.brokers) < REPLICATION:
            report.warn(
                f"the cluster has {len(report.brokers)} of the {REPLICATION} brokers that it needs to lose one: events "
                f"are kept {'once' if len(report.brokers) == 1 else f'{len(report.brokers)} times'}"
            )
        topics = await _topics(cluster)
        found = sorted(name.removeprefix(SHARED_PREFIX) for name in topics if name.startswith(SHARED_PREFIX))
        if namespace is not None and namespace not in found:
            report.error(f"the cluster has no namespace {namespace}: no topic {SHARED_PREFIX}{namespace}")
        for name in found:
            if namespace in (None, name):
                await _check_namespace(cluster, report, name, topics)
    finally:
        await cluster.close()
    return report


# -- brokers


async def _version(cluster: Cluster, report: CheckReport, node: int) -> str | None:
    try:
        connection = await cluster.connection(node, "control")
    except KafkaError as error:
        report.error(f"broker {node} is listed and cannot be used: {error}")
        return None
    for api, version, kafka in _VERSIONS:
        if connection.last_version(api) >= version:
            return kafka
    report.error(f"broker {node} is older than Kafka 2.8")
    return None


async def _clocks(cluster: Cluster, report: CheckReport) -> dict[int, int]:
    """Return by how many ms each broker's clock is ahead of this machine's, and compare them.

    Only the stamp of an append says what a broker's clock is, so a topic is created for a moment.
    """
    name, nodes = f"{_PROBE_PREFIX}{uuid.uuid4().hex[:12]}", sorted(cluster.brokers)
    found: dict[int, int] = {}
    try:
        await _create_probe(cluster, name, nodes)
        try:
            for index, node in enumerate(nodes):
                where = TopicPartition(name, index)
                await _ahead_ms(cluster, where)  # opens the connection and the partition
                found[node] = await _ahead_ms(cluster, where)
        finally:
            with suppress(KafkaError):
                await delete_topic(cluster, name)
    except KafkaError as error:
        report.warn(f"the brokers' clocks were not compared: {error}")
        return found
    ahead, behind = max(found, key=found.__getitem__), min(found, key=found.__getitem__)
    if found[ahead] - found[behind] > CLOCKS_AGREE_MS:
        report.warn(
            f"the clock of broker {ahead} is {(found[ahead] - found[behind]) / 1000:.1f} s ahead of that of broker "
            f"{behind}: after a change of leader, enqueued times stand still for as long; synchronise the clocks"
        )
    return found


async def _create_probe(cluster: Cluster, name: str, nodes: list[int]) -> None:
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": index, "broker_ids": [node]} for index, node in enumerate(nodes)],
        "configs": [
            {"name": "message.timestamp.type", "value": "LogAppendTime"},
            {"name": "min.insync.replicas", "value": "1"},
        ],
    }
    answer = (await cluster.ask_any(Api.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 20_000})).topics[0]
    if answer.error_code:
        raise BrokerError(answer.error_code, f"creating the topic {name}", answer.error_message)


async def _ahead_ms(cluster: Cluster, where: TopicPartition) -> int:
    batch = encode([b""], timestamps_ms=[0])

    async def attempt() -> Message | None:
        leader = cluster.leader(where)
        if leader is None:
            return None
        begun_s = time.time()
        result = (await cluster.produce(leader, {where: batch}, 5))[where]
        if isinstance(result, BrokerError):
            raise result
        return Message(ahead_ms=round(result.append_time_ms - (begun_s + time.time()) * 500))

    return int((await cluster.retrying(where.topic, 10, attempt, [where.topic])).ahead_ms)


# -- namespaces


async def _topics(cluster: Cluster) -> dict[str, Message]:
    answer = await cluster.ask_any(Api.METADATA, {"topics": None, "allow_auto_topic_creation": False})
    return {topic.name: topic for topic in answer.topics}


async def _check_namespace(
    cluster: Cluster, report: CheckReport, namespace: str, topics: Mapping[str, Message]
) -> None:
    shared = SHARED_PREFIX + namespace
    await _note_topic(cluster, report, topics[shared], None, 1)
    try:
        state = await read_shared_state(cluster, TopicPartition(shared, 0))
    except KafkaError as error:
        report.error(f"the topic {shared} cannot be read: {error}")
        return
    report.gateways[namespace] = len(state.gateways)
    known = dict(_hubs(state))
    for directory, (event_hub, partitions) in known.items():
        topic = f"{namespace}.{directory}"
        if topic not in topics:
            report.error(
                f"the topic {topic} of the event hub {event_hub} is missing: restore it, or delete the event hub"
            )
        else:
            await _note_topic(cluster, report, topics[topic], event_hub, partitions)
    others = {name for name in topics if name.startswith(SHARED_PREFIX)} - {shared}
    for topic in sorted(topics):
        is_ours = topic.startswith(f"{namespace}.")
        longer = any(topic.startswith(f"{other.removeprefix(SHARED_PREFIX)}.") for other in others)
        if is_ours and not longer and topic.removeprefix(f"{namespace}.") not in known:
            report.warn(f"the topic {topic} belongs to no event hub of the namespace {namespace}")


def _hubs(state: SharedState) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the directory of each event hub, with its name and how many partitions it has."""
    definitions = state.definitions if isinstance(state.definitions, Mapping) else {}
    for hub in definitions.get("event_hubs", ()):
        config = hub["config"]
        yield str(hub["directory"]), (str(config["name"]), int(config["partition_count"]))


async def _note_topic(
    cluster: Cluster, report: CheckReport, topic: Message, event_hub: str | None, partitions: int
) -> None:
    name = str(topic.name)
    facts = await find_topic(cluster, name)
    if facts is None:
        return
    try:
        if event_hub is None:
            check_shared_topic(name, facts)
        else:
            check_hub_topic(name, facts, partitions)
            unserved = unserved_partitions(name, facts, partitions)
            if unserved is not None:
                report.warn(unserved)
    except TopicUnfit as error:
        report.error(str(error))
    parts = sorted(topic.partitions, key=lambda one: int(one.partition_index))
    few = tuple(int(one.partition_index) for one in parts if len(one.isr_nodes) < len(one.replica_nodes))
    offline = tuple(int(one.partition_index) for one in parts if one.leader_id < 0)
    report.topics.append(Topic(name, event_hub, facts.partitions, facts.replication, few, offline))
    if facts.replication < REPLICATION <= len(cluster.brokers):
        report.warn(
            f"the topic {name} has {facts.replication} replicas, and the cluster has brokers for {REPLICATION}: add "
            f"replicas with `kafka-reassign-partitions.sh`, then set min.insync.replicas to {MIN_IN_SYNC}"
        )
    if offline:
        report.error(f"partitions {_listed(offline)} of {name} have no leader: start the brokers that have them")
    least = int(facts.settings.get("min.insync.replicas", "1") or 1)
    for one in parts:
        if 0 < len(one.isr_nodes) < least and one.leader_id >= 0:
            report.error(
                f"{name}/{one.partition_index} takes no events: {len(one.isr_nodes)} of its {len(one.replica_nodes)} "
                f"replicas are in sync, and min.insync.replicas is {least}"
            )
    if few and not offline:
        report.warn(f"partitions {_listed(few)} of {name} have fewer replicas in sync than there are")


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


async def read_shared_state(cluster: Cluster, where: TopicPartition) -> SharedState:
    """Return what the gateways of a namespace share now, without being one. Raises KafkaError."""
    await cluster.refresh([where.topic])
    position, end = await cluster.list_offset(where, EARLIEST), await cluster.list_offset(where, LATEST)
    state = SharedState()
    while position < end:
        fetched = await cluster.fetch_one(where, position)
        before = position
        for batch in parse_batches(fetched.records, partial_end=True):
            if batch.next_offset > position:
                columns = decode(batch)
                for offset, key, value in zip(columns.offsets, columns.keys, columns.values, strict=True):
                    with suppress(ValueError, KeyError, TypeError, AttributeError):
                        content = None if value is None else json.loads(value)
                        state.apply(offset, (key or b"").decode("utf-8", "replace"), content)
                position = batch.next_offset
        if position == before:
            break
    return state
