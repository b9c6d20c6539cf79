"""Scripts have nothing but the language, stay within their limits, and what fails in one row stays in that row."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import example_count
from tidegate.job.functions import isolate
from tidegate.job.functions.isolate import ScriptError
from tidegate.job.functions.javascript import JavaScriptFunction


def function(body: str, names: str = "x") -> JavaScriptFunction:
    return JavaScriptFunction(f"function main({names}) {{ {body} }}")


@pytest.mark.parametrize(
    "name",
    ["require", "process", "std", "os", "fetch", "XMLHttpRequest", "setTimeout", "Deno", "console", "Worker", "print"],
)
def test_a_script_has_no_way_out(name: str) -> None:
    assert function(f"return typeof {name}")(1) == "undefined"


def test_a_module_cannot_be_imported() -> None:
    with pytest.raises(ScriptError, match="Promise"):
        function("return import('os')")(1)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("function main(x) {\n  return x +;\n}", "line 2: SyntaxError"),
        ("function one(x) { return x; } function two(x) { return x; }", "it defines no function main, but one, two"),
        ("var main = 5;", "it defines no function main$"),
        ("\nnowhere.to.go;", "line 2: ReferenceError: nowhere is not defined"),
        ("while (true) {}", "it took longer"),
    ],
)
def test_a_script_that_cannot_be_used_is_refused_with_the_line(
    source: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolate, "TIME_LIMIT_S", 0.1)
    with pytest.raises(ScriptError, match=message):
        JavaScriptFunction(source).check()


def test_the_only_function_of_a_script_may_have_any_name() -> None:
    """As in the service's own pages: hex2Int, parseJson and createArray are not called main."""
    hex2int = JavaScriptFunction(
        "// Convert Hex value to integer.\nfunction hex2Int(text) { return parseInt(text, 16); }"
    )
    assert hex2int("ff") == 255
    assert JavaScriptFunction("function twice(x) { return 2 * x; } function main(x) { return twice(x) + 1; }")(2) == 5
    assert JavaScriptFunction("var unit = 10; var scaled = function (x) { return x * unit; };")(2) == 20


def test_main_may_be_a_constant() -> None:
    assert JavaScriptFunction("const main = (x) => x + 1;")(1) == 2


@pytest.mark.slow
def test_a_row_that_exceeds_a_limit_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "TIME_LIMIT_S", 0.2)
    monkeypatch.setattr(isolate, "MEMORY_LIMIT_BYTES", 16 * 2**20)
    body = """
        if (x === 3) while (true) {}
        if (x === 5) return "x".repeat(2 ** 25);
        if (x === 7) return main(x);
        return x;
    """
    rows = function(body).call_rows([list(range(20))])
    failed = {index: str(value) for index, value in enumerate(rows) if isinstance(value, Exception)}
    assert [value for index, value in enumerate(rows) if index not in failed] == [
        index for index in range(20) if index not in failed
    ]
    assert list(failed) == [3, 5, 7]
    assert failed[3] == "it took longer than 0.2 s of processor time"
    assert "memory" in failed[5]
    assert "call stack" in failed[7]


@pytest.mark.slow
def test_what_a_script_hoards_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "MEMORY_LIMIT_BYTES", 16 * 2**20)
    hoarding = JavaScriptFunction("var kept = []; function main(x) { kept.push('x'.repeat(1e6) + x); return x; }")
    assert hoarding.call_rows([list(range(60))]) == list(range(60))


@pytest.mark.slow
def test_slow_rows_are_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "TIME_LIMIT_S", 1.0)
    # Forty rows of about 50 ms: together more than one row may take.
    slow = function("const until = Date.now() + 50; while (Date.now() < until) {} return x")
    assert slow.call_rows([list(range(40))]) == list(range(40))


def test_a_script_cannot_change_how_results_are_returned() -> None:
    source = """
        JSON.stringify = JSON.parse = () => 'mine';
        Array.isArray = () => true;
        Object.keys = () => ['mine'];
        Date.now = () => 0;
        function main(x) { return { a: [x, new Date(0)] }; }
    """
    assert JavaScriptFunction(source)(1) == {"a": [1, 0]}


def test_a_large_request_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "_LONGEST_REQUEST", 1000)
    texts = ["x" * (index % 700) for index in range(500)]
    assert function("return x.length").call_rows([texts]) == list(map(len, texts))


@settings(max_examples=example_count(60), deadline=None)
@given(st.text(max_size=80))
def test_no_text_of_a_script_breaks_its_loading(text: str) -> None:
    made = JavaScriptFunction(f"function main(x) {{ {text} }}")
    try:
        made.check()
    except ScriptError:
        return
    assert len(made.call_rows([[1, "a", None]])) == 3
