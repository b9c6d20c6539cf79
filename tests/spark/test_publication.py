"""Batches of rows are the bytes that encoding each event alone gives; no hub is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.amqp import split_batch
from tidegate.client import BusyError, ClientError, ConnectionLostError, ConnectionString
from tidegate.client.event import decode
from tidegate.client.hub_client import HubPartition
from tidegate.client.producer import PRODUCER_SEQUENCE_NUMBER, EventTemplate, ProducerProgress
from tidegate.connectors.model.errors import OutputError
from tidegate.hub.placement import partition_for_key
from tidegate.spark import publication
from tidegate.spark.publication import BatchOrigin, TaskPublication
from tidegate.spark.sink_rows import SinkRows

CONNECTION = ConnectionString.parse("Endpoint=sb://h/;SharedAccessKeyName=k;SharedAccessKey=x;EntityPath=e")
PARTITIONS = ("0", "1", "2")


class Hub:
    """A producer of a hub that keeps batches, and breaks connections."""

    def __init__(self, room: int = 100_000, *, idempotent: bool = True, breaks: Sequence[bool] = ()) -> None:
        self.batches: dict[str, list[bytes]] = {name: [] for name in PARTITIONS}
        self.stored = dict.fromkeys(PARTITIONS, 0)
        self.closed = False
        self._room = room
        self._idempotent = idempotent
        self._breaks = [*breaks]

    def __call__(self, connection: object) -> Hub:
        self.closed = False
        return self

    def partition_ids(self) -> Sequence[str]:
        return PARTITIONS

    def partitions_properties(self, names: Sequence[str]) -> dict[str, HubPartition]:
        bound = 0 if self._idempotent else None
        return dict.fromkeys(names, HubPartition(0, 0, bound, None, None))

    def open_partition(self, name: str) -> None:
        pass

    def open_partition_for_batch(self, name: str, producer_id: int, epoch: int) -> ProducerProgress:
        return ProducerProgress(producer_id, epoch, self.stored[name])

    def template(self, name: str, key: str | None, properties: Mapping[str, Any] | None) -> EventTemplate:
        annotations = {} if key is None else {"x-opt-partition-key": key}
        return EventTemplate.of(annotations, properties, PRODUCER_SEQUENCE_NUMBER if self._idempotent else None)

    def room(self, name: str) -> int:
        return self._room

    def batch_room(self, name: str) -> int:
        return self._room + 8

    def publish_batches(self, batches: Mapping[str, Sequence[bytes]]) -> None:
        """Store them; or some of them, if the connection breaks."""
        broken = bool(self._breaks) and self._breaks.pop(0)
        for name, some in batches.items():
            for batch in some[: len(some) // 2] if broken else some:
                assert len(batch) <= self._room + 8
                self.batches[name].append(batch)
                self.stored[name] += len(split_batch(batch))
        if broken:
            raise ConnectionLostError("it broke")

    def close(self) -> None:
        self.closed = True

    def events(self, name: str) -> list[tuple[bytes, str | None, dict[str, str], str | None]]:
        found = []
        for event in (event for batch in self.batches[name] for event in split_batch(batch)):
            body, details = decode(event)
            number = details.system_properties.get(PRODUCER_SEQUENCE_NUMBER)
            found.append((body, details.partition_key, details.properties, number))
        return found


def rows(given: Sequence[dict[str, Any]], columns: Sequence[str]) -> SinkRows:
    def column(name: str, type_: pa.DataType) -> pa.Array | None:
        return pa.array([row[name] for row in given], type_) if name in columns else None

    properties = [row["properties"] for row in given] if "properties" in columns else None
    return SinkRows(
        column("body", pa.binary()), column("key", pa.string()), column("partition", pa.string()), properties
    )


def publish(monkeypatch: pytest.MonkeyPatch, hub: Hub, parts: Sequence[SinkRows], task: int = 1) -> int:
    monkeypatch.setattr(publication, "Producer", hub)
    monkeypatch.setattr(publication, "_FIRST_PAUSE_S", 0.0)
    one = TaskPublication(CONNECTION, "$Default", BatchOrigin("series", 3), task)
    for part in parts:
        one.add(part)
    return one.finish()


BODIES = st.binary(max_size=4) | st.sampled_from([b"x" * 255, b"y" * 256, b"z" * 400])
PROPERTIES = st.none() | st.sampled_from([{}, {"a": "1"}, {"a": 1}, {"a": True, "none": None}, [("b", b"x")]])
ROWS = st.fixed_dictionaries(
    {
        "body": BODIES,
        "key": st.none() | st.sampled_from(["a", "b", "", "long" * 30]),
        "partition": st.none() | st.sampled_from(PARTITIONS),
        "properties": PROPERTIES,
    }
)
COLUMNS = st.sampled_from(
    [(), ("key",), ("partition",), ("properties",), ("key", "properties"), ("partition", "properties")]
)


@given(
    st.lists(st.lists(ROWS, max_size=30), max_size=4),
    COLUMNS,
    st.integers(1, 3_000),
    st.lists(st.booleans(), max_size=3),
    st.booleans(),
)
def test_each_row_is_an_event_in_its_place(
    parts: list[Any], columns: tuple[str, ...], send_bytes: int, breaks: list[bool], idempotent: bool
) -> None:
    columns = ("body", *columns)
    hub = Hub(700, idempotent=idempotent, breaks=breaks if idempotent else ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publication, "_SEND_BYTES", send_bytes)
        assert publish(patch, hub, [rows(part, columns) for part in parts]) == sum(map(len, parts))
    expected: dict[str, list[Any]] = {name: [] for name in PARTITIONS}
    anywhere = 1  # the number of the task
    for row in (row for part in parts for row in part):
        key = row["key"] if "key" in columns else None
        name = row["partition"] if "partition" in columns else None
        if key is not None:
            name = PARTITIONS[partition_for_key(key, 3)]
        if name is None:
            name, anywhere = PARTITIONS[anywhere % 3], anywhere + 1
        given = dict(row["properties"] or ()) if "properties" in columns else {}
        texts = {"1": "1", "True": "true", "b'x'": "x"}
        properties = {one: texts[str(value)] for one, value in given.items() if value is not None}
        number = str(len(expected[name]) + 1) if idempotent else None
        expected[name].append((row["body"], key, properties, number))
    assert {name: hub.events(name) for name in PARTITIONS} == expected


def test_batches_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(1_000)
    parts = [rows([{"body": b"x" * 90, "partition": "0"}] * 10, ("body", "partition"))] * 10
    publish(monkeypatch, hub, parts)
    sizes = [len(batch) for batch in hub.batches["0"]]
    event = sizes[0] // len(split_batch(hub.batches["0"][0]))
    assert all(size + event > 1_008 for size in sizes[:-1])


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"body": None}, "row 13 of task 1: body is NULL"),
        ({"partition": "9"}, "row 13 of task 1: event hub e has no partition '9'; there are 0, 1, 2"),
        ({"partition": "1", "key": "k"}, r"row 13 of task 1: it has both a partition \(1\) and a partitionKey"),
        ({"body": b"x" * 2_000}, "row 13 of task 1: an event of 2,.* bytes is larger than the 1,000 bytes"),
    ],
)
def test_the_first_row_that_is_no_event_is_named(
    row: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = {"body": b"x", "key": None, "partition": None}
    parts = [[fine] * 10, [fine, fine, fine, {**fine, **row}, fine, {**fine, **row}]]
    columns = ("body", "key", "partition")
    with pytest.raises(OutputError, match=told):
        publish(monkeypatch, Hub(1_000), [rows(part, columns) for part in parts])


class BusyHub(Hub):
    """A hub that is throttled when it is first asked for its partitions."""

    def __init__(self) -> None:
        super().__init__()
        self._is_busy = True

    def partitions_properties(self, names: Sequence[str]) -> dict[str, HubPartition]:
        if self._is_busy:
            self._is_busy = False
            raise BusyError("throttled")
        return super().partitions_properties(names)


def test_a_throttled_hub_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = BusyHub()
    publish(monkeypatch, hub, [rows([{"body": b"x"}], ("body",))])
    assert sum(hub.stored.values()) == 1


class SendOnlyHub(Hub):
    """A hub that has events of an interrupted attempt, for a key without Listen."""

    def partition_properties(self, name: str) -> HubPartition:
        return HubPartition(0, self.stored[name], 0, None, None)

    def read(self, *arguments: object) -> object:
        raise ClientError("Listen needs a token that covers it")


def test_a_repetition_without_listen_says_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = SendOnlyHub()
    hub.stored["1"] = 2
    told = (
        r"Listen needs a token that covers it\. An interrupted attempt of this batch has stored 2 events in partition "
        r"1, which are read back .* needs Listen beside Send, and the consumer group \$Default"
    )
    with pytest.raises(OutputError, match=told):
        publish(monkeypatch, hub, [rows([{"body": b"x"}] * 3, ("body",))])
