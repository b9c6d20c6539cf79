"""The arguments of a query in a Spark program; no Spark is started."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types

from tidegate.connectors.inputs.event_hub import EventHubInput
from tidegate.connectors.inputs.recorded import RecordedInput
from tidegate.connectors.model.errors import JobError, JobQueryError
from tidegate.ordering import TICKS_PER_SECOND, parse_time
from tidegate.spark.queries.arguments import (
    QueryArguments,
    check_arguments,
    check_times,
    job_of,
    output_of,
    time_of,
)
from tidegate.spark.queries.frame_events import EventsOfFrame

QUERY = "SELECT a INTO result FROM input"
HUB = "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;EntityPath=eh1"


def arguments(**given: Any) -> QueryArguments:
    return QueryArguments(**{"query": QUERY, "inputs": {"input": "log.jsonl"}, **given})


def refusal(**given: Any) -> str:
    with pytest.raises(JobError) as raised:
        job_of(arguments(**given), "sql")
    assert "\n" not in str(raised.value) or isinstance(raised.value, JobQueryError)
    return str(raised.value)


def test_paths_and_sections_and_options_are_inputs() -> None:
    options = {"eventhubs.connectionString": HUB, "consumerGroup": "spark"}
    job = job_of(arguments(inputs={"input": Path("log.jsonl"), "b": options}), "sql")
    recorded, hub = job.definition.inputs["input"], job.definition.inputs["b"]
    assert isinstance(recorded, RecordedInput)
    assert recorded.path == Path.cwd() / "log.jsonl"
    assert isinstance(hub, EventHubInput)
    assert (hub.connection_string, hub.consumer_group) == (HUB, "spark")
    section = {"type": "recorded", "path": "other.jsonl"}
    same = job_of(arguments(inputs={"input": section}), "sql").definition.inputs["input"]
    assert job_of(arguments(inputs={"input": same}), "sql").definition.inputs["input"] == same
    assert job.definition.state_dir is None


def test_the_event_ordering_has_the_words_and_the_defaults_of_the_job_file() -> None:
    assert job_of(arguments(), "sql").policy.late_ticks == 5 * TICKS_PER_SECOND
    job = job_of(arguments(event_ordering={"late_arrival_tolerance_s": 60, "action": "drop"}), "sql")
    assert job.policy.late_ticks == 60 * TICKS_PER_SECOND
    assert not job.policy.adjusts


def test_values_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB", HUB)
    job = job_of(arguments(inputs={"input": {"connectionString": "${HUB}"}}), "sql")
    assert isinstance(hub := job.definition.inputs["input"], EventHubInput)
    assert hub.connection_string == HUB
    monkeypatch.delenv("HUB")
    assert "${HUB} is not set" in refusal(inputs={"input": {"connectionString": "${HUB}"}})


def test_python_functions_are_sent_by_value() -> None:
    factor = 3

    def triple(value: int) -> int:
        return value * factor

    query = "SELECT udf.triple(a) AS b INTO result FROM input"
    job = job_of(arguments(query=query, functions={"triple": triple}), "sql")
    sent = pickle.loads(pickle.dumps(job.program))
    assert sent.functions["udf.triple"](2) == 6
    assert "takes (value: int), not 2 arguments" in refusal(
        query="SELECT udf.triple(a, a) AS b INTO result FROM input", functions={"triple": triple}
    ).replace("'int'", "int")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"inputs": {}}, "sql: inputs is empty"),
        ({"inputs": {"input": 7}}, "inputs['input'] is no input, such as"),
        ({"inputs": {"input": {"path": "x"}}}, "has no option 'path'"),
        ({"inputs": {"input": {"type": "recorded"}}}, "sql: inputs.input.path: missing"),
        ({"event_ordering": {"late_arival_tolerance_s": 5}}, "did you mean 'late_arrival_tolerance_s'?"),
        ({"event_ordering": {"late": 5}}, "did you mean 'late_arrival_tolerance_s'?"),
        ({"event_ordering": {"action": "ignore"}}, "event_ordering.action: input should be 'adjust' or 'drop'"),
        ({"compatibility_level": "2"}, "compatibility_level"),
        ({"functions": {"f": 3}}, "functions.f"),
        ({"inputs": {"inptu": "log.jsonl"}}, "inptu"),
    ],
)
def test_a_wrong_argument_is_named(given: dict[str, Any], message: str) -> None:
    assert message in refusal(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"spark": None},
            "sql: the first argument is a session, as SparkSession.builder.getOrCreate() returns it, got",
        ),
        (
            {"spark": SimpleNamespace(createDataFrame=None, _sc=SimpleNamespace(_jsc=None))},
            "sql: the Spark session was stopped; get another with",
        ),
        (
            {"spark": SimpleNamespace(createDataFrame=None, is_stopped=True)},
            "sql: the Spark session was stopped; get another with",
        ),
        ({"query": None}, "sql: query is a text, or a Path of a file that holds it; got NoneType"),
        (
            {"inputs": [1]},
            "sql: inputs is a dict of inputs by the name the query reads FROM, such as {'input': df}; got",
        ),
        ({"shards": "two"}, "sql: shards is a number, 1 or more, got 'two'"),
        ({"shards": 0}, "sql: shards is a number, 1 or more, got 0"),
        ({"inputs": {"input": "events"}}, "sql: inputs['input']: there is no file "),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_in_a_line(given: dict[str, Any], message: str) -> None:
    session = SimpleNamespace(createDataFrame=None)
    right: dict[str, Any] = {"spark": session, "query": QUERY, "inputs": {"input": __file__}, "shards": 2}
    check_arguments(**right, caller="sql")
    with pytest.raises(JobError) as raised:
        check_arguments(**{**right, **given}, caller="sql")
    said = str(raised.value)
    assert said.startswith(message)
    assert "\n" not in said
    if "there is no file" in message:
        assert str(Path.cwd() / "events") in said
        assert "pass a DataFrame, such as spark.table('events')" in said


def test_events_have_no_time_by_a_column_that_is_no_time() -> None:
    kinds = {"n": types.LongType(), "text": types.StringType(), "at": types.TimestampType(), "more": types.StructType()}
    schema = types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])
    frame: Any = SimpleNamespace(columns=schema.names, schema=schema)
    typed = EventsOfFrame(frame, None, "at", None, None)

    def check(timestamp_by: str, events: EventsOfFrame = typed) -> None:
        query = f"WITH s AS (SELECT a FROM Input TIMESTAMP BY {timestamp_by}) SELECT a INTO result FROM s"
        check_times(job_of(arguments(query=query, inputs={"Input": "log"}), "sql"), {"input": events}, "sql")

    with pytest.raises(
        JobError, match=r"^sql: TIMESTAMP BY N: the column of inputs\['Input'\] is of type bigint, expe"
    ):
        check("N")
    # Only the values tell whether a text is a time, and what the fields of others are.
    for possible in ("at", "text", "more.n", "missing", "DATEADD(second, n, '1970-01-01')"):
        check(possible)
    check("n", EventsOfFrame(frame, "text", "at", None, None))


def test_no_secret_is_shown() -> None:
    assert "c2VjcmV0" not in refusal(inputs={"input": {"connectionString": HUB, "segments": "sometimes"}})


def test_a_wrong_query_shows_the_line_with_a_caret() -> None:
    assert "SELECT a FRM input" in refusal(query="SELECT a FRM input")


def test_the_output_is_found_by_its_name() -> None:
    job = job_of(arguments(), "sql")
    assert output_of(job, None, "sql") == output_of(job, "RESULT", "sql") == "result"
    both = job_of(arguments(query=f"{QUERY}; SELECT b INTO other FROM input"), "sql")
    assert output_of(both, "other", "sql") == "other"
    with pytest.raises(JobError, match=r"has the outputs result, other; say which one: output='result'"):
        output_of(both, None, "sql")
    with pytest.raises(JobError, match=r"no output 'resutl'; did you mean 'result'"):
        output_of(both, "resutl", "sql")


def test_times_are_texts_or_datetimes() -> None:
    ticks = parse_time("2026-01-31T12:00:00.5Z")
    assert time_of("start", "2026-01-31T12:00:00.5Z", "sql") == ticks
    assert time_of("start", datetime(2026, 1, 31, 12, 0, 0, 500_000), "sql") == ticks
    east = timezone(timedelta(hours=2))
    assert time_of("start", datetime(2026, 1, 31, 14, 0, 0, 500_000, tzinfo=east), "sql") == ticks
    assert time_of("start", datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC), "sql") == ticks
    assert time_of("start", None, "sql") is None
    with pytest.raises(JobError, match="start is a time such as"):
        time_of("start", "yesterday", "sql")
