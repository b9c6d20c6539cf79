"""What a configuration may contain in addition to strict JSON."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.hub.config.lenient_json import strict_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("// a\n[1]", [1]),
        ("[1] // a", [1]),
        ("/* a */ [1, /* b\n */ 2]", [1, 2]),
        ("[1, 2, ]", [1, 2]),
        ('{"a": 1,\n}', {"a": 1}),
        ('{"a": 1, // last\n}', {"a": 1}),
        ('["//", "/* */", ",]"]', ["//", "/* */", ",]"]),
        (r'["\"//", "\\", 1]', ['"//', "\\", 1]),
    ],
)
def test_comments_and_last_commas_are_left_out_and_texts_are_not(text: str, value: dict[str, int] | list[Any]) -> None:
    assert json.loads(strict_json(text)) == value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='/*\\",[]{} a', max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='/*\\",', max_size=4), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(json_values, st.sampled_from([None, 2]))
def test_json_is_left_as_it_is(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    assert strict_json(text) == text


@given(st.text(alphabet='/*\\",[]{}\n a', max_size=60))
def test_lines_and_columns_stay(text: str) -> None:
    plain = strict_json(text)
    assert [len(line) for line in plain.split("\n")] == [len(line) for line in text.split("\n")]


@pytest.mark.parametrize(
    "text",
    ["/*" * 300_000, '"' + r"\"" * 300_000, '"/*' * 300_000, "," * 300_000, ", " * 300_000, "[" * 300_000, '"\\'],
    ids=["comments", "quotes", "strings", "commas", "commas and spaces", "brackets", "cut off"],
)
def test_time_is_in_proportion_to_the_text(text: Any) -> None:
    """Each of these took minutes to hours while an end that never comes was searched from every beginning."""
    started_s = time.process_time()
    assert len(strict_json(text)) == len(text)
    assert time.process_time() - started_s < 20
