"""Properties keep their types in JSON: whatever AMQP decodes comes back as it was."""

from __future__ import annotations

import json
import math
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.amqp import Message, Properties
from tidegate.amqp.encoding.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from tidegate.client.event import details_of
from tidegate.client.event_json import from_json, to_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LONGS = st.integers(-(2**63), 2**63 - 1)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    LONGS,
    st.floats(),
    TEXT,
    st.binary(max_size=20),
    st.uuids(),
    st.floats(width=32).map(Float),
    LONGS.map(Timestamp),
    st.integers(0, 2**64 - 1).map(Ulong),
    st.integers(0, 2**32 - 1).map(Uint),
    st.integers(0, 2**16 - 1).map(Ushort),
    st.integers(0, 2**8 - 1).map(Ubyte),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.characters(exclude_categories=["Cs"]).map(Char),
    TEXT.map(Symbol),
    st.binary(min_size=16, max_size=16).map(Decimal),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(TEXT.map(Symbol), inner, max_size=3),
        st.builds(Described, TEXT.map(Symbol), inner),
        st.lists(TEXT.map(Symbol), max_size=3).map(lambda items: Array.of(Symbol, items)),
    ),
    max_leaves=6,
)


def shape(value: Any) -> Any:
    """Return a value with the types of its parts, and NaN equal to itself."""
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, dict):
        return [(shape(key), shape(item)) for key, item in value.items()]
    if isinstance(value, Described):
        return Described, shape(value.descriptor), shape(value.value)
    if isinstance(value, Array):
        return value.code, shape(value.items), shape(value.descriptor)
    return type(value), "nan" if isinstance(value, float) and math.isnan(value) else value


@given(VALUES)
def test_every_value_comes_back_with_its_type(value: Any) -> None:
    text = json.dumps(to_json(value), allow_nan=False)
    assert shape(from_json(json.loads(text))) == shape(value)


def test_what_json_can_say_is_said_plainly() -> None:
    plain = {"a": "x", "b": 1, "c": 1.5, "d": True, "e": None}
    assert {name: to_json(value) for name, value in plain.items()} == plain
    assert to_json(Timestamp(1_769_860_800_120)) == {"type": "timestamp", "value": "2026-01-31T12:00:00.120Z"}
    assert to_json(UUID(int=1)) == {"type": "uuid", "value": "00000000-0000-0000-0000-000000000001"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": "number", "value": 1}, "'number' is no type of a property; types are ubyte"),
        ({"a": 1}, "None is no type of a property"),
        ({"type": "uuid", "value": "x"}, "'x' is no uuid"),
        ({"type": "timestamp", "value": "noon"}, "'noon' is no timestamp"),
        ([1], "a property is no array"),
    ],
)
def test_what_is_no_property_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(value)


def test_every_field_of_amqp_properties_is_a_system_property() -> None:
    properties = Properties(
        message_id="m",
        user_id=b"u",
        to="t",
        subject="s",
        reply_to="r",
        correlation_id="c",
        content_type="ct",
        content_encoding="ce",
        absolute_expiry_time_ms=1_769_860_900_000,
        creation_time_ms=1_769_860_800_000,
        group_id="g",
        group_sequence=5,
        reply_to_group_id="rg",
    )
    assert details_of(Message(properties=properties)).system_properties == {
        "message-id": "m",
        "user-id": "u",
        "to": "t",
        "subject": "s",
        "reply-to": "r",
        "correlation-id": "c",
        "content-type": "ct",
        "content-encoding": "ce",
        "absolute-expiry-time": "1769860900000",
        "creation-time": "1769860800000",
        "group-id": "g",
        "group-sequence": "5",
        "reply-to-group-id": "rg",
    }


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 2**31),
        ("byte", -129),
        ("ushort", -1),
        ("long", 2**63),
        ("ulong", 2**64),
        ("short", 1.5),
        ("uint", "x"),
        ("boolean", "yes"),
        ("boolean", 2),
        ("char", "ab"),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"is no {kind}"):
        from_json({"type": kind, "value": value})


def test_a_number_beyond_long_is_refused_and_booleans_are_read_in_any_case() -> None:
    with pytest.raises(ValueError, match="is no long"):
        from_json(2**63)
    assert from_json({"type": "boolean", "value": "TRUE"}) is True
    assert from_json({"type": "boolean", "value": "False"}) is False
    assert from_json({"type": "ulong", "value": 2**64 - 1}) == 2**64 - 1
