"""The settings of topics under Kafka's names: what a hub has, what a new one is to have, and how one changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from pydantic import ValidationError

from tidegate.hub.config import EventHubConfig
from tidegate.hub.namespace import EventHub
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Message
from tidegate.server.kafka.records_api import Fields, Refused

_OF_TOPIC, _STATIC, _DEFAULT = 1, 4, 5
"""Where a setting comes from, by the protocol's numbers: the topic, the broker, a default."""
_FOR_EVER = "-1"
_RETENTION = ("retention.ms", "retention.bytes")
_CLEANUP_POLICY = "cleanup.policy"
_CLEANUP_POLICIES = ("delete", "compact", "compact,delete", "delete,compact")
_COMPACT_MARK = "cleanup.policy=compact"
"""What the user metadata says of a hub that was asked for as a compacted topic."""
_IGNORED = frozenset(
    {
        "compression.type",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""Settings that mean nothing here: clients that give them are not refused."""


class SettingOperation(IntEnum):
    """What IncrementalAlterConfigs does to a setting, by the protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def settings_of(hub: EventHub) -> list[Fields]:
    """Return the settings of a hub, as DescribeConfigs has them."""
    config = hub.config
    is_compact = config.user_metadata == _COMPACT_MARK
    retention = zip(_RETENTION, (config.retention_ms, config.retention_bytes), strict=True)
    return [
        _row(_CLEANUP_POLICY, "compact" if is_compact else "delete", _OF_TOPIC if is_compact else _DEFAULT),
        *(
            _row(key, _FOR_EVER if value is None else str(value), _DEFAULT if value is None else _OF_TOPIC)
            for key, value in retention
        ),
        _row("compression.type", "producer", _DEFAULT),
        _row("max.message.bytes", str(hub.admission.max_message_bytes), _STATIC),
        _row("message.timestamp.type", "LogAppendTime", _STATIC),
        _row("min.insync.replicas", "1", _DEFAULT),
    ]


def settings_of_node() -> list[Fields]:
    """Return the settings of the node, as DescribeConfigs has them."""
    values = {"auto.create.topics.enable": "false", "default.replication.factor": "1", "num.partitions": "1"}
    return [_row(key, value, _STATIC) for key, value in values.items()]


def _row(name: str, value: str, source: int) -> Fields:
    return {"name": name, "value": value, "read_only": source == _STATIC, "config_source": source}


def config_of(topic: Message) -> EventHubConfig:
    """Return the hub that a request wants created. Raises Refused."""
    count = len(topic.assignments) or (1 if topic.num_partitions == -1 else topic.num_partitions)
    values: dict[str, object] = {"name": topic.name, "partition_count": count}
    for setting in topic.configs:
        values |= _fields(setting.name, setting.value)
    try:
        return EventHubConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        is_count = first["loc"][:1] == ("partition_count",)
        code = ErrorCode.INVALID_PARTITIONS if is_count else ErrorCode.INVALID_TOPIC_EXCEPTION
        raise Refused(code, first["msg"].removeprefix("Value error, ")) from None


def whole_change(hub: EventHub, settings: Iterable[Message]) -> dict[str, object]:
    """Return the fields that give a hub these settings, and the defaults of all others. Raises Refused."""
    given = {one.name: one.value for one in settings}
    names = dict.fromkeys((*_RETENTION, _CLEANUP_POLICY, *given))
    return _changes(hub, {name: given.get(name) for name in names})


def change(hub: EventHub, settings: Iterable[Message]) -> dict[str, object]:
    """Return the fields of a hub that operations on settings change. Raises Refused."""
    wanted: dict[str, str | None] = {}
    for one in settings:
        if one.name in wanted:
            raise Refused(ErrorCode.INVALID_REQUEST, f"the request names {one.name} twice")
        if one.config_operation == SettingOperation.SET:
            if one.value is None:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{one.name} has no value")
            wanted[one.name] = one.value
        elif one.config_operation == SettingOperation.DELETE:
            wanted[one.name] = None
        else:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{one.name} can be set or deleted, not appended to")
    return _changes(hub, wanted)


def _changes(hub: EventHub, wanted: Mapping[str, str | None]) -> dict[str, object]:
    """Return the fields for settings with their new values, None for the default. Raises Refused."""
    shown = {row["name"]: row["value"] for row in settings_of(hub)}
    fields: dict[str, object] = {}
    for name, value in wanted.items():
        if name in _RETENTION:
            fields |= _fields(name, _FOR_EVER if value is None else value)
        elif name == _CLEANUP_POLICY:
            mark = _fields(name, "delete" if value is None else value)["user_metadata"]
            if hub.config.user_metadata not in ("", _COMPACT_MARK):
                if mark:
                    raise Refused(ErrorCode.INVALID_CONFIG, "the hub has user metadata, where its policy would be kept")
                continue
            fields["user_metadata"] = mark
        elif name not in _IGNORED:
            raise Refused(ErrorCode.INVALID_CONFIG, f"a topic has no setting {name!r}")
        elif value is not None and name in shown and value != shown[name]:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is {shown[name]}, which cannot be changed")
    return fields


def _fields(name: str, value: str | None) -> dict[str, object]:
    """Return the fields of a hub that a setting means. Raises Refused."""
    if name in _RETENTION:
        if value is None or not value.removeprefix("-").isdecimal() or int(value) == 0 or int(value) < -1:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name} must be a number above 0, or -1, not {value!r}")
        return {name.replace(".", "_"): None if value == _FOR_EVER else int(value)}
    if name == _CLEANUP_POLICY:
        if value not in _CLEANUP_POLICIES:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name} cannot be {value!r}")
        return {"user_metadata": _COMPACT_MARK if value == "compact" else ""}
    if name not in _IGNORED:
        raise Refused(ErrorCode.INVALID_CONFIG, f"a topic has no setting {name!r}")
    return {}
