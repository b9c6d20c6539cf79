"""Offsets of the source's streams, over a log in this process; no Spark is started."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import PartitionEnd
from tidegate.spark.source_reader import EventHubsStreamReader, stream_reader_for
from tidegate.spark.streaming.read_limits import ReadMaxRows

OPTIONS = {"connectionString": "Endpoint=sb://h/;SharedAccessKeyName=k;SharedAccessKey=x;EntityPath=e"}


class Log:
    """Two partitions, of which nothing is read."""

    def __init__(self, end: int, identity: str | None) -> None:
        self.end, self.identity = end, identity

    def ends(self) -> dict[str, PartitionEnd]:
        return {name: PartitionEnd(0, self.end, None, log_id=self.identity) for name in "01"}

    def range(self, partition: str, start: int, end: int) -> tuple[str, int, int]:
        return partition, start, end


def reader(end: int, identity: str | None = "first") -> EventHubsStreamReader:
    found = stream_reader_for(OPTIONS, ("body",))
    log: Any = Log(end, identity)
    found._log = log
    return found


def as_logged(offset: Any) -> Any:
    """Return an offset as Spark passes it on."""
    return json.loads(json.dumps(offset))


def ranges(found: EventHubsStreamReader, start: Any, end: Any) -> list[Any]:
    read: Any = found.partitions(start, end)
    return [one.hub_range for one in read]


def test_batches_follow_each_other_and_an_idle_stream_has_none() -> None:
    first = reader(30)
    begin = as_logged(first.initialOffset())
    end = as_logged(first.latestOffset(begin, ReadMaxRows(40)))
    assert ranges(first, begin, end) == [("0", 0, 20), ("1", 0, 20)]
    resumed = reader(30)
    last = as_logged(resumed.latestOffset(end, ReadMaxRows(40)))
    assert ranges(resumed, end, last) == [("0", 20, 30), ("1", 20, 30)]
    # Spark compares texts, and takes another one for new events.
    assert json.dumps(resumed.latestOffset(last)) == json.dumps(last)


@pytest.mark.parametrize("events", [10, 30, 1_000])
def test_a_hub_that_was_created_again_is_not_read_from_the_old_numbers(events: int) -> None:
    before = reader(30)
    begin, end = as_logged(before.initialOffset()), as_logged(before.latestOffset())
    told = (
        "read partition 0 up to event 30, and its log was replaced by another one, .* with another checkpointLocation"
    )
    with pytest.raises(InputError, match=told):
        reader(events, "second").latestOffset(end)
    # A batch that Spark repeats is fixed, so Spark asks for no end.
    with pytest.raises(InputError, match="its log was replaced"):
        reader(events, "second").partitions(begin, end)


def test_a_hub_without_identities_that_has_lost_its_end_is_not_read_on() -> None:
    end = as_logged(reader(30, None).latestOffset())
    assert end == {"0": 30, "1": 30}
    with pytest.raises(InputError, match=r"up to event 30, and its log ends before event 10: .* an older backup"):
        reader(10, None).latestOffset(end)


def test_an_offset_without_identities_goes_on() -> None:
    assert reader(50).latestOffset({"0": 30, "1": 30}) == {"0": 50, "1": 50, "logs": {"0": "first", "1": "first"}}
