"""Data errors on a page: events that can be looked up have a link."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

from tidegate.hub.event_hub import EventHub
from tidegate.portal.jobs.descriptions import error_rows
from tidegate.service import ErrorGroup

HUB = cast(EventHub, SimpleNamespace(name="the hub"))


def shown(example: dict[str, Any], hub: EventHub | None = HUB) -> dict[str, Any]:
    group = ErrorGroup("A", "tolls", "it is", 3, "10:00", "10:02", deque([example]))
    (row,) = error_rows([group], lambda name: hub if name == "tolls" else None)
    assert (row["kind"], row["source"], row["message"], row["count"]) == ("A", "tolls", "it is", 3)
    assert (row["first"], row["last"]) == ("10:00", "10:02")
    (found,) = row["examples"]
    return cast(dict[str, Any], found)


def test_an_event_of_this_namespace_has_a_link_into_the_explorer() -> None:
    event = {"partition": "1", "sequenceNumber": 7, "body": "{}"}
    assert shown(event) == {
        "place": "partition 1, event 7",
        "text": "{}",
        "link": "/eventhubs/the%20hub/explorer?partition=1&from=sequence&value=7",
    }
    assert shown(event, None)["link"] is None


def test_a_result_and_a_row_of_several_events_have_none() -> None:
    assert shown({"row": 5, "result": "{}"}) == {"place": "row 5", "text": "{}", "link": None}
    assert shown({"timestamp": "10:00", "message": "why"}) == {"place": "at 10:00", "text": "why", "link": None}
