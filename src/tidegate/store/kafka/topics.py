"""Topics with the settings that the hub's promises rest on: created, checked, changed and deleted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Api, Message
from tidegate.store.client.cluster import Cluster, topic_id
from tidegate.store.client.connection import BrokerError, KafkaError

_logger = logging.getLogger(__name__)
REPLICATION = 3
MIN_IN_SYNC = 2
MAX_MESSAGE_BYTES = 2 << 20
"""A publication of 1 MB is one record batch, with room for what a record adds."""
_TOPIC = 2
_SET = 0

PROMISES = {
    "message.timestamp.type": ("LogAppendTime", "enqueued times are those of the append, and not the publisher's"),
    "cleanup.policy": ("delete", "compaction would remove events"),
    "unclean.leader.election.enable": ("false", "a replica that was not in sync would lose acknowledged events"),
}
"""Settings that a hub's topic must have, and why."""


class TopicUnfit(KafkaError):
    """A topic that cannot hold a hub: it is another one's, or its settings would break a promise."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What a cluster says of a topic.

    Attributes:
        topic_id: Its identity; another topic of the same name has another one.
        partitions: How many there are.
        replication: How many replicas the partition with the fewest has.
        settings: Its settings, with those it has by default.
    """

    topic_id: str
    partitions: int
    replication: int
    settings: Mapping[str, str]


async def topic_id_of(cluster: Cluster, name: str) -> str | None:
    """Return the identity of a topic, None if there is no such topic. Raises KafkaError."""
    topic = await _described(cluster, name)
    return None if topic is None else topic_id(topic)


async def _described(cluster: Cluster, name: str) -> Message | None:
    answer = await cluster.ask_any(Api.METADATA, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
    topic: Message = answer.topics[0]
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if topic.error_code:
        raise BrokerError(topic.error_code, f"the topic {name}")
    return topic


async def find_topic(cluster: Cluster, name: str) -> TopicFacts | None:
    """Return what the cluster says of a topic, None if there is none. Raises KafkaError."""
    topic = await _described(cluster, name)
    if topic is None:
        return None
    values = {"resources": [{"resource_type": _TOPIC, "resource_name": name, "configuration_keys": None}]}
    described = (await cluster.ask_any(Api.DESCRIBE_CONFIGS, values)).results[0]
    if described.error_code:
        raise BrokerError(described.error_code, f"the settings of the topic {name}", described.error_message)
    return TopicFacts(
        topic_id(topic),
        len(topic.partitions),
        min((len(one.replica_nodes) for one in topic.partitions), default=0),
        {one.name: one.value or "" for one in described.configs},
    )


def hub_settings(replication: int, retention_ms: int | None, retention_bytes: int | None) -> dict[str, str]:
    """Return the settings of a hub's topic."""
    return {
        **{name: value for name, (value, _) in PROMISES.items()},
        "min.insync.replicas": str(min(MIN_IN_SYNC, replication)),
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        **retention_settings(retention_ms, retention_bytes),
    }


def retention_settings(retention_ms: int | None, retention_bytes: int | None) -> dict[str, str]:
    """Return the settings by which brokers delete old events; as in the embedded log, nothing is deleted by default."""
    return {
        "retention.ms": str(-1 if retention_ms is None else retention_ms),
        "retention.bytes": str(-1 if retention_bytes is None else retention_bytes),
        # retention deletes whole segments, so an event may outlive its time by an eighth
        **({} if retention_ms is None else {"segment.ms": str(max(60_000, retention_ms // 8))}),
    }


SHARED_SETTINGS = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "unclean.leader.election.enable": "false",
    "min.compaction.lag.ms": "600000",
}
"""Settings of the topic of what gateways share. Claims that lost are withdrawn long before compaction looks at them."""


async def create_topic(cluster: Cluster, name: str, partitions: int, settings: Mapping[str, str]) -> bool:
    """Create a topic, and return False if there is one of this name. Raises KafkaError."""
    replication = await possible_replication(cluster)
    given = {**settings, "min.insync.replicas": str(min(MIN_IN_SYNC, replication))}
    values = {
        "topics": [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": replication,
                "configs": [{"name": key, "value": value} for key, value in given.items()],
            }
        ],
        "timeout_ms": 20_000,
    }

    async def attempt() -> Message | None:
        answer: Message = (await cluster.ask_any(Api.CREATE_TOPICS, values)).topics[0]
        if answer.error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise BrokerError(answer.error_code, f"creating the topic {name}", answer.error_message)
        return answer

    answer = await cluster.retrying(f"creating the topic {name}", 30, attempt)
    return not answer.error_code


async def possible_replication(cluster: Cluster) -> int:
    """Return how many replicas a partition can have, three at most. Raises KafkaError."""
    await cluster.refresh()
    count = len(cluster.brokers)
    if count < REPLICATION:
        _logger.warning(
            "the cluster has %d broker%s, so events are kept %d times instead of %d: add brokers and then replicas",
            count,
            "" if count == 1 else "s",
            count,
            REPLICATION,
        )
    return max(1, min(REPLICATION, count))


def check_hub_topic(name: str, facts: TopicFacts, partitions: int) -> None:
    """Raise TopicUnfit, with the command that corrects it, if a topic would break a promise of the hub."""
    if facts.partitions < partitions:
        raise TopicUnfit(
            f"the topic {name} has {facts.partitions} partitions, and its event hub has {partitions}: it is not the "
            "topic in which the events were. Restore that one, or delete the event hub"
        )
    wrong = {
        key: (value, why)
        for key, (value, why) in PROMISES.items()
        if facts.settings.get(key, value).lower() != value.lower()
    }
    in_sync = facts.settings.get("min.insync.replicas", "1")
    needed = min(MIN_IN_SYNC, facts.replication)
    if in_sync.isdecimal() and int(in_sync) < needed:
        wrong["min.insync.replicas"] = (str(needed), "an acknowledged event would be lost with one broker")
    size = facts.settings.get("max.message.bytes", "")
    if size.isdecimal() and int(size) < MAX_MESSAGE_BYTES:
        wrong["max.message.bytes"] = (str(MAX_MESSAGE_BYTES), "the largest publications would be refused")
    if wrong:
        found = "; ".join(
            f"{key} is {facts.settings.get(key, 'missing')} and must be {value}, because {why}"
            for key, (value, why) in wrong.items()
        )
        change = ",".join(f"{key}={value}" for key, (value, _) in wrong.items())
        raise TopicUnfit(
            f"the topic {name} would break promises of the hub: {found}. Correct it with `kafka-configs.sh "
            f"--bootstrap-server HOST:PORT --alter --topic {name} --add-config {change}`"
        )


def unserved_partitions(name: str, facts: TopicFacts, partitions: int) -> str | None:
    """Return what to know of a topic with more partitions than its hub, None if it has as many.

    Adding partitions to a hub may have ended before the hub was changed, and Kafka cannot take them back.
    """
    if facts.partitions <= partitions:
        return None
    return (
        f"the topic {name} has {facts.partitions} partitions, and its event hub has {partitions}: the others are not "
        f"served. Give the event hub {facts.partitions} partitions to use them, in the portal or by Kafka's protocol"
    )


def check_shared_topic(name: str, facts: TopicFacts) -> None:
    """Raise TopicUnfit, with the command that corrects it, if a topic cannot hold what gateways share."""
    if facts.partitions != 1:
        raise TopicUnfit(f"the topic {name} has {facts.partitions} partitions and needs one: it is not Tidegate's")
    if "compact" not in facts.settings.get("cleanup.policy", "compact"):
        raise TopicUnfit(
            f"the topic {name} needs cleanup.policy=compact, or hubs and keys would be deleted. Correct it with "
            f"`kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {name} "
            "--add-config cleanup.policy=compact`"
        )


async def alter_topic(cluster: Cluster, name: str, settings: Mapping[str, str]) -> None:
    """Change some settings of a topic. Raises KafkaError."""
    configs = [{"name": key, "config_operation": _SET, "value": value} for key, value in settings.items()]
    resource = {"resource_type": _TOPIC, "resource_name": name, "configs": configs}
    answer = (await cluster.ask_any(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})).responses[0]
    if answer.error_code:
        raise BrokerError(answer.error_code, f"changing the topic {name}", answer.error_message)


async def add_partitions(cluster: Cluster, name: str, count: int) -> None:
    """Give a topic more partitions. Raises KafkaError."""
    values = {"topics": [{"name": name, "count": count, "assignments": None}], "timeout_ms": 20_000}
    answer = (await cluster.ask_any(Api.CREATE_PARTITIONS, values)).results[0]
    if answer.error_code:
        raise BrokerError(answer.error_code, f"adding partitions to the topic {name}", answer.error_message)


async def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic, if it is there. Raises KafkaError."""
    answer = await cluster.ask_any(Api.DELETE_TOPICS, {"topic_names": [name], "timeout_ms": 20_000})
    code = answer.responses[0].error_code
    if code not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        raise BrokerError(code, f"deleting the topic {name}")
