"""Avro schemas: what is one, and what resolves, also as Apache's own library says."""

from __future__ import annotations

import json
from typing import Any

import avro.compatibility
import avro.schema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import example_count
from tidegate.schemas import SchemaError, SchemaFormat, SchemaText
from tidegate.schemas.avro import differences, identity, parse


def record(*fields: dict[str, Any], name: str = "R") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


A = {"name": "a", "type": "int"}

RESOLVES = {
    "the same": (record(A), record(A)),
    "a field with a default is added": (record(A, {"name": "b", "type": "string", "default": ""}), record(A)),
    "a field is removed": (record(), record(A)),
    "int becomes long": (record({"name": "a", "type": "long"}), record(A)),
    "a type becomes optional": (record({"name": "a", "type": ["null", "int"]}), record(A)),
    "a field is renamed with an alias": (record({"name": "b", "type": "int", "aliases": ["a"]}), record(A)),
    "a symbol is unknown, with a default": (
        '{"type":"enum","name":"E","symbols":["A"],"default":"A"}',
        '{"type":"enum","name":"E","symbols":["A","B"]}',
    ),
    "bytes become a string": ('"string"', '"bytes"'),
    "the namespace changes": (
        '{"type":"fixed","name":"x.F","size":2}',
        '{"type":"fixed","name":"y.F","size":2}',
    ),
    "a list that contains itself": 2 * ('{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}',),
}
DIFFERS = {
    "a field without a default is added": (record(A, {"name": "b", "type": "string"}), record(A), "MISSING_DEFAULT"),
    "long becomes int": (record(A), record({"name": "a", "type": "long"}), "TYPE_MISMATCH"),
    "a branch is removed": (record(A), record({"name": "a", "type": ["null", "int"]}), "TYPE_MISMATCH"),
    "the record is renamed": (record(A, name="S"), record(A), "NAME_MISMATCH"),
    "a symbol is removed": (
        '{"type":"enum","name":"E","symbols":["A"]}',
        '{"type":"enum","name":"E","symbols":["A","B"]}',
        "MISSING_ENUM_SYMBOLS at /: the reader lacks B",
    ),
    "a size changes": ('{"type":"fixed","name":"F","size":3}', '{"type":"fixed","name":"F","size":2}', "FIXED_SIZE"),
    "deep inside": (
        '{"type":"array","items":{"type":"map","values":"int"}}',
        '{"type":"array","items":{"type":"map","values":"string"}}',
        "TYPE_MISMATCH at /array/map",
    ),
}


@pytest.mark.parametrize("case", RESOLVES)
def test_what_resolves(case: str) -> None:
    reader, writer = RESOLVES[case]
    assert differences(reader, {}, writer, {}) == []


@pytest.mark.parametrize("case", DIFFERS)
def test_what_does_not(case: str) -> None:
    reader, writer, expected = DIFFERS[case]
    (found,) = differences(reader, {}, writer, {})
    assert expected in found


INVALID = {
    "no JSON": ("{", "not JSON"),
    "no type": ("3", "expected a type"),
    "an unknown type": ('"number"', "'number' is not defined"),
    "a name twice": (record(A, A), "the field 'a' twice"),
    "a bad name": (record(name="1"), "no valid name"),
    "a union in a union": ('["int",["null"]]', "union cannot contain a union"),
    "a branch twice": ('["int","int"]', "'int' twice"),
    "a default of another type": (record({"name": "a", "type": "int", "default": "x"}), "is no int"),
    "an int that is none": (record({"name": "a", "type": "int", "default": 1 << 31}), "is no int"),
    "too deep": ("[" * 150 + "]" * 150, "nested at most"),
    "no size": ('{"type":"fixed","name":"F"}', "size of fixed"),
    "symbols twice": ('{"type":"enum","name":"E","symbols":["A","A"]}', "different names"),
}


@pytest.mark.parametrize("case", INVALID)
def test_what_is_no_schema(case: str) -> None:
    text, expected = INVALID[case]
    with pytest.raises(SchemaError, match=expected):
        parse(text, {})


def test_layout_and_the_long_form_of_types_do_not_count() -> None:
    long = '{ "name":"R", "fields":[{"type":{"type":"int"},"name":"a"}], "type":"record"}'
    assert identity(long, {}) == identity(record(A), {})
    assert identity(record({**A, "doc": "x"}), {}) != identity(record(A), {})


def test_a_type_may_be_defined_in_another_schema() -> None:
    text = record({"name": "a", "type": "x.Other"})
    with pytest.raises(SchemaError, match=r"'x\.Other' is not defined"):
        parse(text, {})
    other = '{"type":"record","name":"Other","namespace":"x","fields":[]}'
    imports = {"x.Other": other}
    assert differences(text, imports, text, imports) == []
    schema = SchemaText(SchemaFormat.AVRO, text, imported=imports)
    assert schema.differences(schema) == []


def test_a_comparison_that_would_take_for_ever_is_given_up() -> None:
    """Each record has the next one twice, below unions that must be tried."""
    text: Any = "int"
    for number in range(25):
        fields = [{"name": name, "type": text if name == "a" else f"R{number - 1}"} for name in "ab"]
        text = {"type": "record", "name": f"R{number}", "fields": fields if number else [A]}
    whole = json.dumps(text)
    assert differences(whole, {}, whole, {}) == []


names = st.sampled_from(["A", "B"])
field_names = st.sampled_from(["a", "b", "c"])
primitives = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0) -> Any:
    kind = draw(st.sampled_from(["primitive", "array", "map", "union", "record", "enum", "fixed"])) if depth < 3 else ""
    if kind == "array":
        return {"type": "array", "items": draw(schemas(depth + 1))}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(depth + 1))}
    if kind == "union":
        return draw(st.lists(primitives, min_size=1, max_size=3, unique=True))
    name = f"{draw(names)}{depth}"
    if kind == "enum":
        return {
            "type": "enum",
            "name": name,
            "symbols": draw(st.lists(st.sampled_from("XYZ"), min_size=1, unique=True)),
        }
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": draw(st.integers(1, 2))}
    if kind == "record":
        chosen = draw(st.lists(field_names, max_size=1, unique=True))
        fields = [{"name": one, "type": draw(schemas(depth + 1))} for one in chosen]
        return {"type": "record", "name": name, "fields": fields}
    return draw(primitives)


@settings(max_examples=example_count(200))
@given(schemas(), schemas())
def test_resolution_is_that_of_apache_s_library(reader: Any, writer: Any) -> None:
    checker = avro.compatibility.ReaderWriterCompatibilityChecker()
    texts = json.dumps(reader), json.dumps(writer)
    expected = checker.get_compatibility(*map(avro.schema.parse, texts)).compatibility
    found = differences(texts[0], {}, texts[1], {})
    assert (found == []) == (expected is avro.compatibility.SchemaCompatibilityType.compatible), found
