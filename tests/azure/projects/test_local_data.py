"""Local files: where one event ends and the next begins, and when each arrived."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.azure.projects.files import LocalInput
from tidegate.azure.projects.local import LocalData, LocalLog, arrival_of, json_bodies, read_local
from tidegate.azure.projects.model.project_file import parse_project_file
from tidegate.connectors.model.errors import ProjectError
from tidegate.engine import JSON
from tidegate.ordering import parse_time

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
RECORDS = st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=3), max_size=5)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data") / "data.json"


@given(records=RECORDS, indent=st.sampled_from([None, 2]), layout=st.sampled_from(["array", "comma", "lines", "close"]))
def test_every_layout_holds_the_same_events(path: Path, records: list[Any], indent: int | None, layout: str) -> None:
    texts = [json.dumps(record, indent=indent) for record in records]
    match layout:
        case "array":
            text = json.dumps(records, indent=indent)
        case "comma":
            text = "[" + "".join(f"{one},\n" for one in texts) + "]"
        case "lines":
            text = "\r\n".join(texts)
        case _:
            text = "".join(texts)
    path.write_text(text, encoding="utf-8-sig")
    assert [json.loads(body) for body in json_bodies(path)] == records


def test_an_event_is_kept_as_it_is_written(path: Path) -> None:
    path.write_text('[{"a": 8.0, "b": 12345678901234567890, "a": 1e2}]')
    assert json_bodies(path) == [b'{"a": 8.0, "b": 12345678901234567890, "a": 1e2}']


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"a": 1},\n {"a": }]', "line 2, column 8: Expecting value"),
        ('[{"a": 1}', "the array it begins with has no end"),
        ("nope", "line 1, column 1"),
        (']{"a": 1}', "line 1, column 1"),
    ],
)
def test_what_is_no_json_is_said_with_its_place(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    with pytest.raises(ProjectError) as caught:
        json_bodies(path)
    assert said in str(caught.value)


@given(text=st.text(max_size=40))
def test_any_text_is_read_or_refused(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", errors="replace"))
    with contextlib.suppress(ProjectError):
        json_bodies(path)


def test_events_that_say_when_they_arrived_are_put_in_that_order() -> None:
    early, late = "2026-01-01T00:00:00.0000001Z", "2026-01-01T00:00:05Z"
    bodies = [
        json.dumps({"n": 1, "EventEnqueuedUtcTime": late}).encode(),
        json.dumps({"n": 2, "eventEnqueuedUtcTime": early}).encode(),
    ]
    log = LocalLog(LocalData(bodies, JSON), with_arrivals=True)
    (events,) = log.range("0", 0, 2).read_events(10)
    assert events.arrivals.tolist() == [parse_time(early), parse_time(late)]
    assert [json.loads(body)["n"] for body in events.bodies] == [2, 1]
    (events,) = LocalLog(LocalData(bodies, JSON), with_arrivals=False).range("0", 0, 2).read_events(10)
    assert [json.loads(body)["n"] for body in events.bodies] == [1, 2]


@pytest.mark.parametrize(
    "body", [b"[1]", b"nope", b'{"EventEnqueuedUtcTime": "never"}', b'{"EventEnqueuedUtcTime": 3}']
)
def test_what_does_not_say_when_it_arrived_is_none(body: bytes) -> None:
    assert arrival_of(body) is None


def local_input(path: Path, file_format: str, **serialization: str) -> LocalInput:
    content = {"InputAlias": "i", "FilePath": str(path), "Serialization": {"Type": file_format, **serialization}}
    return parse_project_file(content, LocalInput, "")


def test_a_table_is_read_row_by_row_and_says_when_its_rows_arrived(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("n;EventEnqueuedUtcTime\n1;2026-01-01T00:00:05Z\n2;2026-01-01T00:00:09Z\n", encoding="utf-8-sig")
    data = read_local(local_input(path, "Csv", FieldDelimiter=";"), path)
    log = LocalLog(data, with_arrivals=True)
    (end,) = log.ends().values()
    assert (end.end, end.complete) == (2, True)
    assert log.first_at("0", parse_time("2026-01-01T00:00:06Z")) == 1
    (events,) = log.range("0", 1, 2).read_events(10)
    assert events.arrivals.tolist() == [parse_time("2026-01-01T00:00:09Z")]
    assert (events.format.kind, events.format.delimiter) == ("csv", ";")


@pytest.mark.parametrize(
    ("file_format", "content", "said"),
    [
        ("CustomClr", b"", "customclr, which cannot be read here; give it as one of json, avro, csv, custom, parquet"),
        ("Avro", b"no avro", "is not avro"),
        ("Parquet", b"no parquet", "is not parquet"),
    ],
)
def test_what_is_not_of_its_format_is_said(tmp_path: Path, file_format: str, content: bytes, said: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    with pytest.raises(ProjectError) as caught:
        read_local(local_input(path, file_format), path)
    assert said in str(caught.value)
    with pytest.raises(ProjectError, match="is not one character"):
        read_local(local_input(path, "csv", FieldDelimiter="||"), path)
