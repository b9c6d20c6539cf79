"""Parcels as rows, and how far a parcel advances its timeline."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.job.equality import EPOCH
from tests.job.logs import prepared
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.engine.sharding.payloads import Sharding
from tidegate.job.runtime.emission import Reached
from tidegate.job.runtime.shards import ShardInput
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND, Policy
from tidegate.spark.queries.parcels import HEADER, Parcel, TimelineRun, parcels_in, rows_of, rows_of_task
from tidegate.spark.queries.shared_query import QueryOnShards, SharedProgram

SECOND = TICKS_PER_SECOND
TIMELINE = ("input", "0")


def parcels_of(count: int) -> list[Parcel]:
    program = prepared("SELECT a INTO result FROM input").sharded()
    query = QueryOnShards(SharedProgram.of(program), Policy(), Sharding.of(program, 2), parcel_events=2)
    log = RecordedLog(RecordedEvent("0", EPOCH + 10 * number * SECOND, b"{}") for number in range(count))
    end = log.ends()["0"]
    return [*TimelineRun(query, TIMELINE).parcels(log.range("0", 0, end.end).read_events(1), end)]


def test_a_parcel_reaches_the_arrival_of_the_next_event() -> None:
    header, first, second, last = (one for one in parcels_of(5) if one.shard == 0)
    assert (header.key, header.number) == (NO_TIME, HEADER)
    assert isinstance(header.content, dict)
    assert header.content[TIMELINE].arrival == EPOCH
    assert [one.key for one in (first, second, last)] == [EPOCH, EPOCH + 10 * SECOND, EPOCH + 30 * SECOND]
    deliveries = [one.content for one in (first, second, last)]
    reached = [one.reached[TIMELINE].arrival for one in deliveries if isinstance(one, ShardInput)]
    assert reached == [EPOCH + 20 * SECOND, EPOCH + 40 * SECOND, END_OF_TIME]


def test_every_shard_gets_a_parcel_even_without_rows() -> None:
    parcels = parcels_of(3)
    assert [(one.shard, one.number) for one in parcels] == [(s, n) for n in (HEADER, 0, 1) for s in (0, 1)]


def test_a_large_parcel_travels_in_pieces() -> None:
    parcels = [Parcel(0, 1, "a", number, ShardInput(0, {}, share=None, frames={})) for number in range(3)]
    text = "".join(random.Random(1).choices("0123456789abcdef", k=200_000))
    large = Parcel(0, 1, "a", 3, {(text, "0"): Reached(1, 2)})
    batches = [*rows_of([*parcels, large])]
    assert max(len(batch) for batch in batches) > 3
    found = [*parcels_in(batches)]
    assert [one.number for one in found] == [0, 1, 2, 3]
    assert found[3].content == large.content


def test_a_parcel_is_compressed() -> None:
    (rows,) = rows_of([Parcel(0, 1, "a", 3, {("x" * 100_000, "0"): Reached(1, 2)})])
    assert rows.nbytes < 5_000


@pytest.mark.parametrize("distinct", [3, 200, 100_000])
def test_texts_of_a_parcel_are_the_same_whether_many_are_alike_or_not(distinct: int) -> None:
    texts = pa.array([None if n % 7 == 0 else f"é-{n % distinct}" for n in range(3000)], pa.large_string()).slice(1)
    content: Any = {"few": pa.array(["a", None], pa.large_string()), "many": texts}
    rows = pa.Table.from_batches(list(rows_of([Parcel(0, 1, "s", 0, content)])))
    (back,) = parcels_in(rows.to_batches())
    assert back.content == content
    assert (rows.nbytes < 12_000) == (distinct < 1000)


def test_a_task_takes_memory_from_the_system_and_the_driver_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr("pyarrow.set_memory_pool", lambda pool: taken.append(pool.backend_name))
    monkeypatch.setattr("pyarrow.default_memory_pool", lambda: SimpleNamespace(backend_name="mimalloc"))
    assert list(rows_of_task(iter([]))) == []
    assert taken == []
    monkeypatch.setattr("tidegate.spark.queries.parcels.TaskContext.get", lambda: object())
    assert list(rows_of_task(iter([]))) == []
    assert taken == ["system"]
