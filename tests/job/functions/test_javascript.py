"""Functions and aggregates in JavaScript: the service's conversions, its samples, and the same on each machine."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import example_count
from tidegate.engine.values.vectors import Datetime, Failure, Kind, Reason, Vector
from tidegate.job.functions.isolate import ScriptError
from tidegate.job.functions.javascript import JavaScriptAggregate, JavaScriptFunction
from tidegate.ordering import parse_time

NOON = Datetime(parse_time("2026-03-01T12:34:56.7890000Z"))
SAME = JavaScriptFunction("function main(x) { return x; }")
WEIGHTED = """
// The sample of the service's page: a time-weighted average.
function main() {
    this.init = function () {
        this.totalValue = 0.0;
        this.totalWeight = 0.0;
    }
    this.accumulate = function (value, timestamp) {
        this.totalValue += value.level * value.weight;
        this.totalWeight += value.weight;
    }
    this.computeResult = function () {
        if(this.totalValue == 0) {
            result = 0;
        }
        else {
            result = this.totalValue/this.totalWeight;
        }
        return result;
    }
}
"""


def js(body: str, *args: Any) -> Any:
    names = ", ".join("abcdef"[: len(args)])
    return JavaScriptFunction(f"function main({names}) {{ {body} }}")(*args)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (5, "number"),
        (2.5, "number"),
        ("text", "string"),
        (True, "boolean"),
        (None, "object null"),
        ({"A": 1}, "object [object Object]"),
        ([1, 2], "object [object Array]"),
        (NOON, "object [object Date]"),
    ],
)
def test_each_type_is_what_the_service_documents(value: Any, kind: str) -> None:
    of = "typeof a + (typeof a === 'object' ? ' ' + (a === null ? a : Object.prototype.toString.call(a)) : '')"
    assert js(f"return {of}", value) == kind


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("5", 5),
        ("5.0", 5),
        ("-0", 0),
        ("2 ** 53", 2**53),
        ("2.5", 2.5),
        ("-(2 ** 63)", -(2**63)),
        ("2 ** 63", float(2**63)),
        ("1e300", 1e300),
        ("'text'", "text"),
        ("true", True),
        ("null", None),
        ("undefined", None),
        ("{ a: 1, b: [undefined, 'x', { c: null }] }", {"a": 1, "b": [None, "x", {"c": None}]}),
        ("[1e20, 1]", [1e20, 1]),
        ("new Number(5)", 5),
        ("'\\ud83d\\ude00'", "😀"),
        ("'a\\ud800b'", "a�b"),
        ("{ __proto__: null, a: 'x\\u0000y' }", {"a": "x\0y"}),
    ],
)
def test_a_result_has_the_type_that_the_service_documents(expression: str, expected: Any) -> None:
    got = js(f"return ({expression})")
    assert got == expected
    assert type(got) is type(expected)


def test_a_date_is_a_datetime() -> None:
    made = js("return new Date(Date.UTC(2026, 0, 31, 1, 2, 3, 4))")
    assert type(made) is Datetime
    assert made == parse_time("2026-01-31T01:02:03.0040000Z")
    assert js("return { at: [a] }", NOON) == {"at": [NOON]}
    assert js("return a.at[0].getUTCMinutes()", {"at": [NOON]}) == 34
    assert js("return new Date(8.64e15)") == Failure(Reason.DATETIME_RANGE)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("0 / 0", "the result is NaN, which is no number of the query language"),
        ("[1 / 0]", "the result is Infinity"),
        ("() => 1", "the result is a function"),
        ("Symbol('s')", "the result is a symbol"),
        ("5n", "the result is a bigint"),
        ("new Error('no')", "the result is an error object: Error: no"),
        ("new Date('no')", "the result is an invalid Date"),
        ("Promise.resolve(1)", "a function cannot be async"),
        ("a.b.c", "TypeError: .* \\(line 1\\)"),
        ("nothing", "ReferenceError: nothing is not defined \\(line 1\\)"),
        ("(() => { const o = {}; o.o = o; return o })()", "contains itself"),
        ("(() => { throw 'text' })()", "it threw text"),
    ],
)
def test_what_is_no_value_fails_with_its_reason(expression: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        js(f"return ({expression})", 1)


DATES = """
    const at = new Date("2026-07-01T05:06:07");
    return [at.getTime(), at.getHours(), at.getDay(), at.getTimezoneOffset(), String(at), at.toLocaleString(),
      new Date(2026, 6, 1, 23).toISOString(), new Date("2026-07-01").toISOString(), Date.parse("July 1, 2026 10:00"),
      new Date("2026-07-01T05:06:07-04:00").getHours(), at.toTimeString(), (1234567.8916).toLocaleString()];
"""


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_local_time_is_utc_on_every_machine(zone: str) -> None:
    program = "from tests.job.functions.test_javascript import DATES, js\nimport json\nprint(json.dumps(js(DATES)))"
    run = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "TZ": zone}, capture_output=True, text=True, check=True
    )
    assert eval(run.stdout) == [
        1782882367000,
        5,
        3,
        0,
        "Wed Jul 01 2026 05:06:07 GMT+0000 (Coordinated Universal Time)",
        "7/1/2026, 5:06:07 AM",
        "2026-07-01T23:00:00.000Z",
        "2026-07-01T00:00:00.000Z",
        1782900000000,
        9,
        "05:06:07 GMT+0000 (Coordinated Universal Time)",
        "1,234,567.892",
    ]


def test_another_locale_is_refused_rather_than_ignored() -> None:
    with pytest.raises(ScriptError, match="writes en-US without options only"):
        js("return a.toLocaleDateString('de-DE', { weekday: 'long' })", NOON)


def test_it_travels_to_a_task_and_is_known_by_its_text() -> None:
    again = pickle.loads(pickle.dumps(SAME))
    assert again == SAME
    assert again(7) == 7
    assert SAME.identity() != JavaScriptFunction("function main(x) { return -x; }").identity()


def test_arguments_may_be_none_or_many() -> None:
    assert js("return arguments.length") == 0
    assert js("return [a, b, c, d].join('')", 1, None, "x", 2.5) == "1x2.5"
    assert JavaScriptFunction("function main(a, b) { return b === undefined; }")(1) is True


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(-1e9, 1e9).filter(lambda number: not number.is_integer())
    | st.text(max_size=20)
    | st.integers(-(10**12), 10**12).map(lambda ms: Datetime(ms * 10_000)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=example_count(150), deadline=None)
@given(st.lists(values, min_size=1, max_size=12))
def test_every_value_comes_back_as_it_went_in(column: list[Any]) -> None:
    back = SAME.call_rows([column])
    assert back == column
    assert list(map(type, back)) == list(map(type, column))


def test_the_documented_aggregate_runs_as_it_is() -> None:
    aggregate = JavaScriptAggregate(WEIGHTED)
    aggregate.check()
    rows = [{"level": 2, "weight": 1}, {"level": 4, "weight": 3}, {"level": 1, "weight": 1}, {"level": 7}]
    results = aggregate.compute_groups(rows, [0, 1, 2, 3], [0, 2, 3, 4])
    assert results[:2] == [3.5, 1]
    assert "NaN" in str(results[2])


def test_an_aggregate_has_the_time_of_each_row_and_fails_by_group() -> None:
    source = """
    function main() {
        this.accumulate = function (value, timestamp) {
            if (value < 0) throw new Error('negative');
            this.seen = (this.seen || '') + timestamp.getUTCSeconds() + value + ' ';
        }
        this.computeResult = function () { return this.seen; }
    }
    """
    results = JavaScriptAggregate(source).compute_groups(
        ["a", "b", -1, "c"], [10_000_000 * second for second in range(4)], [0, 2, 3, 4]
    )
    assert [results[0], results[2]] == ["0a 1b ", "3c "]
    assert "negative" in str(results[1])


@pytest.mark.slow
def test_a_group_of_many_rows_may_take_longer_than_a_piece() -> None:
    source = """
    function main() {
        this.init = function () { this.total = 0; };
        this.accumulate = function (value) { for (let i = 0; i < 30; i++) this.total += value; };
        this.computeResult = function () { return this.total; };
    }
    """
    count = 200_000
    (total,) = JavaScriptAggregate(source).compute_groups([1] * count, [0] * count, [0, count])
    assert total == 30 * count


def test_failures_of_arguments_stay_with_their_rows() -> None:
    from tidegate.engine.expressions.registered import FunctionCalls, available, call_with_rows, first_raised

    counted = FunctionCalls()
    adding = JavaScriptFunction("function main(a, b) { if (a === 4) throw new Error('four'); return a + b; }")
    args = [
        Vector.of([1, Failure(Reason.OVERFLOW), 3, 4]),
        Vector.of([10, Failure(Reason.CONVERSION), Failure(Reason.CONVERSION), 1]),
    ]
    with available({}, counted):
        made = call_with_rows("udf.add", adding, args, 4)
        assert first_raised() == "udf.add: ScriptError: Error: four (line 1)"
    assert made.to_list() == [11, Reason.OVERFLOW, Reason.CONVERSION, Reason.FUNCTION_FAILED]
    assert made.present() == {Kind.BIGINT, Kind.ERROR}
    assert (counted.requests, counted.failed) == (2, 1)
