"""Bodies to columns, held against the json module."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.decoding.decoded import Problem, Wanted, path_value
from tidegate.engine.decoding.json_bodies import Decoder
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import parse_time
from tidegate.sql.plan.nodes import Type


def decoded(wanted: Wanted, *bodies: bytes) -> tuple[dict[tuple[str, ...], list[Any]], list[tuple[int, Problem]]]:
    result = Decoder(wanted).decode(bodies)
    rejected = zip(result.rejected_events.tolist(), map(Problem, result.rejected_problems.tolist()), strict=True)
    return {path: vector.to_list() for path, vector in result.fields.items()}, list(rejected)


def test_types_belong_to_values() -> None:
    wanted = Wanted((("a",),))
    bodies = [
        b'{"a":1}',
        b'{"a":1.0}',
        b'{"a":"1"}',
        b'{"a":true}',
        b'{"a":null}',
        b"{}",
        b'{"a":{"b":1}}',
        b'{"a":[1]}',
    ]
    values = decoded(wanted, *bodies)[0][("a",)]
    assert [repr(value) for value in values] == ["1", "1.0", "'1'", "True", "None", "None", "{'b': 1}", "[1]"]


def test_truth_values_are_bigints_below_level_1_2() -> None:
    values, _ = decoded(Wanted((("a",),), bits=False), b'{"a":true}', b'{"a":[false,{"b":true}]}')
    assert repr(values[("a",)]) == "[1, [0, {'b': 1}]]"


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        (b'{"a":1}', [1]),
        (b'[{"a":1},{"a":2}]', [1, 2]),
        (b' [\n{"a":1} ,\n{"a":2}\n] ', [1, 2]),
        (b"[]", []),
        (b'[{"a":1},{"a":2},]', [1, 2]),
        (b'[\n{"a":1},\n{"a":2},\n]\n', [1, 2]),
        (b'{"a":1}\n{"a":2}\r\n\n{"a":3}', [1, 2, 3]),
        (b'[{"a":1}]\n[{"a":2},{"a":3}]', [1, 2, 3]),
        (b'\xef\xbb\xbf{"a":1}', [1]),
        (b'\xef\xbb\xbf{\n "a": 1\n}\n', [1]),
        (b'{\n "a":\n 1\n}', [1]),
    ],
)
def test_a_body_holds_rows(body: bytes, rows: list[int]) -> None:
    result = Decoder(Wanted((("a",),))).decode([b'{"a":0}', body, b'{"a":9}'])
    assert result.fields[("a",)].to_list() == [0, *rows, 9]
    assert result.events.tolist() == [0, *[1] * len(rows), 2]
    assert result.indices.tolist() == [0, *range(len(rows)), 0]
    assert not len(result.rejected_events)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        *(
            (body, Problem.MALFORMED)
            for body in (
                b"",
                b" ",
                b"1",
                b'"a"',
                b"null",
                b"[1]",
                b'[{"a":1},2]',
                b'[{"a":1},,]',
                b"[,]",
                b"{",
                b'{"a":}',
            )
        ),
        *(
            (body, Problem.MALFORMED)
            for body in (b'{"a":1}{"a":2}', b'{"a":1}x', b'{"a":1}\nx', b"\xff", b'{"a":"\xff"}')
        ),
        *(
            (body, Problem.MALFORMED)
            for body in (
                b'{"a":NaN}',
                b'{"a":"\\ud800"}',
                b'{"a":01}',
            )
        ),
        (b"[" * 100_000, Problem.LIMIT_EXCEEDED),
        *((body, Problem.OUT_OF_RANGE) for body in (b'{"a":1e400}', b'{"a":9223372036854775808}', b'{"a":[1e999]}')),
        (b'{"a":{"b":-9223372036854775809}}', Problem.OUT_OF_RANGE),
        (b'[{"a":1},{"a":9223372036854775808}]', Problem.OUT_OF_RANGE),
    ],
)
@pytest.mark.parametrize("record", [False, True])
def test_a_bad_body_is_rejected_alone(body: bytes, problem: Problem, record: bool) -> None:
    values, rejected = decoded(Wanted((("a",),), record), b'{"a":1}', body, b'{"a":2}')
    assert values[("a",)] == [1, 2]
    assert rejected == [(1, problem)]


def test_values_that_nobody_wants_cost_nothing_and_reject_nothing() -> None:
    values, rejected = decoded(Wanted((("a",),)), b'{"b":1e999,"a":1,"c":123456789012345678901234567890}')
    assert (values[("a",)], rejected) == ([1], [])


def test_names_match_without_case_and_the_exact_one_wins() -> None:
    bodies = [b'{"Id":1}', b'{"ID":2}', b'{"id":3,"ID":4}', b'{"ID":5,"iD":6}', b'{"i\\u0064":7}', b'{"x":"id"}']
    expected = [1, 2, 3, 5, 7, None]
    decoder = Decoder(Wanted((("id",),)))
    for _ in range(3):  # what has been learnt changes nothing
        assert decoder.decode(bodies).fields[("id",)].to_list() == expected
        assert [decoder.decode([body]).fields[("id",)].to_list()[0] for body in bodies] == expected


def test_letters_beyond_ascii_have_case_too() -> None:
    decoder = Decoder(Wanted((("größe",), ("kind",))))
    for _ in range(2):
        result = decoder.decode(['{"GRÖßE":1,"\u212aind":2}'.encode(), '{"Größe":3,"KIND":4}'.encode()])
        assert result.fields[("größe",)].to_list() == [1, 3]
        assert result.fields[("kind",)].to_list() == [2, 4]


def test_a_spelling_that_does_not_count_rejects_nothing() -> None:
    decoder = Decoder(Wanted((("a",),)))
    body = b'{"a":1,"A":1e999}'
    for _ in range(2):
        assert decoder.decode([b'{"A":5}', body]).fields[("a",)].to_list() == [5, 1]


def test_a_value_out_of_range_rejects_its_body_however_its_name_is_spelled() -> None:
    decoder = Decoder(Wanted((("a",),)))
    for _ in range(2):
        result = decoder.decode([b'{"A":5}', b'[{"a":1},{"A":1e999}]', b'{"A":9223372036854775808}', b'{"A":"\xff"}'])
        assert result.fields[("a",)].to_list() == [5]
        assert result.rejected_events.tolist() == [1, 2, 3]


def test_fields_inside_fields() -> None:
    wanted = Wanted((("a", "b"), ("A", "c", "d"), ("e",), ("e", "f")))
    bodies = [
        b'{"a":{"b":1,"c":{"d":2}},"e":{"F":3}}',
        b'{"A":{"B":4,"C":5},"e":6}',
        b'{"a":[1]}',
        b'{"a":{"c":{"D":7}}}',
    ]
    values, rejected = decoded(wanted, *bodies)
    assert not rejected
    assert values == {
        ("a", "b"): [1, 4, None, None],
        ("a", "c", "d"): [2, None, None, 7],
        ("e",): [{"F": 3}, 6, None, None],
        ("e", "f"): [3, None, None, None],
    }


def test_declared_columns() -> None:
    declared = (("t", Type.DATETIME), ("id", Type.NVARCHAR), ("v", Type.FLOAT), ("n", Type.BIGINT))
    good = {"t": "2022-05-04T20:30:00Z", "ID": "D1", "v": 2, "n": 3.0}
    bad: list[dict[str, Any]] = [
        {**good, "v": "7.0L"},
        {name: value for name, value in good.items() if name != "v"},
        {**good, "t": "soon"},
        {**good, "n": 3.5},
        {**good, "ID": 1},
    ]
    null = {**good, "v": None}
    wanted = Wanted((("V",),), declared=declared)
    values, rejected = decoded(wanted, *(json.dumps(row).encode() for row in (good, *bad, null)))
    assert values[("t",)] == [Datetime(parse_time("2022-05-04T20:30:00Z"))] * 2
    assert [repr(value) for value in values[("v",)]] == ["2.0", "None"]
    assert repr(values[("n",)]) == "[3, 3]"
    assert rejected == [(event, Problem.NON_CONFORMING) for event in range(1, 6)]


def test_whole_records_keep_their_order() -> None:
    result = Decoder(Wanted((), record=True)).decode([b'{"z":1,"a":{"y":[true,null]},"m":"x"}'])
    assert result.records is not None
    assert json.dumps(result.records.to_list()[0]) == '{"z": 1, "a": {"y": [true, null]}, "m": "x"}'


NAMES = st.sampled_from(["a", "A", "b", "B", "c", "Id", "iD", "x y", 'q"', "é"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
RECORDS = st.dictionaries(NAMES, VALUES, max_size=5)
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4)


def in_range(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(in_range, value.values()))
    if isinstance(value, list):
        return all(map(in_range, value))
    return not isinstance(value, int) or -(2**63) <= value < 2**63


@given(st.lists(RECORDS, max_size=6), PATHS, st.booleans(), st.booleans())
def test_columns_are_what_the_json_module_reads(
    rows: list[dict[str, Any]], paths: list[tuple[str, ...]], record: bool, escaped: bool
) -> None:
    decoder = Decoder(Wanted(tuple(paths), record))
    spellings: dict[tuple[str, ...], str] = {}
    for path in paths:
        for depth, name in enumerate(path):
            spellings.setdefault(tuple(map(str.lower, path[: depth + 1])), name)
    lowered = dict.fromkeys(tuple(map(str.lower, path)) for path in paths)
    first = {low: tuple(spellings[low[: depth + 1]] for depth in range(len(low))) for low in lowered}
    bodies = [json.dumps(row, ensure_ascii=escaped).encode() for row in rows]
    wanted = [[path_value(row, path) for path in first.values()] for row in rows]
    fits = [in_range(row if record else values) for row, values in zip(rows, wanted, strict=True)]
    for _ in range(2):
        result = decoder.decode(bodies)
        columns = [result.fields[path].to_list() for path in first]
        expected = [values for values, fit in zip(wanted, fits, strict=True) if fit]
        got = [list(values) for values in zip(*columns, strict=True)]
        assert repr(normal(got)) == repr(normal(expected))
        assert result.rejected_events.tolist() == [place for place, fit in enumerate(fits) if not fit]


def normal(value: Any) -> Any:
    """Zero has no sign in a column."""
    if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0:
        return 0.0
    return [normal(inner) for inner in value] if isinstance(value, list) else value


@given(st.lists(st.binary(max_size=30) | st.text(alphabet='{}[]",:a1 \n', max_size=20).map(str.encode), max_size=8))
def test_nothing_that_arrives_raises_or_touches_its_neighbours(bodies: list[bytes]) -> None:
    for record in (False, True):
        wanted = Wanted((("a",), ("b", "c")), record)
        together = Decoder(wanted).decode(bodies)
        alone = [Decoder(wanted).decode([body]) for body in bodies]
        for path, vector in together.fields.items():
            assert vector.to_list() == [value for one in alone for value in one.fields[path].to_list()]
        assert together.rejected_events.tolist() == [
            place for place, one in enumerate(alone) if len(one.rejected_events)
        ]
