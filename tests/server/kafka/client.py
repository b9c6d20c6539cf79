"""A client of Kafka's protocol that sends what a test wants, and nothing else."""

import itertools
import socket
from collections.abc import Mapping
from typing import Any

from tests.patience import PATIENCE_S
from tidegate.kafka.messages import VERSIONS, Api, Message, encode_request, parse_response
from tidegate.kafka.records import encode
from tidegate.server.kafka.connection import SUPPORTED

FETCH_BY_NAME = 12
"""The last version in which topics are named."""


class KafkaClient:
    """One connection. Requests use the newest version that both sides know, unless a test says otherwise."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._numbers = itertools.count(1)
        self._file = self.socket.makefile("rb")

    def send(self, api: Api, fields: Mapping[str, Any] | None = None, version: int | None = None) -> tuple[Api, int]:
        """Send a request, and return what `receive` needs to know."""
        chosen = SUPPORTED[api][1] if version is None else version
        assert VERSIONS[api][0] <= chosen <= VERSIONS[api][1]
        self.socket.sendall(encode_request(api, chosen, next(self._numbers), "a test", fields or {}))
        return api, chosen

    def receive(self, api: Api, version: int) -> Message:
        """Return the next response."""
        return parse_response(api, version, self.receive_frame())[1]

    def receive_frame(self) -> bytes:
        """Return the next frame, b"" at the end."""
        size = self._file.read(4)
        return self._file.read(int.from_bytes(size, "big")) if size else b""

    def ask(self, api: Api, fields: Mapping[str, Any] | None = None, version: int | None = None) -> Message:
        """Send a request and return its response."""
        return self.receive(*self.send(api, fields, version))

    def log_in(self, connection_string: str) -> Message:
        """Authenticate with a connection string."""
        self.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
        token = f"\0$ConnectionString\0{connection_string}".encode()
        return self.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": token})

    def produce(self, topic: str, records: bytes, partition: int = 0, acks: int = -1, **fields: Any) -> Message:
        """Send a record set to a partition, and return the partition's part of the response."""
        response = self.ask(Api.PRODUCE, produce_fields(topic, records, partition, acks, **fields))
        found: Message = response.responses[0].partition_responses[0]
        return found

    def fetch(self, topic: str, offset: int, partition: int = 0, **fields: Any) -> Message:
        """Fetch from a partition without a session, and return its part of the response."""
        response = self.ask(Api.FETCH, fetch_fields({(topic, partition): offset}, **fields), FETCH_BY_NAME)
        found: Message = response.responses[0].partitions[0]
        return found

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self.socket.close()


def produce_fields(topic: str, records: bytes, partition: int = 0, acks: int = -1, **fields: Any) -> dict[str, Any]:
    part = {"index": partition, "records": records}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 10_000,
        "topic_data": [{"name": topic, "partition_data": [part]}],
        **fields,
    }


def fetch_fields(offsets: Mapping[tuple[str, int], int], **fields: Any) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets.items():
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topics.setdefault(topic, []).append(asked)
    rows = [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": rows, **fields}


def batch_of(*values: bytes, **options: Any) -> bytes:
    return encode(values, timestamps_ms=[5] * len(values), **options)
