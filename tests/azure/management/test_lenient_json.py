"""JSON as Azure's reader accepts it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.azure.management.access.requests import parse_json, strict_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"properties": {"mode": "x", template:{\r\n "a": 1}}}', {"properties": {"mode": "x", "template": {"a": 1}}}),
        ('{"a": 1, // two\n "b": 2, /* three, */ }', {"a": 1, "b": 2}),
        ('{"a": "one\n  two"}', {"a": "one\n  two"}),
        ("{'a': 'it\\'s \"quoted\"'}", {"a": 'it\'s "quoted"'}),
        ('{"a": "// no comment", "b": "[x,]"}', {"a": "// no comment", "b": "[x,]"}),
        ("{$schema: true, b: [null,], }", {"$schema": True, "b": [None]}),
    ],
)
def test_what_templates_may_be(text: str, value: Any) -> None:
    assert parse_json(text.encode()) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_json_stays_as_it_is(value: Any) -> None:
    assert json.loads(strict_json(json.dumps(value))) == value


@pytest.mark.parametrize("text", ['"' * 200_001, "/*" * 200_000, "'" + "\\" * 200_000, "a" * 400_000, "{," * 200_000])
def test_it_takes_time_in_proportion(text: str) -> None:
    start_s = time.thread_time()
    strict_json(text)
    assert time.thread_time() - start_s < 5
