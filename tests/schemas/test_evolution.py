"""Compatibility levels: in which direction and with which versions a new one is compared."""

from __future__ import annotations

import json

import pytest

from tidegate.schemas import Compatibility, SchemaFormat, SchemaText, check_evolution


def schema(*fields: str) -> SchemaText:
    """A record; a field with a question mark has a default."""
    made = [
        {"name": name.rstrip("?"), "type": "int", **({"default": 0} if name.endswith("?") else {})} for name in fields
    ]
    return SchemaText(SchemaFormat.AVRO, json.dumps({"type": "record", "name": "R", "fields": made}))


# level -> is it allowed to add a field with a default, one without, to remove one with a default, one without
TABLE = {
    Compatibility.NONE: (True, True, True, True),
    Compatibility.BACKWARD: (True, False, True, True),
    Compatibility.FORWARD: (True, True, True, False),
    Compatibility.FULL: (True, False, True, False),
}


@pytest.mark.parametrize("level", TABLE)
def test_what_each_level_allows(level: Compatibility) -> None:

    new = [schema("a", "b?", "c?"), schema("a", "b?", "c"), schema("a"), schema("b?")]
    former = schema("a", "b?")

    assert tuple(not check_evolution(level, one, [former]) for one in new) == TABLE[level]


@pytest.mark.parametrize("name", ["BACKWARD", "FORWARD", "FULL"])
def test_only_a_transitive_level_looks_at_all_versions(name: str) -> None:
    old = SchemaText(SchemaFormat.AVRO, '"int"')
    latest = SchemaText(SchemaFormat.AVRO, '"string"')
    assert check_evolution(Compatibility(name), latest, [old, latest]) == []
    assert check_evolution(Compatibility(f"{name}_TRANSITIVE"), latest, [old, latest])


def test_another_format_is_another_schema() -> None:
    (reason,) = check_evolution(Compatibility.BACKWARD, SchemaText(SchemaFormat.JSON, "{}"), [schema("a")])
    assert reason == "FORMAT_CHANGED: AVRO became JSON"
    assert SchemaText(SchemaFormat.CUSTOM, "x").identity() != SchemaText(SchemaFormat.CUSTOM, "y").identity()
