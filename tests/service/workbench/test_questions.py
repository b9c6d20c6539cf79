"""What the workbench answers, over recorded logs: mistakes, rows of a test, tuning, pictures, stories of events."""

from __future__ import annotations

import base64
import io
import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tidegate.portal.jobs.sections import TITLES
from tidegate.schemas import protobuf as protobuf_schemas
from tidegate.service.workbench import __main__ as workbench
from tidegate.service.workbench.replaying import MAX_DOTS
from tidegate.service.workbench.samples import SHOWN_RECORDS

QUERY = (
    "SELECT System.Timestamp() AS at, COUNT(*) AS n INTO output FROM input TIMESTAMP BY t "
    "GROUP BY TumblingWindow(second, 10)"
)


def line(second: int, arrival: int, partition: int = 0) -> str:
    body = {"t": f"2026-01-01T00:00:{second:02d}Z", "device": "a"}
    return json.dumps({"partition": partition, "arrival": f"2026-01-01T00:00:{arrival:02d}Z", "body": body})


@pytest.fixture
def definition(tmp_path: Path) -> dict[str, Any]:
    """Return a job over a recorded log: 30 events in order, one late by 20 s, one out of order by 3 s."""
    lines = [line(second, second) for second in range(30)] + [line(10, 30), line(27, 30)]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {
        "name": "counted",
        "query": QUERY,
        "inputs": {"input": {"type": "recorded", "path": str(path)}},
        "outputs": {"output": {"type": "console"}},
        "state_dir": str(tmp_path / "state"),
        "event_ordering": {"late_arrival_tolerance_s": 5, "out_of_order_tolerance_s": 0, "action": "drop"},
    }


def ask(question: str, **more: Any) -> Any:
    answered = workbench.answer({"ask": question, **more})
    assert "problem" not in answered, answered["problem"]
    return json.loads(json.dumps(answered["answer"]))


def test_mistakes_have_their_place_and_a_hint(definition: dict[str, Any]) -> None:
    definition["query"] = "SELECT COUNT(*) INTO outptu\nFROM input GROUP BY Tumbling(second, 1)"
    errors = ask("compile", definition=definition)["errors"]
    assert (errors[0]["line"], errors[0]["column"], errors[0]["length"]) == (1, 22, 6)
    assert "output" in errors[0]["hint"]
    assert ask("compile", definition={**definition, "query": QUERY}) == {
        "errors": [],
        "warnings": [],
        "inputs": ["input"],
        "outputs": ["output"],
    }


def test_a_job_without_inputs_yet_can_be_compiled() -> None:
    assert ask("compile", definition={"query": "SELECT * INTO a FROM b"})["errors"] == []
    assert ask("compile", definition={})["errors"]


def test_every_function_can_be_completed() -> None:
    words = {word["label"]: word for word in ask("words")}
    for name in ("SELECT", "COUNT", "TumblingWindow", "LAG", "DATEDIFF", "GetArrayElements", "System.Timestamp"):
        assert name in words
    assert words["DATEDIFF"]["info"]


def test_a_query_is_tested_on_the_input_s_own_events_under_the_policy(definition: dict[str, Any]) -> None:
    found = ask("test", definition=definition)
    (output,) = found["outputs"]
    assert [row["row"]["n"] for row in output["rows"]] == [1, 10, 10, 9]
    assert found["events"] == {"input": 32}
    assert found["metrics"]["Late Input Events"] == 1
    assert "drop" in found["policy"]


def test_fewer_events_can_be_sampled(definition: dict[str, Any]) -> None:
    assert ask("test", definition=definition, events=4)["events"] == {"input": 4}


def test_an_uploaded_file_takes_the_place_of_an_input(definition: dict[str, Any]) -> None:
    found = ask("test", definition=definition, uploaded={"INPUT": line(1, 1) + "\n" + line(2, 50)})
    assert found["events"] == {"input": 2}
    assert found["metrics"]["Late Input Events"] == 1
    assert found["notes"] == []


def test_a_sample_says_itself_when_and_where_its_events_arrived(definition: dict[str, Any]) -> None:
    late, arrival = {"t": "2026-01-01T00:00:01Z"}, "2026-01-01T00:00:{}Z"
    lines = [
        json.dumps({**late, "EventEnqueuedUtcTime": arrival.format(at), "PartitionId": partition})
        for at, partition in (("01", 0), ("50", 1))
    ]
    found = ask("test", definition=definition, uploaded={"input": "\n".join(lines)})
    assert found["partitions"] == {"input": {"0": 1, "1": 1}}
    assert (found["metrics"]["Late Input Events"], found["notes"]) == (1, [])


def test_events_can_be_taken_in_the_order_of_their_arrival(definition: dict[str, Any]) -> None:
    definition["query"] = "SELECT device INTO output FROM input TIMESTAMP BY t"
    found = ask("test", definition=definition, unordered=True, rows=5)
    assert (found["outputs"][0]["count"], len(found["outputs"][0]["rows"])) == (32, 5)
    assert found["metrics"]["Late Input Events"] == 0


@pytest.mark.parametrize("text", ['{"t": "2026-01-01T00:00:01Z"}', '[{"t": "2026-01-01T00:00:01Z"}]'])
def test_without_arrivals_the_policy_is_left_out_and_that_is_said(definition: dict[str, Any], text: str) -> None:
    found = ask("test", definition=definition, uploaded={"input": text})
    assert found["outputs"][0]["rows"][0]["row"]["n"] == 1
    assert "do not say when they arrived" in found["notes"][0]


@pytest.mark.parametrize(
    ("changes", "said", "kind"),
    [
        ({"query": "SELECT nothing"}, "expected FROM", "compiler"),
        ({"query": ""}, "it has no query", "runtime"),
        ({"inputs": {}}, "it has no inputs", "runtime"),
        ({"inputs": {"input": {"type": "recorded", "path": "/no/such"}}}, "cannot read the recorded log", "input"),
        ({"event_ordering": {"late_arrival_tolerance_s": "x"}}, "late_arrival_tolerance_s", "runtime"),
    ],
)
def test_a_job_that_cannot_be_tested_says_why(definition: Any, changes: dict[str, Any], said: str, kind: str) -> None:
    answered = workbench.answer({"ask": "test", "definition": {**definition, **changes}})
    assert said in answered["problem"]
    assert answered["kind"] == kind


def test_a_broken_upload_says_what_was_expected(definition: dict[str, Any]) -> None:
    answered = workbench.answer({"ask": "test", "definition": definition, "uploaded": {"input": "{"}})
    assert "neither lines of JSON nor an array" in answered["problem"]


def test_a_sample_shows_the_last_events(definition: dict[str, Any]) -> None:
    definition["query"] = "this one does not matter"
    events = ask("sample", definition=definition, input="input")["events"]
    assert len(events) == 20
    assert events[-1]["sequenceNumber"] == 31
    assert json.loads(events[-1]["body"])["device"] == "a"


def test_tuning_has_an_outcome_for_every_step_of_the_sliders(definition: dict[str, Any]) -> None:
    found = ask("tune", definition=definition)
    late, order = found["lateSeconds"], found["outOfOrderSeconds"]
    assert len(found["grid"]) == len(late) * len(order)
    assert 5.0 in late
    outcomes = {(one["lateArrivalToleranceS"], one["outOfOrderToleranceS"]): one for one in found["grid"]}
    assert outcomes[5.0, 0.0]["late"] == 1
    assert outcomes[30.0, 20.0]["untouched"] == 32
    assert found["current"]["late"] == 1


def test_a_picture_from_what_is_no_time_is_refused(definition: dict[str, Any]) -> None:
    answered = workbench.answer({"ask": "picture", "definition": definition, "from": "yesterday"})
    assert "from: not an ISO 8601 time" in answered["problem"]


def test_the_picture_has_every_event_with_its_outcome(definition: dict[str, Any]) -> None:
    found = ask("picture", definition=definition)
    assert found["events"] == len(found["dots"]) == 32
    outcomes = {tuple(dot[:2]): dot[4] for dot in found["dots"]}
    assert outcomes["input/0", 30] == "dropped"
    assert outcomes["input/0", 5] == "on time"
    reasons = {tuple(dot[:2]): dot[6] for dot in found["dots"]}
    assert (reasons["input/0", 30], reasons["input/0", 5]) == ("late", None)
    part = ask("picture", definition=definition, **{"from": "2026-01-01T00:00:10Z", "to": "2026-01-01T00:00:20Z"})
    assert [dot[1] for dot in part["dots"]] == list(range(10, 20))


def test_of_many_events_those_that_a_rule_touched_are_drawn(definition: dict[str, Any], tmp_path: Path) -> None:
    lines = [line(30, 30) for _ in range(MAX_DOTS + 500)] + [line(1, 31) for _ in range(7)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    found = ask("picture", definition=definition)
    assert found["events"] == MAX_DOTS + 507
    assert len(found["dots"]) <= MAX_DOTS
    assert sum(dot[4] == "dropped" for dot in found["dots"]) == 7


def test_an_event_s_story_is_told(definition: dict[str, Any]) -> None:
    told = ask("explain", definition=definition, input="input", partition="0", sequenceNumber=30)
    assert any("late" in sentence for sentence in told["rows"][0]["sentences"])
    answered = workbench.answer({"ask": "explain", "definition": definition, "partition": "0", "sequenceNumber": 99})
    assert "there is no event 99" in answered["problem"]


def test_the_plan_is_a_graph_from_outputs_to_inputs(definition: dict[str, Any]) -> None:
    (output,) = ask("plan", definition=definition)["outputs"]
    node = output
    while node["sources"]:
        (node,) = node["sources"]
    assert node["step"].startswith("input input")


def test_what_is_loaded_at_the_start_works() -> None:
    assert "answer" in workbench.answer(workbench.WARM_UP)


def test_an_unknown_question_is_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    assert "the log of the hub" in workbench.answer({"ask": "nothing"})["problem"]
    assert "nothing" in caplog.text


def test_functions_are_known_by_the_names_that_a_query_calls(definition: dict[str, Any]) -> None:
    """Also those of a job that has none: it could not start."""
    query = "SELECT udf.Twice(x) AS x INTO output FROM input"
    functions = {"twice": {"module": "f.py"}, "total": {"module": "f.py", "aggregate": "Total"}}
    assert ask("compile", definition={**definition, "query": query, "functions": functions})["errors"] == []
    (error,) = ask("compile", definition={**definition, "query": query})["errors"]
    assert error["message"] == "there is no function udf.twice"


def test_a_test_shows_what_failed_by_reason(definition: dict[str, Any]) -> None:
    definition["query"] = "SELECT CAST(device AS bigint) AS d INTO output FROM input"
    found = ask("test", definition=definition)
    (error,) = found["dataErrors"]
    assert (error["type"], error["count"]) == ("RuntimeError", 32)
    assert found["errors"][0].startswith("RuntimeError 32 (input input): a value cannot be converted")


def test_what_tail_prints_can_be_uploaded(definition: dict[str, Any]) -> None:
    line = {
        "partition": "1",
        "sequenceNumber": 7,
        "offset": "64",
        "enqueuedTime": "2026-01-01T00:00:00.500Z",
        "partitionKey": "k",
        "publisher": None,
        "properties": {"at": {"type": "timestamp", "value": "2026-01-01T00:00:00Z"}},
        "systemProperties": {},
        "body": '{"v": 1}',
    }
    definition["query"] = (
        "SELECT v, EventEnqueuedUtcTime AS t, GetMetadataPropertyValue(input, '[User].[at]') AS at, "
        "GetMetadataPropertyValue(input, 'EventHub.SequenceNumber') AS n, "
        "GetMetadataPropertyValue(input, 'EventHub.PartitionKey') AS k INTO output FROM input"
    )
    found = ask("test", definition=definition, uploaded={"input": json.dumps(line)})
    (row,) = found["outputs"][0]["rows"]
    at = "2026-01-01T00:00:00.0000000Z"
    assert row["row"] == {"v": 1, "t": "2026-01-01T00:00:00.5000000Z", "at": at, "n": 7, "k": "k"}
    assert found["notes"] == []


def reached(kind: str, settings: dict[str, Any]) -> Any:
    return workbench.answer({"ask": "reach", "kind": kind, "name": "one", "settings": settings})


def test_an_input_is_reached_by_reading_where_it_ends(definition: dict[str, Any]) -> None:
    found = reached("inputs", definition["inputs"]["input"])
    assert found["answer"] == {"status": "connected", "text": "it has 1 partition, 32 events"}


def test_a_host_that_answers_is_reached_and_no_more_is_claimed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        settings = {"type": "powerbi", "push_url": f"https://127.0.0.1:{port}/datasets/a?key=secret"}
        found = reached("outputs", settings)
    assert found["answer"]["status"] == "reached"
    assert "the key was not tried" in found["answer"]["text"]
    assert "refused" in reached("outputs", settings)["problem"]


def test_what_cannot_be_tried_without_a_write_is_said_to_be_untested(tmp_path: Path) -> None:
    iceberg = {"type": "iceberg", "table": "a.b", "catalog": "sqlite:///c.db"}
    assert reached("outputs", iceberg).get("answer", {"status": "untested"})["status"] == "untested"
    assert reached("outputs", {"type": "file", "path": str(tmp_path / "new.jsonl")})["answer"]["status"] == "connected"
    missing = reached("inputs", {"type": "reference", "path": str(tmp_path / "none.json")})
    assert "there is no" in missing["problem"]


SQLITE = {"type": "sql_reference", "snapshot_query": "SELECT 1 AS a"}


@pytest.mark.parametrize(
    ("kind", "settings", "setting"),
    [
        ("outputs", {"type": "file", "path": "results.jsonl"}, "path"),
        ("inputs", {**SQLITE, "connection_string": "sqlite:///r.db"}, "connection_string"),
        ("functions", {"module": "functions.py"}, "module"),
    ],
)
def test_a_section_without_a_job_file_has_no_relative_paths(kind: str, settings: dict[str, Any], setting: str) -> None:
    """It would depend on where the service was started."""
    for question in ("section",) if kind == "functions" else ("section", "reach"):
        said = workbench.answer({"ask": question, "kind": kind, "name": "x", "settings": settings})["problem"]
        assert f"{setting}: expected an absolute path" in said


def test_fields_have_labels_and_units() -> None:
    kinds = ask("sections")
    (hub,) = [one for one in kinds["inputs"] if one["type"] == "eventhub"]
    fields = {one["name"]: (one["label"], one["unit"]) for one in hub["fields"]}
    assert fields["consumer_group"] == ("Consumer group", "")
    assert fields["idle_after_s"] == ("Idle after", "seconds")


def test_the_portal_has_a_title_for_every_kind() -> None:
    found = ask("sections")
    assert {kind: {one["type"] for one in found[kind]} for kind in TITLES} == {
        kind: set(titles) for kind, titles in TITLES.items()
    }


def test_an_avro_container_is_decoded_to_what_json_can_say() -> None:
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "ratio", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ]
    schema = fastavro.parse_schema({"type": "record", "name": "reading", "fields": fields})
    record = {"at": datetime(2026, 1, 1, tzinfo=UTC), "raw": b"\xff", "ratio": float("inf"), "tags": ["a"]}
    content = io.BytesIO()
    fastavro.writer(content, schema, [record] * (SHOWN_RECORDS + 1))
    found = ask("decode", body=base64.b64encode(content.getvalue()).decode())
    assert (found["count"], len(found["records"])) == (SHOWN_RECORDS + 1, SHOWN_RECORDS)
    assert found["records"][0] == {"at": "2026-01-01 00:00:00+00:00", "raw": "/w==", "ratio": "inf", "tags": ["a"]}
    cut = workbench.answer({"ask": "decode", "body": base64.b64encode(content.getvalue()[:-20]).decode()})
    assert "not a readable Avro container" in cut["problem"]


def test_a_value_of_a_schema_is_decoded_with_what_the_schema_imports() -> None:
    place = json.dumps({"type": "record", "name": "place", "fields": [{"name": "booth", "type": "string"}]})
    car = json.dumps({"type": "record", "name": "car", "fields": [{"name": "at", "type": "place"}]})
    body = base64.b64encode(b"\x0anorth").decode()
    found = ask("decode", body=body, schema=car, imported=[place])
    assert found == {"count": 1, "records": [{"at": {"booth": "north"}}]}
    broken = workbench.answer({"ask": "decode", "body": "", "schema": car, "imported": [place]})
    assert "not of its schema" in broken["problem"]


@pytest.mark.slow
def test_a_message_of_protobuf_is_decoded_with_what_its_schema_imports() -> None:
    texts = {
        "b.proto": 'syntax = "proto3"; import "a.proto"; message B { A a = 1; }',
        "a.proto": 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A { '
        "google.protobuf.Timestamp at = 1; bytes raw = 2; }",
    }
    whole = 'syntax = "proto3"; package p; import "b.proto"; message Car { B b = 1; }'
    question = {
        "ask": "decode",
        "format": "protobuf",
        "schema": protobuf_schemas.as_descriptor(whole, texts),
        "imported": {name: protobuf_schemas.as_descriptor(text, texts) for name, text in texts.items()},
    }

    def asked(framed: bytes) -> dict[str, Any]:
        return workbench.answer({**question, "body": base64.b64encode(framed).decode()})

    found = asked(b"\0" + b"\n\x09\n\x07\n\x02\x08\x01\x12\x01\xff")["answer"]
    assert found == {"count": 1, "records": [{"b": {"a": {"at": "1970-01-01T00:00:01Z", "raw": "/w=="}}}]}
    assert "not of its schema" in asked(b"\0\n\x09\n")["problem"]
    assert "no message at 3" in asked(b"\x02\x06")["problem"]
    assert "no index" in asked(b"")["problem"]


def test_a_value_that_claims_more_than_it_holds_is_refused() -> None:
    # 2**40 items without a byte of data, in an array of records without fields.
    nothing = {"type": "record", "name": "nothing", "fields": []}
    schema = json.dumps({"type": "array", "items": nothing})
    body = base64.b64encode(b"\x80\x80\x80\x80\x80\x80\x01\x00").decode()
    refused = workbench.answer({"ask": "decode", "body": body, "schema": schema})
    assert "not of its schema" in refused["problem"]
