"""What Kafka's clients send: frames, requests of every version, record batches, every compression, and schemas."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.server.kafka.client import produce_fields
from tidegate.kafka.compression import Compression, Oversized, Undecodable, compress, decompress
from tidegate.kafka.messages import VERSIONS, Api, MalformedMessage, encode_request, parse_header, parse_request
from tidegate.kafka.records import BatchError, RecordBatch, decode, encode, parse_batches
from tidegate.kafka.translation import batch_of, events_of, record_of
from tidegate.schemas import SchemaError, SchemaFormat, SchemaText
from tidegate.server.kafka.connection import SUPPORTED

_MOST_BYTES = 1 << 20
VALUES = [b"", b"a value", b"x" * 300, None]
BATCH = encode(
    VALUES,
    timestamps_ms=[1_700_000_000_000, 1_700_000_000_007, 1_699_999_999_000, 0],
    keys=[None, b"key", b"\xff\xfe", b""],
    headers=[(), (("n", b"v"), ("m", None)), (("n", b"v"),), ()],
    producer=(7, 1, 3),
)
BATCHES = [
    BATCH,
    *(encode(VALUES[:3] * 20, timestamps_ms=[5] * 60, compression=compression) for compression in Compression),
    encode([bytes(300_000)], timestamps_ms=[0], compression=Compression.ZSTD),
    BATCH + BATCH,
    BATCH[:16] + b"\x01" + BATCH[17:],  # a magic number of old
]
BOMBS = {compression: compress(compression, bytes(8 << 20)) for compression in Compression if compression}


def requests(data: bytes) -> None:
    """A request is parsed, or refused as malformed; what a version cannot mean is refused before."""
    try:
        header = parse_header(data)
    except MalformedMessage:
        return
    first, last = SUPPORTED.get(header.api, (1, 0))
    if first <= header.version <= last and VERSIONS[header.api][0] <= header.version:
        with contextlib.suppress(MalformedMessage):
            parse_request(header, data)


def batches(data: bytes) -> None:
    """A batch is decoded as its header says, or refused; as events and back, its values stay what they were."""
    try:
        found = list(parse_batches(data))
    except BatchError:
        return
    for batch in found:
        with contextlib.suppress(BatchError):
            batch.check()
        _decoded(batch)


def _decoded(batch: RecordBatch) -> None:
    try:
        columns = decode(batch, _MOST_BYTES)
    except BatchError:
        return
    assert len(columns.values) == len(columns.keys) == len(columns.headers) == batch.count
    assert sum(len(value or b"") for value in columns.values) <= _MOST_BYTES
    events = events_of(batch, _MOST_BYTES)
    assert [record_of(event)[1] for event in events] == [value or b"" for value in columns.values]
    (again,) = parse_batches(batch_of(events, 3, 5))
    assert [value or b"" for value in decode(again).values] == [value or b"" for value in columns.values]


def _compressed(compression: Compression) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        """What decompresses is no longer than it may be."""
        try:
            found = decompress(compression, data, _MOST_BYTES)
        except (Undecodable, Oversized):
            return
        assert len(found) <= _MOST_BYTES

    return run


def schemas(data: bytes) -> None:
    """Two texts, one a line: each is a schema or is none, and the two are compared or too complex for it."""
    kind, _, text = data.decode("utf-8", "replace").partition("\n")
    reader, _, writer = text.partition("\n")
    schema_format = SchemaFormat.JSON if kind.startswith("j") else SchemaFormat.AVRO
    with contextlib.suppress(SchemaError):
        one, other = SchemaText(schema_format, reader), SchemaText(schema_format, writer)
        assert one.identity() == SchemaText(schema_format, reader).identity()
        one.differences(other)


def _request(api: Api, version: int, fields: Mapping[str, Any]) -> bytes:
    """A request without its length."""
    return encode_request(api, version, 1, "a client", fields)[4:]


_FIELDS: Mapping[Api, Mapping[str, Any]] = {
    Api.PRODUCE: produce_fields("eh1", BATCH),
    Api.FETCH: {
        "max_wait_ms": 1,
        "min_bytes": 1,
        "topics": [{"topic": "eh1", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]}],
    },
    Api.METADATA: {"topics": [{"name": "eh1"}]},
    Api.JOIN_GROUP: {
        "group_id": "g",
        "session_timeout_ms": 6000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1"}],
    },
    Api.SYNC_GROUP: {"group_id": "g", "member_id": "m", "assignments": [{"member_id": "m", "assignment": b"x"}]},
    Api.OFFSET_COMMIT: {
        "group_id": "g",
        "topics": [{"name": "eh1", "partitions": [{"partition_index": 0, "committed_offset": 3}]}],
    },
    Api.LIST_OFFSETS: {"topics": [{"name": "eh1", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
    Api.CREATE_TOPICS: {"topics": [{"name": "t", "num_partitions": 1, "configs": [{"name": "a", "value": "b"}]}]},
    Api.SASL_AUTHENTICATE: {"auth_bytes": b"\0$ConnectionString\0Endpoint=sb://x;SharedAccessKeyName=n"},
    Api.API_VERSIONS: {"client_software_name": "x", "client_software_version": "1"},
}
REQUESTS = [
    _request(Api(api), version, _FIELDS.get(Api(api), {}))
    for api, (first, last) in SUPPORTED.items()
    for version in {max(first, VERSIONS[api][0]), last}
]
FRAMES = [struct.pack(">i", len(request)) + request for request in REQUESTS]


def framed(api: Api, fields: Mapping[str, Any]) -> bytes:
    """Return a request of the newest version that the hub knows, with its length."""
    return encode_request(api, SUPPORTED[api][1], 1, "a client", fields)


_AVRO = (
    b'{"type":"record","name":"R","fields":[{"name":"a","type":["null",{"type":"array","items":"R"}],"default":null}]}'
)
_JSON = b'{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"anyOf":[{"type":"string"},true]}}}'
SCHEMAS = [b"avro\n%s\n%s" % (_AVRO, _AVRO), b"json\n%s\n%s" % (_JSON, _JSON), b'avro\n"int"\n["int"]']
TARGETS: Mapping[str, tuple[Callable[[bytes], None], Sequence[bytes], int]] = {
    "kafka_requests": (requests, REQUESTS, 1),
    "kafka_batches": (batches, BATCHES, 2),
    **{
        f"kafka_{compression.name.lower()}": (
            _compressed(compression),
            [compress(compression, data) for data in (b"", b"a body" * 50, bytes(range(256)))] + [bomb],
            2,
        )
        for compression, bomb in BOMBS.items()
    },
    "schemas": (schemas, SCHEMAS, 2),
}
