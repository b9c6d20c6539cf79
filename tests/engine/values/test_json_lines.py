"""Finished rows as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.decoding.rows import ResultRows
from tidegate.engine.values.vectors import Datetime, Vector
from tidegate.ordering import parse_time

NOON = Datetime(parse_time("2026-01-01T12:00:00Z"))
TEXT = "2026-01-01T12:00:00.0000000Z"


def result(names: tuple[str | None, ...], *columns: list[Any]) -> ResultRows:
    count = len(columns[0])
    return ResultRows("out", np.zeros(count, dtype=np.int64), names, tuple(map(Vector.of, columns)))


def test_a_line_for_each_row() -> None:
    rows = result(("b", "a"), [8.0, 1e22, None], [NOON, True, {"t": NOON, "l": [1, 0.5, "é\n"]}])
    assert (
        rows.to_json_lines()
        == (
            f'{{"b":8.0,"a":"{TEXT}"}}\n{{"b":1e22,"a":true}}\n{{"b":null,"a":{{"t":"{TEXT}","l":[1,0.5,"é\\n"]}}}}\n'
        ).encode()
    )
    assert result(("t",), [NOON, NOON]).to_json_lines() == f'{{"t":"{TEXT}"}}\n'.encode() * 2


def test_spread_records_give_way_to_names_on_their_left() -> None:
    rows = result(("ID", None, "c"), [1, 2], [{"id": 9, "x": 1, "X": 2}, None], [3, 4])
    assert rows.to_dicts() == [{"ID": 1, "x": 1, "X": 2, "c": 3}, {"ID": 2, "c": 4}]
    assert result((None,), [{"z": 1, "a": NOON}]).to_json_lines() == f'{{"z":1,"a":"{TEXT}"}}\n'.encode()


NAMES = st.lists(st.text(min_size=1, max_size=3), min_size=2, max_size=2, unique_by=str.lower)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(NAMES, st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5))
def test_lines_and_records_say_the_same(names: list[str], rows: list[tuple[Any, Any]]) -> None:
    made = result(tuple(names), [row[0] for row in rows], [row[1] for row in rows])
    assert [json.loads(line) for line in made.to_json_lines().split(b"\n")[:-1]] == made.to_dicts()
    assert made.to_dicts() == [dict(zip(names, row, strict=True)) for row in rows]
