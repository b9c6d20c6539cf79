"""One event cannot stop a job: what it would take is estimated, and refused, before it is spent."""

from __future__ import annotations

import gzip
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.decoding.hostile import container, long_of, record
from tests.engine.streams import Events, program, task
from tidegate.engine import Format, Problem, Wanted, decoder_of
from tidegate.engine.functions.geometries import TOO_MUCH_WORK, geometry
from tidegate.engine.functions.logic import like
from tidegate.engine.functions.regular_expressions import expression_size
from tidegate.engine.functions.text import patindex
from tidegate.engine.values import budget
from tidegate.engine.values.vectors import Failure, Reason, Vector
from tidegate.job.functions.isolate import ScriptError
from tidegate.job.functions.javascript import JavaScriptFunction
from tidegate.ordering import Carry, Policy

LIMIT = Failure(Reason.LIMIT)


def reasons(query: str, *bodies: dict[str, Any]) -> list[Reason]:
    partial, _ = task(program(query), "input", "0", Events.of(list(bodies)), Policy.none(), Carry())
    return [error.reason for error in partial.errors]


def test_nested_concats_fail_their_row() -> None:
    steps = "s0 AS (SELECT a FROM input), " + ", ".join(
        f"s{step + 1} AS (SELECT CONCAT(a, a) AS a FROM s{step})" for step in range(22)
    )
    assert reasons(f"WITH {steps} SELECT a INTO out FROM s22", {"a": "x" * 100}) == [Reason.LIMIT]


@pytest.mark.parametrize(
    "call",
    ["REPLACE(a, 'x', a)", "REPLICATE(a, 9999999)", "a + a + a", "SPACE(99999999)", "CONCAT_WS(a, a, a, a)"],
)
def test_a_text_that_grows_too_long_fails_its_row(call: str) -> None:
    text = "x" * (budget.LONGEST_TEXT_BYTES // 3 + 1)
    assert reasons(f"SELECT {call} AS b INTO out FROM input", {"a": text}, {"a": "x"})[:1] == [Reason.LIMIT]


@pytest.mark.parametrize("pattern", ["x{999999999}", "((x{100}){100}){100}", "x{1000}{1000}", "x" * 8_001])
def test_a_regular_expression_that_is_too_large_fails_its_row(pattern: str) -> None:
    query = f"SELECT REGEXMATCH(a, '{pattern}') AS b INTO out FROM input"
    assert reasons(query, {"a": "x"}) == [Reason.LIMIT]


@given(
    st.recursive(
        st.sampled_from(["a", "[bc]", r"\d"]),
        lambda inner: st.builds("(?:{}){{{}}}".format, inner, st.integers(1, 9)),
        max_leaves=3,
    )
)
def test_the_size_of_an_expression_bounds_what_it_fits(pattern: str) -> None:
    counts = [int(number) for number in re.findall(r"\{(\d+)\}", pattern)]
    length = 1
    for count in counts:
        length *= count
    assert expression_size(pattern) >= length


def test_like_patterns_have_a_limit() -> None:
    assert like("x", "%" * 8_001) == LIMIT
    assert patindex("%" + "_" * 7_000 + "%", "x" * 100_000) == LIMIT
    assert like("x" * 100_000, "%" + "x" * 7_000) is True


def test_a_ring_that_crosses_itself_too_often_is_refused_and_one_that_crosses_once_is_not() -> None:
    star = [
        [math.cos(place * 499 * math.tau / 1_000), math.sin(place * 499 * math.tau / 1_000)] for place in range(1_000)
    ]
    assert geometry({"type": "Polygon", "coordinates": [star]}) is TOO_MUCH_WORK
    bow = [[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    assert geometry({"type": "Polygon", "coordinates": [bow]}).area == pytest.approx(0.5)


def _comb(teeth: int, turned: bool = False, slanted: float = 0.0) -> list[list[float]]:
    """A ring with long teeth upwards, or to the right."""
    ring = [[0.0, -1.0]]
    for tooth in range(teeth):
        at = tooth / teeth
        ring += [[at, 0.0], [at + slanted, 2.0], [at + slanted + 0.3 / teeth, 2.0], [at + 0.3 / teeth, 0.0]]
    ring += [[1.0, -1.0], [0.0, -1.0]]
    return [[y, x] for x, y in ring] if turned else ring


@pytest.mark.slow
def test_what_geometries_meet_in_is_limited_wherever_it_is_computed() -> None:
    """Each of these took from twenty seconds to all of the memory."""
    crossing_hole = {"type": "Polygon", "coordinates": [_comb(700), _comb(700, turned=True)]}
    assert geometry(crossing_hole) is TOO_MUCH_WORK
    # Its edges do not cross, but all of their bounding boxes meet.
    assert geometry({"type": "Polygon", "coordinates": [_comb(20_000, slanted=1.0)]}) is TOO_MUCH_WORK
    across = [[170.0 + place % 2 * 19, place / 200] for place in range(1_500)]
    across += [[171.0 + place % 180 / 10, place % 2 * 7.0] for place in range(1_500)]
    assert geometry({"type": "LineString", "coordinates": across}) is TOO_MUCH_WORK
    assert geometry({"type": "MultiPoint", "coordinates": [[0.0, 0.0]] * 9_000}).geom_type == "Point"
    hole = [[0.2, -0.5], [0.4, -0.5], [0.3, -0.2], [0.2, -0.5]]
    assert geometry({"type": "Polygon", "coordinates": [_comb(2), hole]}).is_valid


@pytest.mark.slow
@pytest.mark.parametrize("function", ["ST_INTERSECTS", "ST_OVERLAPS", "ST_WITHIN"])
def test_geometries_that_may_meet_too_often_fail_their_row(function: str) -> None:
    one, other = ({"type": "Polygon", "coordinates": [_comb(3_000, turned)]} for turned in (False, True))
    far = {"type": "Polygon", "coordinates": [[[x + 50, y] for x, y in _comb(3_000)]]}
    query = f"SELECT {function}(a, b) AS x INTO out FROM input"
    assert reasons(query, {"a": one, "b": other}, {"a": one, "b": far}) == [Reason.LIMIT]


def test_cross_apply_makes_a_limited_number_of_rows_of_an_event() -> None:
    query = (
        "SELECT x.ArrayValue AS v INTO out FROM input CROSS APPLY GetArrayElements(input.a) AS x "
        "CROSS APPLY GetArrayElements(input.a) AS y"
    )
    assert reasons(query, {"a": list(range(1_000))}) == [Reason.LIMIT]
    assert reasons(query, {"a": list(range(10))}) == []
    wide = "SELECT x.ArrayValue AS v, input.t INTO out FROM input CROSS APPLY GetArrayElements(input.a) AS x"
    assert reasons(wide, {"a": list(range(10_000)), "t": "x" * 100_000}) == [Reason.LIMIT]


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("SELECT * INTO out FROM input CROSS APPLY GetArrayElements(input.a) AS x", False),
        ("SELECT input.a, x.ArrayValue AS v INTO out FROM input CROSS APPLY GetArrayElements(input.a) AS x", False),
        ("SELECT input.r, x.ArrayValue AS v INTO out FROM input CROSS APPLY GetArrayElements(input.a) AS x", False),
        ("SELECT x.ArrayValue AS v INTO out FROM input CROSS APPLY GetArrayElements(input.a) AS x", True),
        (
            "WITH s AS (SELECT * FROM input CROSS APPLY GetArrayElements(input.a) AS x) "
            "SELECT ArrayValue AS v INTO out FROM s",
            True,
        ),
    ],
)
def test_records_and_arrays_that_cross_apply_repeats_in_an_output_are_limited(query: str, fits: bool) -> None:
    large = {"a": list(range(20_000)), "r": {"t": "x" * 4_000}}
    small = {"a": [1, 2], "r": {"t": "x" * 4_000}}
    partial, _ = task(program(query), "input", "0", Events.of([small, large, small]), Policy.none(), Carry())
    assert [(error.reason, len(error.rows)) for error in partial.errors] == ([] if fits else [(Reason.LIMIT, 20_000)])


_EMPTY = b"[" + b"{}," * 200_000 + b"{}]"
_LISTS = b'{"a":[' + b"[]," * 1_500_000 + b"1]}"
_INTS = container(record({"type": "array", "items": "int"}), 1, long_of(1_500_000) + bytes(1_500_001))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "encoding", "body"),
    [
        ("json", "utf-8", _EMPTY),
        ("json", "utf-16", _EMPTY.decode().encode("utf-16")),
        ("json", "utf-8", _EMPTY[1:-1].replace(b",", b"\n")),
        ("json", "utf-8", _LISTS),
        ("csv", "utf-8", b"a\n" + b"1\n" * 200_000),
        ("csv", "utf-8", b"a\n" + b'""\n' * 200_000),
        ("avro", "utf-8", _INTS),
        ("avro", "utf-8", container(record("boolean"), 200_000, bytes(200_000))),
    ],
)
def test_an_event_with_too_many_rows_or_values_is_rejected_alone(kind: str, encoding: str, body: bytes) -> None:
    format_ = Format(kind, encoding=encoding, compression="gzip")
    decoded = decoder_of(Wanted((("a",),)), format_).decode([gzip.compress(body, 1)])
    assert (len(decoded), decoded.rejected_problems.tolist()) == (0, [int(Problem.LIMIT_EXCEEDED)])


def test_a_batch_that_is_too_large_is_divided_and_one_event_is_not() -> None:
    large = Vector.of(["x" * (1 << 21)] * 3)
    fitting = budget.BATCH_BYTES // budget.text_bytes(large)
    with budget.batch_of(2):
        for _ in range(fitting):
            assert budget.within_text_limit(large) is large
        with pytest.raises(budget.BatchTooLarge):
            budget.within_text_limit(large)
    rows = np.zeros(1_000, dtype=np.int64)
    with budget.batch_of(1):
        assert set(budget.repeated(large, rows).to_list()) == {LIMIT}


@pytest.mark.parametrize(
    "change",
    [
        "Object.prototype.toJSON = function () { return 7; };",
        "Array.prototype.toJSON = function () { throw 1; };",
        "Object.prototype.get = function () { return 1; };",
        "Array.prototype[Symbol.iterator] = undefined;",
        "Function.prototype.call = undefined;",
        "globalThis.Promise = globalThis.Object = undefined;",
    ],
)
def test_a_script_that_changes_built_ins_does_not_change_its_results(change: str) -> None:
    function = JavaScriptFunction(f"function main(x) {{ {change} return {{ a: [x, 'b'] }}; }}")
    assert function.call_rows([[1, 2]]) == [{"a": [1, "b"]}, {"a": [2, "b"]}]


def test_a_script_that_stops_the_engine_itself_fails_its_calls() -> None:
    change = "Object.defineProperty(Array.prototype, '0', { set() { throw 1; } });"
    results = JavaScriptFunction(f"function main(x) {{ {change} return x; }}").call_rows([[1, 2]])
    assert [type(result) for result in results] == [ScriptError, ScriptError]
