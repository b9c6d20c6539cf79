"""Where settings are in a job file."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.job.config.positions import Positions

TOML = '''\
# name = "not this"
name = "tolls"
query = """
SELECT [a] INTO o -- "quoted"
FROM i
"""
[event_ordering]  # with a comment
action = 'adjust'
"late tolerance" = 5
a.b.c = [1, "]", # }
  2]
[inputs."my input"]
type = "recorded"
options = { path = "x", deep = { er = 1 } }
[[list]]
x = 2026-01-01T00:00:00Z
'''


def shown(text: str, path: tuple[str, ...], *, is_json: bool = False) -> tuple[str, str] | None:
    """The text of a key and of its value."""
    place = Positions.of(text, is_json=is_json).place(path)
    return None if place is None else (text[place.key : place.key_end], text[place.value : place.value_end].strip())


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (("name",), ("name", '"tolls"')),
        (("event_ordering", "action"), ("action", "'adjust'")),
        (("event_ordering", "late tolerance"), ('"late tolerance"', "5")),
        (("event_ordering", "a", "b", "c"), ("a.b.c", '[1, "]", # }\n  2]')),
        (("inputs", "my input", "type"), ("type", '"recorded"')),
        (("inputs", "my input", "options", "deep", "er"), ("er", "1")),
        (("inputs", "my input", "nothing"), ('[inputs."my input"]', '[inputs."my input"]')),
        (("list", "x"), ("x", "2026-01-01T00:00:00Z")),
        (("none",), None),
    ],
)
def test_keys_of_toml_are_found(path: tuple[str, ...], found: tuple[str, str] | None) -> None:
    tomllib.loads(TOML)
    assert shown(TOML, path) == found


def test_a_value_of_several_lines_is_one_value() -> None:
    found = shown(TOML, ("query",))
    assert found is not None
    assert found[1].startswith('"""\nSELECT')
    assert found[1].endswith('FROM i\n"""')


def test_keys_of_json_are_found() -> None:
    text = '{"name": "a", "inputs": {"i": {"path": "x\\"}", "n": [1, {"deep": 2}]}},\n "last": null}'
    assert shown(text, ("inputs", "i", "path"), is_json=True) == ('"path"', '"x\\"}"')
    assert shown(text, ("inputs", "i", "n", "1", "deep"), is_json=True) == ('"deep"', "2")
    positions = Positions.of(text, is_json=True)
    place = positions.place(("last",))
    assert place is not None
    assert positions.line_and_column(place.key) == (2, 2)


def test_what_is_in_a_comment_is_in_no_value() -> None:
    positions = Positions.of(TOML, is_json=False)
    assert not positions.in_value(TOML.index("not this"))
    assert positions.in_value(TOML.index("FROM"))


KEYS = st.text("ab-_9", min_size=1, max_size=3)
VALUES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=5), lambda inner: st.dictionaries(KEYS, inner, max_size=3)
)


def paths_of(content: Any, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for key, value in content.items():
        found.append(((*above, key), value))
        if isinstance(value, dict):
            found += paths_of(value, (*above, key))
    return found


@given(content=st.dictionaries(KEYS, VALUES, max_size=4), indent=st.sampled_from([None, 2]))
def test_every_value_of_json_is_where_it_is_said_to_be(content: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(content, indent=indent)
    positions = Positions.of(text, is_json=True)
    for path, value in paths_of(content):
        place = positions.place(path)
        assert place is not None
        assert json.loads(text[place.value : place.value_end]) == value


@given(text=st.text('ab=[]{}",.\n#\'" ', max_size=40), is_json=st.booleans())
def test_no_text_is_too_odd(text: str, is_json: bool) -> None:
    Positions.of(text, is_json=is_json)
