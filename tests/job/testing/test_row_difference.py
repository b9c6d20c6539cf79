"""How rows differ: as bags, and told so that a person sees it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.job.testing.case import same_value
from tidegate.job.testing.row_difference import compare_rows

ROWS = st.lists(
    st.fixed_dictionaries(
        {"k": st.sampled_from("abc"), "n": st.sampled_from([1, 1.0, 2, 2.0000000001, None]), "f": st.booleans()}
    ),
    max_size=8,
)


@given(rows=ROWS, seed=st.randoms(use_true_random=False))
def test_a_bag_has_no_order(rows: list[Any], seed: Any) -> None:
    shuffled = list(rows)
    seed.shuffle(shuffled)
    difference = compare_rows(rows, shuffled)
    assert difference.is_empty
    assert difference.equal == len(rows)


@given(expected=ROWS, actual=ROWS)
def test_every_row_is_in_the_difference_once(expected: list[Any], actual: list[Any]) -> None:
    difference = compare_rows(expected, actual)
    assert difference.equal + len(difference.differing) + len(difference.missing) == len(expected)
    assert difference.equal + len(difference.differing) + len(difference.unexpected) == len(actual)
    left = list(actual)
    for row in expected:
        same = next((other for other in left if same_value(row, other)), None)
        if same is not None:
            left.remove(same)
    assert difference.is_empty == (not left and len(expected) == len(actual))


def test_rows_are_paired_with_what_they_are_most_like() -> None:
    difference = compare_rows(
        [{"id": 1, "v": 5, "t": "x"}, {"id": 2, "v": 6, "t": "y"}, {"id": 3, "v": 9, "t": "z"}],
        [{"id": 2, "v": 7.5, "t": "y"}, {"id": 1, "v": 5.0, "t": "x"}, {"other": True}],
    )
    assert difference.summary() == "1 as expected, 1 different, 1 missing, 1 unexpected"
    assert difference.lines() == [
        '~ row 2: {"id": 2, "t": "y"}',
        "    v  expected 6, got 7.5",
        '- row 3: {"id": 3, "v": 9, "t": "z"}',
        '+ {"other": true}',
    ]


def test_a_field_that_is_not_there_is_not_null() -> None:
    difference = compare_rows([{"a": 1, "b": None}], [{"a": 1}])
    assert difference.lines() == ['~ row 1: {"a": 1}', "    b  expected null, got no such field"]


def test_fields_may_be_ignored_also_inside_of_records() -> None:
    expected = [{"a": 1, "At": "x", "r": {"x": 1, "id": 5}}]
    actual = [{"a": 1, "at": "y", "r": {"x": 1, "id": 6}}]
    assert not compare_rows(expected, actual).is_empty
    assert compare_rows(expected, actual, ignored=["AT", "r.ID"]).is_empty


def test_names_match_without_case_where_the_level_is_old() -> None:
    assert compare_rows([{"Name": 1}], [{"name": 1}], without_case=True).is_empty
    assert not compare_rows([{"Name": 1}], [{"name": 1}]).is_empty


@pytest.mark.parametrize("value", [10**400, -(10**400), "no row", None, [1, 2]])
def test_whatever_a_file_holds_is_compared(value: Any) -> None:
    assert compare_rows([value], [{"a": 1}]).summary() == "1 missing, 1 unexpected"
    assert compare_rows([{"a": value}], [{"a": value}]).is_empty


def test_many_differences_are_not_all_told() -> None:
    difference = compare_rows([{"a": n} for n in range(1000)], [{"b": n} for n in range(2000)])
    assert difference.lines()[-1] == "… and 2960 more"
