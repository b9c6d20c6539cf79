"""A namespace to open with little text, tokens, and messages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.log.support import InlineCommitter, SetClock
from tidegate.amqp.messages import Message, encode_message, parse_message
from tidegate.hub import EventHubConfig, HubError, Namespace, NamespaceConfig
from tidegate.hub.access import Grant, sign
from tidegate.hub.access_rules import EMULATOR_KEY, ROOT_RULE
from tidegate.hub.publish import Publisher

NOW_S = 1_700_000_000
CONFIG = NamespaceConfig(
    name="ns",
    event_hubs=(
        EventHubConfig(name="tolls", partition_count=4, consumer_groups=("cg1",)),
        EventHubConfig(name="Other", partition_count=2),
    ),
)


def open_namespace(data_dir: Path, config: NamespaceConfig = CONFIG, **options: Any) -> Namespace:
    options.setdefault("clock", SetClock())
    options.setdefault("committer", InlineCommitter())
    return Namespace.open(data_dir, config, durable=False, **options)


def token(path: str, *, rule: str = ROOT_RULE, key: str = EMULATOR_KEY, expires_in_s: int = 3600) -> str:
    return sign(f"sb://localhost/{path}", rule, key, NOW_S + expires_in_s)


def grant(namespace: Namespace, path: str = "", **options: Any) -> Grant:
    return namespace.access.check_token(token(path, **options), NOW_S)


def message(body: bytes = b"body", partition_key: str | None = None, **annotations: Any) -> bytes:
    named = {name.replace("_", "-"): value for name, value in annotations.items()}
    if partition_key is not None:
        named["x-opt-partition-key"] = partition_key
    return encode_message(Message(body_kind="data", body=[body], message_annotations=named or None))


def batch(messages: Sequence[bytes], partition_key: str | None = None) -> bytes:
    annotations = None if partition_key is None else {"x-opt-partition-key": partition_key}
    return encode_message(Message(body_kind="data", body=list(messages), message_annotations=annotations))


def publish(publisher: Publisher, payload: bytes, message_format: int = 0) -> None:
    """Publish through an inline committer. Raises what the hub answers."""
    answers: list[HubError | None] = []
    publisher.publish(message_format, payload, answers.append)
    (answer,) = answers
    if answer is not None:
        raise answer


def events(namespace: Namespace, hub: str = "tolls") -> dict[str, list[bytes]]:
    """What each partition holds, leaving empty ones out."""
    found = {
        partition.partition_id: [event for batch in partition.log.read_batches(0) for event in batch.events]
        for partition in namespace.event_hub(hub).partitions
    }
    return {partition: stored for partition, stored in found.items() if stored}


def annotations(event: bytes) -> dict[str, Any]:
    return {str(name): value for name, value in (parse_message(event).message_annotations or {}).items()}
