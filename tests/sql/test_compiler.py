"""Whole queries: the case corpus, the fixtures, and what the caller of compile_query may say."""

import json
import pickle
from pathlib import Path

import pytest

from tests.sql.compiling import compile_query
from tests.sql.examples import Example, examples
from tidegate.engine.windows.kinds.panes import Tumbling
from tidegate.sql import QueryError
from tidegate.sql.plan.explain import explain
from tidegate.sql.plan.nodes import Aggregate, Column, Input, Project, StepReference, Type, Union
from tidegate.sql.plan.units import HOUR, MINUTE, SECOND

CASES = sorted((Path(__file__).parent.parent / "cases").glob("*.json"))


def messages(sql: str, **options: object) -> list[str]:
    with pytest.raises(QueryError) as refused:
        compile_query(sql, **options)
    return [diagnostic.message for diagnostic in refused.value.diagnostics]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_case_compiles(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    reference = list(case.get("reference_data") or {})
    query = compile_query(case["query"], reference_inputs=reference)
    read = {each.name.lower() for each in query.inputs}
    assert read <= {event["input"].lower() for event in case["inputs"]} | {name.lower() for name in reference}
    assert {each.name.lower() for each in query.inputs if each.reference} <= {name.lower() for name in reference}
    assert {row["output"].lower() for row in case["expected"]} <= {output.name.lower() for output in query.outputs}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_names_of_result_columns_are_those_of_the_case(path: Path) -> None:
    """As far as the plan fixes them: no star."""
    case = json.loads(path.read_text(encoding="utf-8"))
    query = compile_query(case["query"], reference_inputs=list(case.get("reference_data") or {}))
    for output in query.outputs:
        relation = output.relation.sources[0] if isinstance(output.relation, Union) else output.relation
        if isinstance(relation, Project) and all(hasattr(item, "name") for item in relation.items):
            names = {item.name for item in relation.items}
            rows = [row["row"] for row in case["expected"] if row["output"].lower() == output.name.lower()]
            assert all(set(row) <= names for row in rows)


@pytest.mark.parametrize("example", examples("plans"), ids=lambda example: example.title)
def test_a_query_means_its_plan(example: Example) -> None:
    query = compile_query(example.sql, reference_inputs=example.reference_inputs)
    assert explain(query) == example.expected


@pytest.mark.parametrize("example", examples("refusals"), ids=lambda example: example.title)
def test_a_mistake_is_shown_where_it_is(example: Example) -> None:
    with pytest.raises(QueryError) as refused:
        compile_query(example.sql)
    assert refused.value.render(example.sql) == example.expected


def test_a_plan_is_plain_data() -> None:
    sql = "SELECT k, SUM(v) AS s INTO o FROM i TIMESTAMP BY t OVER k GROUP BY k, TumblingWindow(second, 5)"
    query = compile_query(sql)
    assert pickle.loads(pickle.dumps(query)) == query == compile_query(sql.replace("SUM(v)", "SUM( v )"))
    (output,) = query.outputs
    assert isinstance(output.relation, Project)
    group = output.relation.source
    assert isinstance(group, Aggregate)
    assert group.window == Tumbling(5 * SECOND)
    assert group.keys == (Column("i", ("k",)),)
    assert query.inputs == (Input("i", "i", Column(None, ("t",)), (Column(None, ("k",)),)),)


def test_mentions_of_a_step_share_its_relation() -> None:
    query = compile_query("WITH s AS (SELECT x FROM i) SELECT x INTO a FROM s SELECT x INTO b FROM s AS other")
    steps = [output.relation.source for output in query.outputs]
    assert all(isinstance(step, StepReference) for step in steps)
    assert steps[0].relation is steps[1].relation
    assert [step.alias for step in steps] == ["s", "other"]
    assert len(query.inputs) == 1


def test_an_input_read_with_two_times_is_two_inputs() -> None:
    query = compile_query(
        "SELECT x INTO a FROM i TIMESTAMP BY t SELECT x INTO b FROM i TIMESTAMP BY u SELECT x INTO c FROM i"
    )
    assert [each.timestamp_by for each in query.inputs] == [Column(None, ("t",)), Column(None, ("u",)), None]


def test_positions_count_lines_and_columns_from_one() -> None:
    query = compile_query("SELECT a,\n  b\r\nFROM\ti")
    project = query.outputs[0].relation
    assert isinstance(project, Project)
    assert [(item.position.line, item.position.column) for item in project.items] == [(1, 8), (2, 3)]
    assert (query.inputs[0].position.line, query.inputs[0].position.column) == (3, 6)


def test_names_are_those_of_the_job() -> None:
    query = compile_query("SELECT x INTO OUT FROM TOLLS AS t", inputs=["tolls"], outputs=["out"])
    assert query.inputs[0].name == "tolls"
    assert query.outputs[0].name == "out"
    assert messages("SELECT x INTO results FROM tols", inputs=["tolls"], outputs=["result"]) == [
        "there is no output results",
        "there is no input or step tols",
    ]
    assert messages("WITH tolls AS (SELECT x FROM tolls) SELECT x FROM tolls", inputs=["tolls"]) == [
        "the step tolls has the name of an input",
        "the step tolls reads itself",
    ]
    assert messages("CREATE TABLE t (a bigint) SELECT x FROM tolls", inputs=["tolls"]) == [
        "CREATE TABLE declares an input, and there is no input t"
    ]


def test_a_single_select_without_into_writes_the_only_output() -> None:
    assert compile_query("SELECT x FROM i", outputs=["results"]).outputs[0].name == "results"
    assert compile_query("SELECT x FROM i", outputs=["a", "Output"]).outputs[0].name == "Output"
    assert compile_query("SELECT x FROM i").outputs[0].name == "output"
    assert messages("SELECT x FROM i", outputs=["a", "b"]) == ["this SELECT has no INTO"]


def test_registered_functions_are_known_by_name() -> None:
    known = ["udf.Hex2Int", "uda.Median"]
    sql = "SELECT uda.median(x) AS m FROM i GROUP BY TumblingWindow(second, 1) HAVING uda.Median(udf.hex2int(x)) > 0"
    assert compile_query(sql, functions=known)
    assert messages("SELECT udf.Hex2In(x) AS a FROM i", functions=known) == ["there is no function udf.hex2in"]


def test_reference_data_is_joined_without_a_bound_in_time() -> None:
    sql = "SELECT i.x FROM i TIMESTAMP BY t JOIN r ON i.k = r.k"
    assert compile_query(sql, reference_inputs=["R"])
    # Reference data have no timeline, so a JOIN with them needs no key of OVER.
    assert compile_query("SELECT i.x FROM i TIMESTAMP BY t OVER k JOIN r ON i.other = r.k", reference_inputs=["R"])
    assert messages(sql, inputs=["i", "r"], reference_inputs=["other"]) == [
        "the JOIN with r has no bound in time: ON needs a DATEDIFF of the two sources"
    ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT r.x FROM r JOIN i ON r.k = i.k", "the reference data r is on the left of a JOIN"),
        (
            "SELECT i.x FROM i JOIN r ON DATEDIFF(minute, i, r) = 0",
            "a bound in time with the reference data r: it has no time",
        ),
        (
            "SELECT i.x FROM i JOIN r TIMESTAMP BY t ON i.k = r.k",
            "TIMESTAMP BY on the reference data r: it has no time",
        ),
        (
            "SELECT r.x, COUNT(*) AS n FROM i TIMESTAMP BY t OVER k JOIN r ON i.k = r.k "
            "GROUP BY r.x, TumblingWindow(second, 5)",
            "TIMESTAMP BY … OVER k: GROUP BY must have it as a key",
        ),
        ("SELECT x FROM r", "reference data alone gives no stream"),
        (
            "SELECT LAG(r.x) OVER (LIMIT DURATION(hour, 1)) AS p FROM i JOIN r ON i.k = r.k",
            "reference data has no earlier rows",
        ),
    ],
)
def test_what_reference_data_cannot_do(sql: str, message: str) -> None:
    assert message in messages(sql, reference_inputs=["r"])


def test_levels_of_compatibility() -> None:
    metadata = "SELECT GetMetadataPropertyValue(i, 'EventId') AS EventKey, Name FROM i"
    names = {
        level: [item.name for item in compile_query(metadata, compatibility_level=level).outputs[0].relation.items]
        for level in ("1.0", "1.1", "1.2")
    }
    assert names == {"1.0": ["eventkey", "name"], "1.1": ["eventkey", "Name"], "1.2": ["EventKey", "Name"]}
    bit = "SELECT CAST(x AS bit) AS b FROM i"
    assert compile_query(bit)
    assert messages(bit, compatibility_level="1.1") == ["there is no bit in compatibility level 1.1"]
    for prefixed in ("myprefix.ABS(x) AS a FROM i", "my.SUM(x) AS a FROM i GROUP BY w.TumblingWindow(second, 1)"):
        refused = messages(f"SELECT {prefixed}")
        assert any(message.startswith("a built-in function takes no prefix: ") for message in refused)
        assert compile_query(f"SELECT {prefixed}", compatibility_level="1.1")
    assert messages("SELECT system.Half(x) AS a FROM i") == ["there is no function system.Half"]
    with pytest.raises(ValueError, match=r"1\.3"):
        compile_query("SELECT x FROM i", compatibility_level="1.3")


@pytest.mark.parametrize(
    ("sql", "ticks"),
    [
        ("SELECT x FROM i", 0),
        ("SELECT COUNT(*) AS n FROM i GROUP BY HoppingWindow(minute, 10, 1)", 10 * MINUTE),
        ("SELECT COUNT(*) AS n FROM i GROUP BY System.Timestamp()", 0),
        ("SELECT COUNT(*) AS n FROM i GROUP BY SessionWindow(second, 5, 60)", 3 * 60 * SECOND + 5 * SECOND),
        (
            "SELECT COUNT(*) AS n FROM i GROUP BY Windows(TumblingWindow(second, 5), SlidingWindow(hour, 1))",
            HOUR,
        ),
        ("SELECT ISFIRST(minute, 10) AS f, LAG(x) OVER (LIMIT DURATION(second, 5)) AS p FROM i", 10 * MINUTE),
        # DATEDIFF of 15 minutes reaches just short of 16; the longer side of the range counts.
        ("SELECT a.x FROM a JOIN b ON DATEDIFF(minute, a, b) BETWEEN -15 AND 2", 16 * MINUTE),
        # A bound in seconds beside one in minutes: both hold, so the shorter one counts.
        (
            "SELECT a.x FROM a JOIN b ON DATEDIFF(mi, a, b) BETWEEN 0 AND 5 AND DATEDIFF(ss, a, b) BETWEEN 0 AND 9",
            10 * SECOND,
        ),
        # The longest of several outputs.
        (
            "SELECT COUNT(*) AS n INTO o FROM i GROUP BY TumblingWindow(hour, 1) SELECT x INTO p FROM i",
            HOUR,
        ),
    ],
)
def test_how_far_a_query_looks_back(sql: str, ticks: int) -> None:
    assert compile_query(sql).lookback_ticks == ticks


def test_static_types_flow_through_steps() -> None:
    sql = (
        "WITH s AS (SELECT CAST(x AS datetime) AS d, UPPER(y) AS u, COUNT(*) OVER (LIMIT DURATION(hh, 1)) AS n FROM i)"
        "SELECT d + 1 AS a, CASE WHEN d > n THEN 1 END AS b, u + u AS c, ABS(d) AS e FROM s"
    )
    assert messages(sql) == [
        "dates are not calculated with signs",
        "a datetime and a bigint cannot be compared",
        "a datetime is not a number",
    ]
    assert Type.ANY.value == "any"
