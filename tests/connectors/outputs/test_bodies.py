"""Bodies of messages: what a reader finds in them, by any library, and which results have none."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.job.rows import result_columns, result_rows
from tidegate.connectors.outputs.messaging.bodies import encoder_of, schema_of, signature_of
from tidegate.connectors.outputs.messaging.event_hub import EventHubOutput
from tidegate.connectors.outputs.shape import OutputColumn
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import parse_time
from tidegate.sql.plan.nodes import Type

NOON = Datetime(parse_time("2026-01-01T12:00:00.1234567Z"))


def settings(**given: Any) -> EventHubOutput:
    return EventHubOutput(type="eventhub", connection_string="x", **given)


def avro(body: Any) -> list[dict[str, Any]]:
    return list(fastavro.reader(io.BytesIO(body)))


def test_json_is_an_object_or_an_array_of_one() -> None:
    rows = result_columns({"n": [1, 2], "t": ["a\nb", None]})
    assert encoder_of(settings(), None)(rows) == [b'{"n":1,"t":"a\\nb"}', b'{"n":2,"t":null}']
    arrays = encoder_of(settings(json_format="array"), None)(rows)
    assert [json.loads(body) for body in arrays] == [[{"n": 1, "t": "a\nb"}], [{"n": 2, "t": None}]]


def test_csv_has_a_header_in_every_body() -> None:
    rows = result_rows([{"n": 1, "t": 'a"b;c'}, {"n": None, "t": NOON}, {"m": [1, {"x": 2}]}])
    bodies = encoder_of(settings(format="csv", csv_delimiter="semicolon"), None)(rows)
    read = [list(csv.reader(io.StringIO(body.decode()), delimiter=";")) for body in bodies]
    assert read == [
        [["n", "t"], ["1", 'a"b;c']],
        [["n", "t"], ["", "2026-01-01T12:00:00.1234567Z"]],
        [["m"], ['[1,{"x":2}]']],
    ]


def test_avro_has_the_types_of_the_query_and_of_the_values() -> None:
    shape = (OutputColumn("n", Type.BIGINT), OutputColumn("v", Type.ANY), OutputColumn("t", Type.DATETIME))
    rows = result_columns({"n": [1, None], "v": [1.5, {"a": [1, "x", None]}], "t": [NOON, None]})
    first, second = encoder_of(settings(format="avro"), shape)(rows)
    assert avro(first) == [{"n": 1, "v": 1.5, "t": "2026-01-01T12:00:00.1234567Z"}]
    assert avro(second) == [{"n": None, "v": {"a": [1, "x", None]}, "t": None}]
    schema = fastavro.reader(io.BytesIO(second)).writer_schema
    assert [field["type"][1] for field in schema["fields"]][::2] == ["long", "string"]


def test_equal_results_have_equal_bytes_in_avro() -> None:
    rows = result_rows([{"n": 1}, {"n": "x"}, {"n": 1}])
    first, other, again = encoder_of(settings(format="avro"), None)(rows)
    assert first == again != other


def test_a_name_that_avro_does_not_allow() -> None:
    error, body = encoder_of(settings(format="avro"), None)(result_rows([{"a b": 1}, {"ab": 1}]))
    assert "column 'a b': names in Avro have letters" in str(error)
    assert avro(body) == [{"ab": 1}]


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4))
def test_avro_gives_back_any_row(row: dict[str, Any]) -> None:
    schema = fastavro.parse_schema(schema_of(signature_of(row, {})))
    out = io.BytesIO()
    fastavro.writer(out, schema, [row])
    assert list(map(without_nulls, avro(out.getvalue()))) == [without_nulls(row)]


def without_nulls(value: Any) -> Any:
    """A record of an array has the fields of all of them, so one that is missing there comes back as a null."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return list(map(without_nulls, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("given_", [{"format": "csv", "json_format": "array"}, {"csv_delimiter": "tab"}])
def test_settings_of_another_format_are_refused(given_: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="is not for format"):
        settings(**given_)
