from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.values.grouping import group, sort_keys
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
