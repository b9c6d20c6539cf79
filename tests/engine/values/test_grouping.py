from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.streams import run
from tidegate.engine.functions.operators import Comparison, compare, is_true
from tidegate.engine.values import json_lines
from tidegate.engine.values.grouping import codes_of, group, ordered_keys, sort_keys, spelled, texts_of_numbers, unified
from tidegate.engine.values.vectors import Vector

texts = st.lists(
    st.one_of(
        st.text(max_size=9),
        # A long beginning that all may have in common, and zeros, which are behind no text.
        st.builds(
            "{}{}".format, st.sampled_from(["", "dev", "device-", "device-äöü-0000"]), st.text("\0a1ä", max_size=8)
        ),
    ),
    max_size=12,
)
beginnings = st.builds(
    lambda begin, ends: [begin + end for end in ends], st.text(max_size=20), st.lists(st.text(max_size=3))
)


@given(st.one_of(texts, beginnings), st.integers(0, 3))
def test_text_is_sorted_by_code_points(values: list[str], cut: int) -> None:
    keys = sort_keys(Vector.of_texts(Vector.of(["x", *values]).text_values()[1:])).tolist()
    assert sorted(range(len(values)), key=keys.__getitem__) == sorted(range(len(values)), key=values.__getitem__)
    assert len(set(keys)) == len(set(values))
    some = Vector.of(values).text_values()[cut:]
    keys = sort_keys(Vector.of_texts(some)).tolist()
    assert sorted(range(len(some)), key=keys.__getitem__) == sorted(range(len(some)), key=values[cut:].__getitem__)


wide = st.sampled_from([0, 1, 5, 2**39, 2**41, -(2**62), 2**62, 2**63 - 1])
tables = st.integers(0, 4).flatmap(
    lambda width: st.lists(st.tuples(*[wide] * width, st.sampled_from(["a", "b", None, 1])))
)


@given(tables)
def test_rows_are_grouped_by_all_their_columns(rows: list[tuple[Any, ...]]) -> None:
    *columns, values = list(zip(*rows, strict=True)) or [()]
    groups = group(len(rows), [Vector.of(values)], [np.array(column, dtype=np.int64) for column in columns])
    assert groups.count == len(set(rows))
    assert [rows[first] for first in groups.firsts[groups.codes].tolist()] == rows
    assert [rows.index(row) for row in rows] == groups.firsts[groups.codes].tolist()


NUMBERS = st.sampled_from([0, -0.0, 1, 1.0, True, False, 2**53, 2.0**53, 2**53 + 1, 2**63 - 1, 2.0**63, -(2**63), 0.5])
TEXTS = st.sampled_from(["a", "A", "\u00e4", "\u00c4", "1", "1.0", "true", ""])
NESTED = st.sampled_from([{"x": 1}, {"X": 1.0}, {"x": 1, "y": "a"}, {"y": "A", "x": True}, {}, {"x": None}])


@given(st.lists(NUMBERS) | st.lists(TEXTS) | st.lists(NESTED) | st.lists(st.lists(NUMBERS | TEXTS, max_size=2)))
def test_keys_are_one_where_values_are_equal(values: list[Any]) -> None:
    column = Vector.of(values)
    codes = group(len(values), [unified(column)]).codes
    alone = [unified(Vector.of([value]), everywhere=True) for value in values]
    everywhere = group(len(values), [Vector.concat(alone)]).codes
    for row in range(len(values)):
        equal = is_true(compare(Comparison.EQUAL, Vector.of([values[row]] * len(values)), column)).tolist()
        assert (codes == codes[row]).tolist() == (everywhere == everywhere[row]).tolist() == equal


@given(st.lists(NUMBERS | TEXTS | st.none(), min_size=1), st.randoms())
def test_a_key_is_spelled_the_same_in_every_order_of_its_rows(values: list[Any], random: Any) -> None:
    found = []
    for _ in range(2):
        column = Vector.of(values)
        groups = group(len(values), [unified(column)])
        names = spelled(column, groups).to_list()
        assert all(name in values for name in names)
        found.append(sorted(map(repr, names)))
        random.shuffle(values)
    assert found[0] == found[1]


@given(st.lists(NUMBERS, max_size=9) | st.lists(TEXTS, max_size=9))
def test_values_are_ordered_as_they_are_compared(values: list[Any]) -> None:
    keys = ordered_keys(Vector.of(values))
    for row in range(len(values)):
        less = is_true(compare(Comparison.LESS, Vector.of([values[row]] * len(values)), Vector.of(values)))
        assert (keys[less] > keys[row]).all()


def test_a_column_with_one_spelling_of_each_key_is_left_as_it_is() -> None:
    for values in ([1, 2], [1.5, 2.0, None], ["device-1", "device-2"], [True, None], [None]):
        column = Vector.of(values)
        assert unified(column) is column


@pytest.mark.parametrize(
    "expression",
    ["GetArrayLength(i.a)", "CAST(i.r AS nvarchar(max))", "CASE WHEN i.r = i.r THEN 1 ELSE 0 END", "GetType(i.r)"],
)
def test_what_the_rows_of_cross_apply_share_is_looked_at_once(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0

    def counting(value: Any) -> Any:
        nonlocal seen
        seen += isinstance(value, dict | list)
        return value

    monkeypatch.setattr(json_lines, "plain", counting)
    rows = run(
        f"SELECT {expression} AS x INTO o FROM i CROSS APPLY GetArrayElements(i.a) AS e",
        [{"a": list(range(300)), "r": {"x": "y" * 200, "z": [1]}}],
    )
    assert len(rows) == 300
    assert len({str(row) for row in rows}) == 1
    assert seen <= 5


def test_long_records_are_told_apart_as_short_ones_are() -> None:
    values = [{"a": "x" * 500}, {"a": "x" * 499 + "y"}, {"a": "x" * 500}, {"a": 1}, {"a": 1}, {"a": 2}]
    assert codes_of(Vector.of(values))[0].tolist() == [0, 1, 0, 2, 2, 3]


def test_texts_that_equal_a_number_are_found_beside_it() -> None:
    values = [1, "1", " 1.0 ", "1e0", "true", 2.5, "2.50", "x", None, "3", "", [1], {"a": "1"}]
    assert texts_of_numbers(Vector.of(values)).tolist() == [1, 2, 3, 6]
    assert texts_of_numbers(Vector.of([True, "TRUE", "false", "1"])).tolist() == [1, 3]
    assert texts_of_numbers(Vector.of(["1", "true", None])).tolist() == []
    assert texts_of_numbers(Vector.of([1, 1.0, True])).tolist() == []
