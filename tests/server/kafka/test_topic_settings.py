"""Changing the settings of a topic, by both of the protocol's requests."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.kafka.client import KafkaClient
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.hub.config import EventHubConfig
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Api
from tidegate.server import Server
from tidegate.server.kafka.topic_settings import SettingOperation

TOPIC, BROKER = 2, 4


@pytest.fixture
def client(server: Server) -> Iterator[KafkaClient]:
    connected = KafkaClient(server.kafka_port or 0)
    connected.log_in(server.connection_string())
    yield connected
    connected.close()


def alter(
    client: KafkaClient,
    hub: str,
    *operations: tuple[str, SettingOperation, str | None],
    kind: int = TOPIC,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    configs = [{"name": name, "config_operation": one, "value": value} for name, one, value in operations]
    resource = {"resource_type": kind, "resource_name": hub, "configs": configs}
    fields: dict[str, Any] = {"resources": [resource], "validate_only": validate_only}
    (found,) = client.ask(Api.INCREMENTAL_ALTER_CONFIGS, fields).responses
    assert (found.resource_type, found.resource_name) == (kind, hub)
    return found.error_code, found.error_message


def alter_all(client: KafkaClient, hub: str, **settings: str) -> int:
    configs = [{"name": name.replace("_", "."), "value": value} for name, value in settings.items()]
    resource = {"resource_type": TOPIC, "resource_name": hub, "configs": configs}
    (found,) = client.ask(Api.ALTER_CONFIGS, {"resources": [resource]}).responses
    return int(found.error_code)


def config(server: Server, hub: str) -> EventHubConfig:
    return server.namespace.event_hub(hub).config


def test_some_settings_change_and_the_others_stay(server: Server, client: KafkaClient, hub: str) -> None:
    first = (("retention.ms", SettingOperation.SET, "3600000"), ("retention.bytes", SettingOperation.SET, "1000000"))
    assert alter(client, hub, *first, validate_only=True)[0] == ErrorCode.NONE
    assert config(server, hub).retention_ms is None
    assert alter(client, hub, *first)[0] == ErrorCode.NONE
    assert (config(server, hub).retention_ms, config(server, hub).retention_bytes) == (3_600_000, 1_000_000)
    assert alter(client, hub, ("retention.bytes", SettingOperation.DELETE, None))[0] == ErrorCode.NONE
    assert (config(server, hub).retention_ms, config(server, hub).retention_bytes) == (3_600_000, None)
    assert alter(client, hub, ("cleanup.policy", SettingOperation.SET, "compact"))[0] == ErrorCode.NONE
    resource = {"resource_type": TOPIC, "resource_name": hub, "configuration_keys": None}
    (described,) = client.ask(Api.DESCRIBE_CONFIGS, {"resources": [resource]}).results
    values = {one.name: one.value for one in described.configs}
    assert (values["cleanup.policy"], values["retention.ms"]) == ("compact", "3600000")


def test_all_settings_are_replaced(server: Server, client: KafkaClient, hub: str) -> None:
    assert alter_all(client, hub, retention_ms="3600000", cleanup_policy="compact") == ErrorCode.NONE
    assert config(server, hub).retention_ms == 3_600_000
    described = {"retention_bytes": "5000000", "max_message_bytes": str(1 << 20), "segment_bytes": "1000"}
    assert alter_all(client, hub, **described) == ErrorCode.NONE
    assert (config(server, hub).retention_ms, config(server, hub).retention_bytes) == (None, 5_000_000)
    assert config(server, hub).user_metadata == ""


@pytest.mark.parametrize(
    ("name", "operation", "value", "code", "message"),
    [
        (
            "retention.ms",
            SettingOperation.SET,
            "soon",
            ErrorCode.INVALID_CONFIG,
            "retention.ms must be a number above 0",
        ),
        ("retention.ms", SettingOperation.SET, None, ErrorCode.INVALID_REQUEST, "retention.ms has no value"),
        ("retention.ms", SettingOperation.APPEND, "1", ErrorCode.INVALID_CONFIG, "can be set or deleted"),
        ("cleanup.policy", SettingOperation.SET, "never", ErrorCode.INVALID_CONFIG, "cleanup.policy cannot be 'never'"),
        (
            "max.message.bytes",
            SettingOperation.SET,
            "5",
            ErrorCode.INVALID_CONFIG,
            "is 1048576, which cannot be changed",
        ),
        ("colour", SettingOperation.SET, "red", ErrorCode.INVALID_CONFIG, "a topic has no setting 'colour'"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    server: Server,
    client: KafkaClient,
    hub: str,
    name: str,
    operation: SettingOperation,
    value: str | None,
    code: ErrorCode,
    message: str,
) -> None:
    before = config(server, hub)
    found, said = alter(client, hub, ("retention.bytes", SettingOperation.SET, "77"), (name, operation, value))
    assert (found, message in (said or "")) == (code, True), said
    assert config(server, hub) == before


def test_only_topics_that_are_there_have_settings_to_change(client: KafkaClient, hub: str) -> None:
    setting = ("retention.ms", SettingOperation.SET, "3600000")
    assert alter(client, "nowhere", setting)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(client, "0", setting, kind=BROKER)[0] == ErrorCode.INVALID_REQUEST
    assert alter(client, hub, setting, setting)[0] == ErrorCode.INVALID_REQUEST


def test_user_metadata_of_others_is_kept(server: Server, client: KafkaClient, hub: str) -> None:
    server.namespace.management.update_event_hub(hub, user_metadata="ours")
    assert alter(client, hub, ("cleanup.policy", SettingOperation.SET, "compact"))[0] == ErrorCode.INVALID_CONFIG
    assert alter(client, hub, ("cleanup.policy", SettingOperation.SET, "delete"))[0] == ErrorCode.NONE
    assert alter_all(client, hub, retention_ms="3600000") == ErrorCode.NONE
    assert config(server, hub).user_metadata == "ours"


def test_changing_settings_needs_manage(server: Server, hub: str) -> None:
    rule = AccessRule.create("reads and writes", (Right.SEND, Right.LISTEN))
    server.namespace.management.set_access_rule(rule)
    client = KafkaClient(server.kafka_port or 0)
    client.log_in(server.connection_string(rule))
    setting = ("retention.ms", SettingOperation.SET, "3600000")
    assert alter(client, hub, setting)[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert alter(client, "nowhere", setting)[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    client.close()
