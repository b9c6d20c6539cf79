"""Template expressions and what they cost at most."""

from __future__ import annotations

import json
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.azure.templates.evaluation import EvaluationScope, Evaluator
from tidegate.azure.templates.expressions import TemplateError
from tidegate.azure.templates.functions import FUNCTIONS
from tidegate.azure.templates.template import Template, TemplateResource

CONSTANTS = {
    "resourcegroup": {"name": "g", "location": "here", "id": "/subscriptions/s/resourceGroups/g"},
    "subscription": {"subscriptionId": "s"},
}
PARAMETERS = {"text": "Abc", "list": [1, 2, 3], "object": {"Key": {"inner": [10, 20]}}}
VARIABLES = {"twice": "[concat(parameters('text'), parameters('text'))]"}


def evaluated(part: Any) -> Any:
    return Evaluator(EvaluationScope(PARAMETERS, VARIABLES, CONSTANTS)).value(part)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("concat('a', 'it''s', 1)", "ait's1"),
        ("concat(parameters('list'), createArray(4))", [1, 2, 3, 4]),
        ("format('{0}-{1:d3}-{{x}}', 'a', 7)", "a-007-{x}"),
        ("variables('TWICE')", "AbcAbc"),
        ("parameters('object').key.inner[1]", 20),
        ("parameters('object')['Key']['inner'][sub(2, 1)]", 20),
        ("if(equals(parameters('text'), 'Abc'), 'yes', parameters('no-such'))", "yes"),
        ("and(true(), not(false()), or(false(), greater(2, 1)))", True),
        ("resourceGroup().location", "here"),
        ("resourceId('A.B/c/d', 'x', 'y')", "/subscriptions/s/resourceGroups/g/providers/A.B/c/x/d/y"),
        ("resourceId('other', 'A.B/c', 'x')", "/subscriptions/s/resourceGroups/other/providers/A.B/c/x"),
        ("subscriptionResourceId('A.B/c', 'x')", "/subscriptions/s/providers/A.B/c/x"),
        ("extensionResourceId('/p', 'A.B/c', 'x')", "/p/providers/A.B/c/x"),
        ("padLeft(5, 3, '0')", "005"),
        ("split('a,b;c', createArray(',', ';'))", ["a", "b", "c"]),
        ("substring('abcdef', 2, 3)", "cde"),
        ("length(union(parameters('list'), createArray(3, 4)))", 4),
        ("union(createObject('a', 1), createObject('b', 2))", {"a": 1, "b": 2}),
        ("intersection(parameters('list'), createArray(3, 4))", [3]),
        ("first(skip(take(parameters('list'), 2), 1))", 2),
        ("contains(parameters('object'), 'KEY')", True),
        ("empty('')", True),
        ("coalesce(null(), 'x')", "x"),
        ("div(-7, 2)", -3),
        ("mod(-7, 2)", -1),
        ("max(range(3, 4))", 6),
        ("int('42')", 42),
        ("bool('True')", True),
        ("string(createObject('a', true()))", '{"a":true}'),
        ("json('{\"a\": [1]}').a[0]", 1),
        ("base64ToString(base64('é'))", "é"),
        ("uriComponent('a b/c')", "a%20b%2Fc"),
        ("replace(toUpper('abc'), 'B', '')", "AC"),
        ("join(createArray('a', 'b'), '-')", "a-b"),
        ("items(createObject('b', 1, 'a', 2))[0].key", "a"),
        ("dateTimeAdd('2026-01-31T00:00:00Z', 'P1DT1H')", "2026-02-01T01:00:00Z"),
        ("length(uniqueString('a'))", 13),
        ("equals(guid('a'), guid('a'))", True),
        ("trim(' a ')", "a"),
        ("indexOf('abc', 'C')", 2),
        ("startsWith('abc', 'AB')", True),
    ],
)
def test_an_expression(expression: str, value: Any) -> None:
    assert evaluated(f"[{expression}]") == value


def test_plain_texts_and_loops_over_properties() -> None:
    assert evaluated(["[[x]", "a [b]", "[", 1, None, True]) == ["[x]", "a [b]", "[", 1, None, True]
    loop = {"name": "disks", "count": 2, "input": {"n": "[copyIndex('disks', 1)]"}}
    assert evaluated({"copy": [loop], "[concat('k', 'ey')]": 1}) == {"disks": [{"n": 1}, {"n": 2}], "key": 1}


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "concat(",
        "concat('a'",
        "'a' 'b'",
        "a.b",
        "parameters('x', 'y')",
        "parameters('text').x",
        "parameters('list')[9]",
        "parameters('list')[-1]",
        "reference('x')",
        "copyIndex()",
        "substring('a', 2)",
        "div(1, 0)",
        "int('x')",
        "json('{')",
        "range(0, 100000)",
        "range(0, -1)",
        "add('a', 1)",
        "bool('maybe')",
        "base64ToString('!')",
        "dateTimeAdd('x', 'y')",
        "resourceId('x')",
        "resourceId('A.B/c')",
        "createObject('a')",
        "(" * 200,
        "concat(" * 150 + ")" * 150,
        "'" + "x" * 30_000 + "'",
    ],
)
def test_an_expression_that_is_wrong(expression: str) -> None:
    with pytest.raises(TemplateError):
        evaluated(f"[{expression}]")


def chain(function: str) -> dict[str, str]:
    """Variables, each of which has the one before it twice."""
    return {f"v{n}": f"[{function}(variables('v{n - 1}'), variables('v{n - 1}'))]" for n in range(1, 60)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        {"v0": "x" * 1000, **chain("concat")},
        {"v0": 9, **chain("mul")},
        {"v0": [1], **chain("createArray")},
        {"v0": "[variables('v59')]", **{f"v{n}": f"[variables('v{n - 1}')]" for n in range(1, 60)}},
        {"v59": "[replace(padLeft('', 99999), ' ', padLeft('', 99999))]"},
        {"v59": {"copy": [{"name": "a", "count": 800, "input": {"copy": [{"name": "b", "count": 800, "input": 1}]}}]}},
    ],
)
def test_a_template_cannot_mean_gigabytes(variables: dict[str, Any]) -> None:
    start_s = time.thread_time()
    with pytest.raises(TemplateError):
        Evaluator(EvaluationScope({}, variables, CONSTANTS)).value("[variables('v59')]")
    assert time.thread_time() - start_s < 5


PIECES = st.sampled_from(
    ["concat", "parameters", "if", "(", ")", "[", "]", ",", ".", "'", "'a'", "1", "-", " ", "text"]
)


@settings(deadline=None)
@given(st.lists(PIECES, max_size=20).map("".join) | st.text(max_size=40))
def test_any_expression_has_a_value_or_is_refused(text: str) -> None:
    with suppress(TemplateError):
        evaluated(f"[{text}]")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(FUNCTIONS)), st.lists(VALUES, max_size=4))
def test_any_function_takes_its_arguments_or_refuses_them(name: str, arguments: list[Any]) -> None:
    parameters = {f"p{number}": value for number, value in enumerate(arguments)}
    call = f"[{name}({', '.join(f'parameters({chr(39)}p{number}{chr(39)})' for number in range(len(arguments)))})]"
    evaluator = Evaluator(EvaluationScope(parameters, {}, CONSTANTS))
    with suppress(TemplateError):
        json.dumps(evaluator.value(call))


TEMPLATE = st.fixed_dictionaries(
    {},
    optional={
        "parameters": VALUES | st.dictionaries(st.text(max_size=3), VALUES, max_size=2),
        "variables": VALUES,
        "resources": VALUES
        | st.lists(
            st.fixed_dictionaries(
                {"type": st.just("A/b") | VALUES, "name": st.text(max_size=3) | VALUES, "apiVersion": st.just("x")},
                optional={"copy": VALUES, "condition": VALUES, "dependsOn": VALUES, "resources": VALUES},
            ),
            max_size=3,
        ),
        "outputs": VALUES,
        "functions": VALUES,
    },
)


@settings(deadline=None)
@given(TEMPLATE, VALUES)
def test_any_template_is_read_or_refused(content: Any, parameters: Any) -> None:
    with suppress(TemplateError):
        template = Template(content, parameters, CONSTANTS)
        template.resources()
        template.outputs(template.scope)
    with suppress(TemplateError):
        for resource in Template(content, parameters, CONSTANTS, is_deployed=False).resources_as_written():
            Evaluator(resource.scope, leaves_out_unknown=True).value(resource.content)


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(
            {"copy": [{"name": "a", "count": 800, "input": "[concat(variables('long'), string(copyIndex('a')))]"}]},
            id="copies of a long text",
        ),
        pytest.param(
            {"copy": [{"name": "a", "count": 800, "input": {"copy": [{"name": "b", "count": 800, "input": "x"}]}}]},
            id="copies of copies",
            marks=pytest.mark.soak,
        ),
        pytest.param({"a": f"[concat({', '.join(['variables(chr)'] * 1000)})]".replace("chr", "'long'")}, id="concat"),
        pytest.param({"a": f"[string(createArray({', '.join(['variables(chr)'] * 1000)}))]".replace("chr", "'long'")}),
        pytest.param({"a": "[replace(variables('long'), 'x', variables('long'))]"}, id="replace"),
        pytest.param({"a": "[format(variables('items'), variables('long'))]"}, id="format"),
        pytest.param({"a": "[padLeft('a', 2147483647)]"}, id="padLeft"),
        pytest.param({"a": "[variables('v40')]"}, id="variables that double", marks=pytest.mark.slow),
        pytest.param({"a": "[join(range(0, 10000), variables('long'))]"}, id="join"),
    ],
)
def test_expansion_stops_at_its_limit_and_not_after_it(template: Any) -> None:
    """What a template means is counted while it is made: gigabytes are refused without ever being there."""
    variables: dict[str, Any] = {"long": "[padLeft('x', 1000000, 'x')]", "items": "{0}" * 5000, "v0": ["x"]}
    doubled = {
        f"v{number + 1}": f"[createArray(variables('v{number}'), variables('v{number}'))]" for number in range(40)
    }
    evaluator = Evaluator(EvaluationScope({}, {**variables, **doubled}, CONSTANTS))
    tracemalloc.start()
    try:
        with pytest.raises(TemplateError, match=r"too much|too large|limit"):
            evaluator.value(template)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_resources_are_counted_while_copies_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = Template._resource

    def counted(*arguments: Any) -> TemplateResource:
        made.append(1)
        return original(*arguments)

    monkeypatch.setattr(Template, "_resource", counted)
    one = {"type": "A/b", "name": "[string(copyIndex())]", "apiVersion": "1", "copy": {"name": "c", "count": 800}}
    with pytest.raises(TemplateError, match="at most 800 resources"):
        Template({"resources": [one] * 500}, None, CONSTANTS).resources()
    assert len(made) == 801
