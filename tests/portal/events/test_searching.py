"""Searches find what they say, in bodies, properties and keys."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tidegate.amqp.encoding.types import Symbol
from tidegate.amqp.messages import Message, encode_message
from tidegate.hub.errors import ArgumentError
from tidegate.portal.events.reading import StoredEvent
from tidegate.portal.events.searching import parse_search


def event(body: bytes, key: str | None = None, **properties: Any) -> StoredEvent:
    annotations = None if key is None else {Symbol("x-opt-partition-key"): key}
    message = Message(
        message_annotations=annotations, application_properties=properties or None, body_kind="data", body=[body]
    )
    return StoredEvent("3", 1, 4, 0, encode_message(message))


EVENT = event(
    '{"deviceId": "Sensor-7", "device": {"id": 7, "on": true}, "tags": ["hot", "Größe"], "none": null}'.encode(),
    key="Key A",
    site="north plant",
    level=5,
)


@pytest.mark.parametrize(
    "search",
    [
        "",
        "sensor-7",
        "SENSOR north",
        '"north plant"',
        "deviceId:sensor-7",
        "DEVICEID:Sensor-7",
        "device.id:7",
        "device.id>6",
        "device.id>=7 device.id<8",
        "level<=5.0",
        "level!=6",
        'site>"north a"',
        "device.on:true",
        "tags:hot",
        "größe",
        "none:null",
        "-site:x",
        'site:"north plant"',
        "level:5",
        'key:"key a"',
        "partition:3",
        "-absent",
        "absent OR sensor-7",
        "absent OR (level:5 AND site:x) OR device.id>6",
        "NOT absent",
        "-(absent OR level>5)",
        "NOT (absent sensor-7) north",
        "(sensor-7) (((level:5)))",
        '"(" OR hot',
    ],
)
def test_it_is_found(search: str) -> None:
    match = parse_search(search)
    assert match is None or match(EVENT)


@pytest.mark.parametrize(
    "search",
    [
        "sensor-8",
        "sensor-7 absent",
        "level:5 (absent OR site:x)",
        "sensor-7 absent OR level:6",
        "NOT sensor-7 OR absent",
        "deviceId:7",
        "device.id:8",
        "-sensor",
        "key:north",
        "partition:1",
        "id:7",
        "x:y",
    ],
)
def test_it_is_not_found(search: str) -> None:
    assert not parse_search(search)(EVENT)


def test_bodies_that_are_not_json_are_searched_as_text() -> None:
    broken = event(b'{"deviceId": "a"')
    assert parse_search("deviceId")(broken)
    assert not parse_search("deviceId:a")(broken)
    assert not parse_search("key:a")(StoredEvent("0", 0, 0, 0, b"no message"))


def test_a_search_has_a_limit() -> None:
    with pytest.raises(ArgumentError, match="500 characters"):
        parse_search("x" * 501)


@pytest.mark.parametrize(
    "search", ["device.id>7", "level<5", "level!=5", "device.on>0", "missing>0", "tags>zz", "-level>4"]
)
def test_comparisons_that_do_not_hold_find_nothing(search: str) -> None:
    match = parse_search(search)
    assert match is not None
    assert not match(EVENT)


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ("(a", "a closing bracket at the end"),
        ("a)", "nothing opens the bracket at ')', character 2"),
        ("a OR", "a word or a comparison at the end"),
        ("a ()", "a word or a comparison at ')', character 4"),
        ("OR a", "at 'OR', character 1"),
        ("(" * 200 + "a" + ")" * 200, "at most 20 deep"),
        ("NOT " * 100 + "a", "at most 20 deep"),
    ],
)
def test_a_search_that_is_not_one_says_where(search: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(said)):
        parse_search(search)
