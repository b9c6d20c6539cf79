"""What a page asks to send becomes AMQP messages, each with its own values."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.amqp.messages import parse_message
from tidegate.hub.errors import ArgumentError
from tidegate.portal.events.sending import Composition, repeat_of


def properties(*entries: tuple[str, str, str]) -> list[dict[str, str]]:
    return [{"name": name, "type": kind, "value": value} for name, kind, value in entries]


def test_an_event_has_its_body_key_content_type_and_properties() -> None:
    site = ("site", "text", "north {{index}}")
    given = properties(site, ("level", "number", "{{int 3 3}}"), ("ok", "boolean", "true"))
    request = {"body": '{"n": {{index}}}', "partitionKey": "k{{index}}", "contentType": "application/json"}
    made = Composition({**request, "properties": given})
    made.next()
    message = parse_message(made.next().encoded)
    assert message.body == [b'{"n": 1}']
    assert message.message_annotations == {"x-opt-partition-key": "k1"}
    assert message.properties.content_type == "application/json"
    assert message.application_properties == {"site": "north 1", "level": 3, "ok": True}


def test_nothing_that_was_left_out_is_sent() -> None:
    message = parse_message(Composition({"body": "x"}).next().encoded)
    assert (message.message_annotations, message.properties, message.application_properties) == (None, None, None)


def test_a_preview_shows_what_is_sent() -> None:
    request = {"body": "{{uuid}} {{now}}", "partitionKey": "{{int 1 9}}"}
    shown = Composition(request, seed=5).preview(3)
    again = Composition(request, seed=5).preview(3)
    assert [one["partitionKey"] for one in shown] == [one["partitionKey"] for one in again]
    assert len({one["body"] for one in shown}) == 3


def test_a_batch_has_one_key_and_fits_a_publication() -> None:
    batches = list(Composition({"body": "{{string 2000}}", "partitionKey": "{{cycle a b}}"}).batches(700))
    assert sum(len(events) for _, events in batches) == 700
    assert {key for key, _ in batches} == {"a", "b"}
    assert max(sum(map(len, events)) for _, events in batches) <= 200_000


def test_events_of_a_key_keep_their_order() -> None:
    batches = Composition({"body": "{{index}}", "partitionKey": "{{cycle a b c}}"}).batches(4000)
    found: dict[Any, list[int]] = {}
    for key, events in batches:
        found.setdefault(key, []).extend(int(parse_message(event).body[0]) for event in events)
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sum(map(len, found.values())) == 4000


@pytest.mark.parametrize(
    ("request_body", "said"),
    [
        ([], "expected a JSON object"),
        ({"body": 5}, "body: expected a text"),
        ({"body": "x", "partition": "0", "partitionKey": "k"}, "one of them, not both"),
        ({"body": "x", "properties": {}}, "expected a list"),
        ({"body": "x", "properties": properties(("", "text", "v"))}, "needs a name"),
        ({"body": "x", "properties": properties(("p", "date", "v"))}, "text, number or boolean"),
        ({"body": "x", "properties": properties(("p", "number", "five"))}, "'five' is not a number"),
        ({"body": "x", "properties": properties(("p", "number", "true"))}, "is not a number"),
        ({"body": "x", "properties": properties(("p", "boolean", "1"))}, "is not a boolean"),
        ({"body": "x", "properties": properties(("p", "number", "1e999"))}, "is not a number"),
        ({"body": "x", "properties": properties(("p", "number", str(1 << 70)))}, "no AMQP encoding"),
    ],
)
def test_a_mistake_says_what_was_expected(request_body: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Composition(request_body).next()


@pytest.mark.parametrize("count", [0, 100_001, "x", True, 1.5])
def test_how_many_events_is_a_whole_number_within_limits(count: object) -> None:
    with pytest.raises(ArgumentError, match="repeat"):
        repeat_of({"repeat": count})
    assert repeat_of({"repeat": "20"}) == 20
    assert repeat_of({}) == 1
