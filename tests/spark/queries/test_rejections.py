"""Events that a query over history cannot use: which they are, in any cut, and their place, reason and body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.job.equality import EPOCH
from tests.job.logs import prepared
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.engine.sharding.payloads import Sharding
from tidegate.ordering import TICKS_PER_SECOND, Action, Policy, format_time
from tidegate.spark.queries.parcels import TimelineRun
from tidegate.spark.queries.rejections import rejections_of
from tidegate.spark.queries.shared_query import QueryOnShards, SharedProgram

QUERY = "SELECT CAST(a AS bigint) AS a INTO result FROM input TIMESTAMP BY t"
# Seconds of arrival, and bodies; the tolerances are 5 s late, 1 s out of order and 300 s early.
GIVEN: list[tuple[int, bytes]] = [
    (0, b'{"t": 0, "a": 1}'),
    (1, b"{broken"),
    (2, b'{"a": 1}'),
    (3, b'{"t": 1000, "a": 1}'),
    (4, b'{"t": 4, "a": "x"}'),
    (60, b'{"t": 60, "a": 1}'),
    (61, b'{"t": 30, "a": 1}'),
    (62, b'{"t": 58, "a": 1}'),
    *[(63 + n, b"{broken") for n in range(12)],
]


def body(given: bytes) -> bytes:
    try:
        content: dict[str, Any] = json.loads(given)
    except ValueError:
        return given
    if "t" in content:
        content["t"] = format_time(EPOCH + content["t"] * TICKS_PER_SECOND)
    return json.dumps(content).encode()


def rejected(action: Action, parcel_events: int, batch_events: int) -> list[dict[str, Any]]:
    program = prepared(QUERY).sharded()
    policy = Policy.seconds(late=5, out_of_order=1, action=action)
    query = QueryOnShards(SharedProgram.of(program), policy, Sharding.of(program, 1), parcel_events=parcel_events)
    log = RecordedLog(RecordedEvent("0", EPOCH + at * TICKS_PER_SECOND, body(given)) for at, given in GIVEN)
    end = log.ends()["0"]
    runs = log.range("0", 0, end.end).read_events(batch_events)
    batches = rejections_of(TimelineRun(query, ("input", "0")), runs, end)
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["sequenceNumber"])


@pytest.mark.parametrize(("parcel_events", "batch_events"), [(1000, 1000), (2, 1), (5, 3)])
def test_each_rejected_event_is_there_once_with_its_reason(parcel_events: int, batch_events: int) -> None:
    found = rejected(Action.DROP, parcel_events, batch_events)
    reasons = [(row["sequenceNumber"], row["reason"]) for row in found]
    assert reasons[:6] == [
        (1, "InputDeserializerError.InvalidData"),
        (2, "InvalidInputTimeStamp"),
        (3, "EarlyInputEvent"),
        (4, "RuntimeError"),
        (6, "LateInputEvent"),
        (7, "OutOfOrderEvent"),
    ]
    assert [number for number, _ in reasons[6:]] == list(range(8, 20))


def test_an_adjusted_event_is_used() -> None:
    numbers = [row["sequenceNumber"] for row in rejected(Action.ADJUST, 100, 100)]
    assert numbers[:5] == [1, 2, 3, 4, 8]


def test_the_place_and_the_whole_body_are_given() -> None:
    first = rejected(Action.DROP, 3, 2)[0]
    assert (first["input"], first["partition"], first["body"]) == ("input", "0", b"{broken")
    assert first["enqueuedTime"].timestamp() * TICKS_PER_SECOND == EPOCH + TICKS_PER_SECOND
    assert first["message"]
