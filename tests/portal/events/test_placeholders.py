"""Placeholders make values of their kind, and say what is wrong with them."""

from __future__ import annotations

import itertools
import json
import random
import re

import pytest

from tidegate.hub.errors import ArgumentError
from tidegate.portal.events.placeholders import PLACEHOLDERS, SAMPLES, PlaceholderText, Series

NOW_S = 1_700_000_000.25


def fill(text: str, count: int = 50) -> list[str]:
    series = Series(random.Random(7), lambda: NOW_S)
    template = PlaceholderText(text)
    made = []
    for _ in range(count):
        made.append(template.fill(series))
        series.index += 1
    return made


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("{{index 10}}", r"[1-5]\d"),
        ("{{now}}", re.escape("2023-11-14T22:13:20.250Z")),
        ("{{unix-ms}}", "1700000000250"),
        ("{{uuid}}", r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
        ("{{int 3 5}}", "[345]"),
        ("{{int -2 -1}}", "-[12]"),
        ("{{number 1 2 3}}", r"[12]\.\d{3}"),
        ("{{normal 100 1 0}}", r"(9|10)\d"),
        ("{{walk 20 0.1 1}}", r"(19|2\d)\.\d"),
        ('{{choice a "b c"}}', "a|b c"),
        ("{{bool 100}}", "true"),
        ("{{bool 0}}", "false"),
        ("{{string 4}}", "[a-z0-9]{4}"),
        ("plain { } {{ int 1 1 }}!", "plain { } 1!"),
    ],
)
def test_a_placeholder_makes_values_of_its_kind(text: str, pattern: str) -> None:
    assert not [value for value in fill(text) if not re.fullmatch(pattern, value)]


def test_values_in_turn_come_in_turn() -> None:
    assert fill("{{cycle a b c}}{{index}}", 4) == ["a0", "b1", "c2", "a3"]


def test_a_walk_goes_on_and_two_walks_go_their_own_ways() -> None:
    steps = [tuple(map(float, value.split())) for value in fill("{{walk 0 1 6}} {{walk 0 1 6}}")]
    assert all(abs(after[0] - before[0]) < 6 for before, after in itertools.pairwise(steps))
    assert len({first for first, _ in steps} & {second for _, second in steps}) == 0


def test_a_share_of_the_times_is_earlier() -> None:
    times = fill("{{now 50 30}}", 400)
    earlier = [text for text in times if text < "2023-11-14T22:13:20.250Z"]
    assert 120 < len(earlier) < 280
    assert min(earlier) >= "2023-11-14T22:12:50"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{nothing}}", "is no placeholder: there are index"),
        ("ab {{int x}}", "at character 3"),
        ("{{int 5 1}}", "least number first"),
        ("{{choice}}", "values to choose from"),
        ("{{}}", "no placeholder"),
        ("{{uuid 1}}", "takes at most 0"),
        ("{{string 0}}", "length"),
    ],
)
def test_a_wrong_placeholder_says_where_and_what(text: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(said)):
        PlaceholderText(text)


@pytest.mark.parametrize("name", PLACEHOLDERS)
def test_the_example_of_each_placeholder_works(name: str) -> None:
    assert name in PLACEHOLDERS[name].usage
    assert fill(PLACEHOLDERS[name].usage, 3)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_sample_is_what_its_name_says(sample: object) -> None:
    for body in fill(sample.body, 20):
        assert "{{" not in body
        assert sample.name == "text" or json.loads(body)
    fill(sample.partition_key)
