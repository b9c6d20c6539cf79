"""JSON Schemas: which documents of one are valid under another, also by trying documents."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import example_count
from tidegate.schemas import SchemaError
from tidegate.schemas.json_schema import differences, identity, parse


def reasons(reader: Any, writer: Any, **imports: str) -> list[str]:
    return differences(json.dumps(reader), imports, json.dumps(writer), imports)


OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED = {**OPEN, "additionalProperties": False}
WITH_B = {"a": {"type": "integer"}, "b": {"type": "string"}}

INCLUDES: dict[str, tuple[Any, Any]] = {
    "the same": (OPEN, OPEN),
    "anything": (True, OPEN),
    "nothing is valid before": (CLOSED, False),
    "an optional property is added to a closed model": ({**CLOSED, "properties": WITH_B}, CLOSED),
    "a property is removed from an open model": ({"type": "object"}, OPEN),
    "an integer becomes a number": ({"type": "number"}, {"type": "integer"}),
    "a type is added": ({"type": ["string", "null"]}, {"type": "string"}),
    "a bound is widened": ({"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 5}),
    "a value is added": ({"enum": ["A", "B"]}, {"enum": ["A"]}),
    "an enum becomes a string": ({"type": "string", "maxLength": 1}, {"enum": ["A", "B"]}),
    "an alternative is added": ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string"}),
    "alternatives change places": (
        {"anyOf": [{"type": "null"}, OPEN]},
        {"anyOf": [OPEN, {"type": "null"}]},
    ),
    "a required property with a default is added": (
        {**CLOSED, "properties": {**WITH_B, "b": {"type": "string", "default": ""}}, "required": ["b"]},
        CLOSED,
    ),
    "parts of allOf": ({"type": "object"}, {"allOf": [OPEN, {"required": ["a"]}]}),
    "a tree": 2 * ({"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"next": {"$ref": "#/$defs/t"}}}}},),
    "a multiple": ({"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 4}),
    "named by a pattern before": (
        {"type": "object", "properties": {"x_1": {"type": "string"}}},
        {"type": "object", "patternProperties": {"^x_": {"type": "string"}}},
    ),
}
DIFFERS: dict[str, tuple[Any, Any, str]] = {
    "nothing is valid": (False, OPEN, "CONTENT_REMOVED"),
    "a property is added to an open model": ({**OPEN, "properties": WITH_B}, OPEN, "ADDED_TO_OPEN_CONTENT_MODEL"),
    "a property is removed from a closed model": (
        CLOSED,
        {**CLOSED, "properties": WITH_B},
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/properties/b",
    ),
    "a model is closed": (CLOSED, OPEN, "ADDITIONAL_PROPERTIES_NARROWED"),
    "a property is required": ({**OPEN, "required": ["a"]}, OPEN, "REQUIRED_ATTRIBUTE_ADDED at #: a"),
    "a number becomes an integer": ({"type": "integer"}, {"type": "number"}, "TYPE_NARROWED"),
    "a bound is narrowed": ({"maximum": 5}, {"maximum": 9}, "MAXIMUM_NARROWED"),
    "a bound is added": ({"type": "array", "minItems": 1}, {"type": "array"}, "MIN_ITEMS_ADDED"),
    "a value is removed": ({"enum": ["A"]}, {"enum": ["A", "B"]}, "ENUM_VALUES_NARROWED"),
    "a pattern is added": ({"type": "string", "pattern": "^a"}, {"type": "string"}, "PATTERN_ADDED"),
    "an alternative is removed": (
        {"oneOf": [{"type": "string"}]},
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
        "SUM_TYPE_NARROWED",
    ),
    "items change": (
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "integer"}},
        "TYPE_NARROWED at #/items",
    ),
    "deep inside": (
        {"properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}},
        {"properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "integer"}}},
        "TYPE_NARROWED at #/properties/x",
    ),
    "a pattern that cannot be tried": (
        {"type": "object", "properties": {"x": {"type": "string"}}},
        {"type": "object", "patternProperties": {"(a+)+$": {"type": "integer"}}, "additionalProperties": False},
        "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
    ),
}


@pytest.mark.parametrize("case", INCLUDES)
def test_what_includes(case: str) -> None:
    assert reasons(*INCLUDES[case]) == []


@pytest.mark.parametrize("case", DIFFERS)
def test_what_does_not(case: str) -> None:
    reader, writer, expected = DIFFERS[case]
    found = reasons(reader, writer)
    assert found
    assert any(expected in one for one in found), found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "a schema is an object or a boolean"),
        ('{"type":"text"}', "there is no type"),
        ('{"properties":{"a":3}}', "#/properties/a: a schema is"),
        ('{"required":"a"}', "#/required"),
        ('{"$ref":"#/$defs/x"}', "leads nowhere"),
        ('{"$ref":"other.json"}', "'other.json' is not among the references"),
        ('{"maxLength":-1}', "#/maxLength"),
    ],
)
def test_what_is_no_schema(text: str, expected: str) -> None:
    with pytest.raises(SchemaError, match=expected.replace("$", r"\$")):
        parse(text, {})


def test_references_that_lead_in_a_circle_are_refused() -> None:
    circle = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    with pytest.raises(SchemaError, match="circle"):
        reasons(circle, circle)


def test_a_schema_may_refer_to_another() -> None:
    imports = {"other.json": '{"$defs": {"id": {"type": "integer"}}}'}
    one = {"properties": {"a": {"$ref": "other.json#/$defs/id"}}}
    text = json.dumps(one)
    assert differences(text, imports, text, imports) == []
    narrower = {"other.json": '{"$defs": {"id": {"type": "integer", "minimum": 1}}}'}
    assert differences(text, narrower, text, imports) == ["MINIMUM_ADDED at #/properties/a"]


def test_layout_does_not_count() -> None:
    assert identity('{"type": "object", "title": "x"}', {}) == identity('{"title":"x","type":"object"}', {})


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "bb"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


def json_schemas() -> st.SearchStrategy[Any]:
    leaf = st.sampled_from(
        [
            True,
            {"type": "integer"},
            {"type": "number", "minimum": 0},
            {"type": "string", "maxLength": 1},
            {"type": ["string", "null"]},
            {"enum": ["a", 1, None]},
            {"const": "bb"},
            {"minimum": 1, "maxLength": 1},
        ]
    )

    def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        objects = st.fixed_dictionaries(
            {"properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2)},
            optional={
                "type": st.just("object"),
                "additionalProperties": inner | st.just(False),
                "required": st.lists(st.sampled_from("ab"), max_size=1),
                "minProperties": st.integers(0, 1),
            },
        )
        arrays = st.fixed_dictionaries({"items": inner}, optional={"type": st.just("array"), "maxItems": st.just(1)})
        sums = st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
        products = st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)})
        return objects | arrays | sums | products

    return st.recursive(leaf, grown, max_leaves=4)


@pytest.mark.slow
@settings(max_examples=example_count(300))
@given(json_schemas(), json_schemas(), st.lists(values, min_size=5, max_size=15))
def test_no_document_contradicts_what_is_proved(reader: Any, writer: Any, documents: list[Any]) -> None:
    if reasons(reader, writer):
        return
    before, now = (jsonschema.Draft202012Validator(one) for one in (writer, reader))
    assert [one for one in documents if before.is_valid(one) and not now.is_valid(one)] == []
