"""Compared with kio, another encoder of the protocol, whose types were generated from Kafka's own definitions."""

import contextlib
import dataclasses
import datetime
import importlib
import io
import random
import types
import typing
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from tests.profiles import scaled
from tidegate.kafka import messages, schemas
from tidegate.kafka.messages import (
    VERSIONS,
    Api,
    MalformedMessage,
    Message,
    encode_request,
    encode_response,
    parse_header,
    parse_request,
    parse_response,
)

EVERY_VERSION = [(api, version) for api in Api for version in range(VERSIONS[api][0], VERSIONS[api][1] + 1)]
IDS = [f"{api.name.lower()}-{version}" for api, version in EVERY_VERSION]
RANGES = {"int8": 2**7, "int16": 2**15, "int32": 2**31, "int64": 2**63}


def entity(api: Api, version: int, kind: str) -> typing.Any:
    module = importlib.import_module(f"kio.schema.{api.name.lower()}.v{version}.{kind}")
    wanted = api.name.replace("_", "").lower() + kind
    return next(getattr(module, name) for name in dir(module) if name.lower() == wanted)


def optional(hint: object) -> tuple[typing.Any, bool]:
    """Return a type, and whether it may be None."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint, False
    arguments = typing.get_args(hint)
    return next(one for one in arguments if one is not type(None)), type(None) in arguments


def a_value(draw: random.Random, hint: object, metadata: typing.Mapping[str, object], depth: int) -> object:
    hint, nullable = optional(hint)
    kind = metadata.get("kafka_type")
    if nullable and draw.random() < 0.3 and kind != "uuid":
        return None
    if typing.get_origin(hint) is tuple:
        (element, _) = typing.get_args(hint)
        return tuple(a_value(draw, element, metadata, depth + 1) for _ in range(draw.randrange(3)))
    if dataclasses.is_dataclass(hint):
        return an_entity(draw, hint, depth + 1)
    if kind in RANGES:
        return draw.choice((0, 1, -1, RANGES[kind] - 1, -RANGES[kind]))
    if kind == "error_code":
        return next(iter(hint))
    if kind in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=draw.choice((0, 1, 30_000, 2**31 - 1)))
    if kind == "datetime_i64":
        return datetime.datetime.fromtimestamp(draw.randrange(1, 2**31), datetime.UTC)
    return {
        "bool": draw.random() < 0.5,
        "string": draw.choice(("", "hub", "Pegel-Höhe", "x" * 200)),
        "bytes": draw.randbytes(draw.choice((0, 3, 200))),
        "records": draw.randbytes(draw.choice((0, 3, 200))),
        "uuid": uuid.UUID(bytes=draw.randbytes(16)),
    }[str(kind)]


def an_entity(draw: random.Random, kind: type, depth: int = 0) -> typing.Any:
    hints = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if "tag" not in field.metadata]
    return kind(**{field.name: a_value(draw, hints[field.name], field.metadata, depth) for field in fields})


def plain(value: object, kafka_type: object = None) -> object:
    """Return kio's value as this package spells it."""
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if dataclasses.is_dataclass(value):
        return dict(plain_fields(value))
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return value


def plain_fields(value: object) -> Iterator[tuple[str, object]]:
    for field in dataclasses.fields(value):
        if "tag" in field.metadata:
            continue
        given = getattr(value, field.name)
        kind = str(field.metadata.get("kafka_type"))
        if given is None and kind == "datetime_i64":
            given = -1
        is_time = kind.startswith("timedelta") or kind == "datetime_i64"
        yield field.name + ("_ms" if is_time else ""), plain(given)


def ours(value: object) -> object:
    """Return a parsed value without the fields that the version does not have."""
    if isinstance(value, Message):
        return {name: ours(one) for name, one in vars(value).items()}
    return [ours(one) for one in value] if isinstance(value, list) else value


def assert_holds(found: object, expected: object) -> None:
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert_holds(found[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_holds(one, other)
    else:
        assert found == expected


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=IDS)
def test_requests_are_read_and_written_as_kio_does(api: Api, version: int) -> None:
    kind = entity(api, version, "request")
    draw = random.Random(f"{api} {version}")
    for _ in range(scaled(3)):
        buffer = io.BytesIO()
        theirs = an_entity(draw, kind)
        entity_writer(kind)(buffer, theirs)
        frame = encode_request(api, version, 77, "a client", plain(theirs))
        header = parse_header(frame[4:])
        assert header[:4] == (api, version, 77, "a client")
        assert frame[4 + header.body_at :] == buffer.getvalue()
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert_holds(ours(parse_request(header, frame[4:])), plain(theirs))


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=IDS)
def test_responses_are_read_and_written_as_kio_does(api: Api, version: int) -> None:
    kind = entity(api, version, "response")
    draw = random.Random(f"{api} {version}")
    for _ in range(scaled(3)):
        buffer = io.BytesIO()
        theirs = an_entity(draw, kind)
        entity_writer(kind)(buffer, theirs)
        frame = encode_response(api, version, 78, plain(theirs))
        assert frame.endswith(buffer.getvalue())
        assert len(frame) - len(buffer.getvalue()) == 8 + (kind.__header_schema__.__flexible__)
        correlation_id, message = parse_response(api, version, frame[4:])
        assert correlation_id == 78
        assert_holds(ours(message), plain(theirs))
        assert plain(entity_reader(kind)(buffer.getvalue(), 0)[0]) == plain(theirs)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=IDS)
def test_a_message_that_is_cut_off_or_changed_is_malformed_or_another_message(api: Api, version: int) -> None:
    draw = random.Random(f"{api} {version}")
    frame = encode_request(api, version, 1, None, plain(an_entity(draw, entity(api, version, "request"))))[4:]
    header = parse_header(frame)
    for end in range(header.body_at, len(frame), 1 + len(frame) // 50):
        with pytest.raises(MalformedMessage):
            parse_request(header, frame[:end])
    for _ in range(scaled(20)):
        changed = bytearray(frame)
        changed[draw.randrange(header.body_at, len(frame)) if header.body_at < len(frame) else 0] ^= draw.randrange(256)
        with contextlib.suppress(MalformedMessage):
            parse_request(header, bytes(changed))


@given(st.sampled_from(EVERY_VERSION), st.binary(max_size=100))
def test_garbage_is_malformed_or_a_message(which: tuple[Api, int], data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        parse_header(data)
    header = messages.RequestHeader(*which, 0, None, 0)
    with contextlib.suppress(MalformedMessage):
        parse_request(header, data)
    with contextlib.suppress(MalformedMessage):
        parse_response(*which, data)


def test_an_array_has_no_more_elements_than_there_are_bytes() -> None:
    frame = bytearray(encode_request(Api.LIST_GROUPS, 4, 1, None, {"states_filter": ["a"]})[4:])
    header = parse_header(bytes(frame))
    frame[header.body_at :] = b"\xff\xff\xff\xff\x0f"
    with pytest.raises(MalformedMessage, match="an array of 4294967294 elements in 0 bytes"):
        parse_request(header, bytes(frame))


def test_tagged_fields_are_passed_over() -> None:
    frame = encode_request(Api.HEARTBEAT, 4, 1, "c", {"group_id": "g", "generation_id": 3, "member_id": "m"})[4:]
    header = parse_header(frame)
    with_tags = frame[:-1] + b"\x02\x00\x01x\x05\x00"
    assert parse_request(header, with_tags).generation_id == 3


def test_the_version_of_an_unknown_request_is_still_known() -> None:
    header = parse_header(b"\x03\xe7\x00\x09\x00\x00\x00\x05\x00\x01c")
    assert header[:4] == (999, 9, 5, "c")


def test_a_field_that_no_version_has_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(KeyError, match="throttle"):
        encode_response(Api.HEARTBEAT, 4, 1, {"throttle": 1})


def test_every_request_of_the_table_has_a_name() -> None:
    assert {int(api) for api in Api} == set(VERSIONS)
    assert all(api.name.replace("_", "") in schemas.MESSAGES.upper() for api in Api)


@pytest.mark.parametrize(("version", "null"), [(2, b"\xff\xff\xff\xff"), (7, b"\0")])
def test_an_array_that_cannot_be_null_is_empty_instead(version: int, null: bytes) -> None:
    frame = encode_request(Api.CREATE_TOPICS, version, 1, None, {"topics": [], "timeout_ms": 7})[4:]
    empty = b"\0\0\0\0" if version == 2 else b"\1"
    at = frame.rindex(empty + b"\0\0\0\7")
    found = parse_request(parse_header(frame), frame[:at] + null + frame[at + len(empty) :])
    assert (found.topics, found.timeout_ms) == ([], 7)
    asked = encode_request(Api.METADATA, 12, 1, None, {"topics": None})[4:]
    assert parse_request(parse_header(asked), asked).topics is None
