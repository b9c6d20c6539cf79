"""Settings of a hub's topic that would break a promise are refused by name, with the command that corrects them."""

from __future__ import annotations

import pytest

from tidegate.store.kafka.topics import (
    TopicFacts,
    TopicUnfit,
    check_hub_topic,
    hub_settings,
    retention_settings,
    unserved_partitions,
)


def facts(replication: int = 3, partitions: int = 4, **changes: str) -> TopicFacts:
    settings = {**hub_settings(3, None, None), **{name.replace("_", "."): value for name, value in changes.items()}}
    return TopicFacts("id", partitions, replication, settings)


def test_what_tidegate_creates_is_accepted() -> None:
    check_hub_topic("t", facts(), 4)
    check_hub_topic("t", facts(min_insync_replicas="3"), 4)
    check_hub_topic("t", facts(replication=1, min_insync_replicas="1"), 4)


@pytest.mark.parametrize(
    ("name", "value", "correct"),
    [
        ("message.timestamp.type", "CreateTime", "LogAppendTime"),
        ("cleanup.policy", "compact", "delete"),
        ("unclean.leader.election.enable", "true", "false"),
        ("min.insync.replicas", "1", "2"),
        ("max.message.bytes", "1048588", "2097152"),
    ],
)
def test_a_setting_that_breaks_a_promise(name: str, value: str, correct: str) -> None:
    with pytest.raises(TopicUnfit) as caught:
        check_hub_topic("t", facts(**{name.replace(".", "_"): value}), 4)
    message = str(caught.value)
    assert f"{name} is {value} and must be {correct}" in message
    assert f"--alter --topic t --add-config {name}={correct}`" in message


def test_a_topic_with_too_few_partitions_is_not_the_hubs() -> None:
    with pytest.raises(TopicUnfit, match="has 3 partitions, and its event hub has 4"):
        check_hub_topic("t", facts(partitions=3), 4)


def test_a_topic_may_have_more_partitions_than_its_hub() -> None:
    check_hub_topic("t", facts(partitions=5), 4)
    assert unserved_partitions("t", facts(partitions=4), 4) is None
    unserved = unserved_partitions("t", facts(partitions=5), 4)
    assert unserved is not None
    assert "Give the event hub 5 partitions to use them" in unserved


def test_retention() -> None:
    assert retention_settings(None, None) == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert retention_settings(86_400_000, 5)["segment.ms"] == "10800000"
