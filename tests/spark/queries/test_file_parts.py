"""Files in parts: every row is in one part and in its place, and the results are those of whole timelines."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC as UTC_ZONE
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.job.logs import prepared
from tests.profiles import scaled
from tests.spark.queries.history_here import Rows, lines_of, rows_of_history, shuffled
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import InputLog
from tidegate.engine import Format
from tidegate.engine.sharding.payloads import Sharding
from tidegate.ordering import Action, Carry, Policy
from tidegate.spark.queries.file_parts import PartStage, SummaryStage, chunks_of, own_policy, parts_of, stages_for
from tidegate.spark.queries.frame_events import RowLayout
from tidegate.spark.queries.frame_runs import sorted_by_partition
from tidegate.spark.queries.parcels import Parcel, parcels_in
from tidegate.spark.queries.parquet_files import FileColumn, ParquetFiles, RowGroup, footers_of, rows_of_group
from tidegate.spark.queries.sampling import HeldLog
from tidegate.spark.queries.shard_side import ShardRun
from tidegate.spark.queries.shared_query import QueryOnShards, SharedProgram

UTC = pa.timestamp("us", "UTC")
START = 1_767_225_600_000_000
TYPES = {
    "partition": pa.int32(),
    "arrival": UTC,
    "number": pa.int64(),
    "at": UTC,
    "device": pa.string(),
    "speed": pa.float64(),
}
FIELDS = ("at", "device", "speed")
CONTENT = ("arrival", "field0", "field1", "field2")
NUMBERED = RowLayout("i", FIELDS, True, (), Format("parquet"), (), ordered=True, order=("number", *CONTENT))
BY_ARRIVAL = RowLayout("i", FIELDS, False, (), Format("parquet"), (), order=CONTENT)
QUERIES = (
    "SELECT System.Timestamp() AS t, device, COUNT(*) AS n, AVG(speed) AS mean INTO o FROM i TIMESTAMP BY at "
    "GROUP BY device, TumblingWindow(second, 10)",
    "SELECT device, speed - LAG(speed) OVER (PARTITION BY device LIMIT DURATION(minute, 1)) AS rise, "
    "System.Timestamp() AS t INTO o FROM i TIMESTAMP BY at",
    "SELECT device, COUNT(*) AS n INTO o FROM i GROUP BY device, SlidingWindow(second, 3)",
)


def table_of(dice: random.Random, count: int, *, infinite: bool = False) -> pa.Table:
    """Events of three partitions in the order in which they arrived, with late ones, and some that arrive together."""
    arrivals = np.cumsum([dice.choice([0, 100_000, 700_000]) for _ in range(count)]) + START
    late = [dice.choice([0, 0, 500_000, 4_000_000, 60_000_000, -2_000_000]) for _ in range(count)]
    partitions = [dice.randrange(3) for _ in range(count)]
    numbers = [partitions[:place].count(partition) for place, partition in enumerate(partitions)]
    speeds: list[float | None] = [dice.choice([None, 1.5, 2.0, float("nan"), 80.25]) for _ in range(count)]
    if infinite:
        speeds[dice.randrange(count)] = float("inf")
    return pa.table(
        {
            "partition": pa.array(partitions, TYPES["partition"]),
            "arrival": pa.array(arrivals, UTC),
            "number": pa.array(numbers, TYPES["number"]),
            "at": pa.array([None if dice.random() < 0.05 else at for at in (arrivals - late).tolist()], UTC),
            "device": pa.array([dice.choice([None, "a", "b"]) for _ in range(count)]),
            "speed": pa.array(speeds, pa.float64()),
        }
    )


def in_order(dice: random.Random, table: pa.Table) -> Iterator[pa.Table]:
    """Consecutive files."""
    cuts = sorted(dice.sample(range(1, len(table)), 5))
    for first, stop in zip([0, *cuts], [*cuts, len(table)], strict=True):
        yield table.slice(first, stop - first)


def overlapping(dice: random.Random, table: pa.Table) -> Iterator[pa.Table]:
    """Rows near each other are in files near each other, and in no order there."""
    places = np.argsort(np.arange(len(table)) + np.array([dice.uniform(0, 15) for _ in range(len(table))]))
    yield from in_order(dice, table.take(pa.array(places)))


def by_partition(dice: random.Random, table: pa.Table) -> Iterator[pa.Table]:
    """Files of one partition each."""
    for partition in range(3):
        own = table.filter(pc.equal(table.column("partition"), partition))
        yield from (own.slice(first, 20) for first in range(0, len(own), 20))


def shuffled_rows(dice: random.Random, table: pa.Table) -> Iterator[pa.Table]:
    """Rows anywhere."""
    yield from in_order(dice, table.take(pa.array(dice.sample(range(len(table)), len(table)))))


def written(folder: Path, tables: Iterator[pa.Table], group_rows: int, layout: RowLayout) -> ParquetFiles:
    folder.mkdir(parents=True)
    paths = []
    for number, table in enumerate(tables):
        paths.append(str(folder / f"{number}.parquet"))
        pq.write_table(table, paths[-1], row_group_size=group_rows)
    names = {"partition": "partition", "arrival": "arrival", **({"number": "number"} if layout.numbered else {})}
    names |= {f"field{place}": name for place, name in enumerate(FIELDS)}
    return footers_of(paths, tuple(FileColumn(alias, name, TYPES[name]) for alias, name in names.items()))


def results_of(summaries: SummaryStage, parts: PartStage) -> Rows:
    """The results, in this process."""
    numbers = pa.record_batch({"id": pa.array(range(len(parts.parts)), pa.int64())})
    sent = pa.Table.from_batches(summaries(iter([numbers])))
    parcels = list(parcels_in(parts(iter(sent.to_batches(max_chunksize=2)))))
    return results_in(parts, parcels)


def results_without_exchange(summaries: SummaryStage, parts: PartStage) -> Rows:
    """The same, with tasks that sum up the other parts themselves."""
    numbers = pa.record_batch({"id": pa.array(range(len(parts.parts)), pa.int64())})
    return results_in(parts, list(parcels_in(replace(parts, summaries=summaries)(iter([numbers])))))


def results_in(parts: PartStage, parcels: list[Parcel]) -> Rows:
    found = []
    for inbox in shuffled(parcels).values():
        for rows, _ in ShardRun(parts.query, 0, inbox[0].shard).run(inbox):
            found += rows
    return lines_of(found)


def expected(query: str, policy: Policy, table: pa.Table, layout: RowLayout) -> Rows:
    names = ["partition", "arrival", *(["number"] if layout.numbered else []), *FIELDS]
    renamed = [*names[: -len(FIELDS)], *(f"field{place}" for place in range(len(FIELDS)))]
    rows = table.select(names).rename_columns(renamed)
    partitions = {name: layout.events(name, own, 0) for name, own, _ in sorted_by_partition(rows, layout)}
    log: InputLog = HeldLog(partitions)
    return rows_of_history(prepared(query), policy, {"i": log}, parcel_events=1000)


@pytest.mark.parametrize("shape", [in_order, overlapping, by_partition, shuffled_rows])
def test_parts_give_what_whole_timelines_give(
    tmp_path: Path, shape: Callable[[random.Random, pa.Table], Iterator[pa.Table]]
) -> None:
    for seed in range(scaled(3)):
        dice = random.Random(seed)
        table = table_of(dice, 150, infinite=dice.random() < 0.5)
        layout = dice.choice([NUMBERED, BY_ARRIVAL])
        query = dice.choice(QUERIES)
        policy = Policy.seconds(
            late=dice.choice([3, 20]), out_of_order=dice.choice([0, 2]), action=dice.choice(list(Action))
        )
        files = written(
            tmp_path / str(seed),
            shape(dice, table),
            dice.choice([30, 1000] if shape is shuffled_rows else [7, 30, 1000]),
            layout,
        )
        program = prepared(query).sharded()
        sharding = Sharding.of(program, 2)
        on_shards = QueryOnShards(SharedProgram.of(program), policy, sharding, parcel_events=dice.choice([5, 1000]))
        places = stages_for(layout, files, on_shards, "i", dice.randint(1, 5))
        assert places is not None
        wanted = expected(query, policy, table, layout)
        assert results_of(*places) == wanted, f"seed {seed}"
        assert results_without_exchange(*places) == wanted, f"seed {seed}"


def test_texts_of_which_few_are_distinct_stay_numbers_of_a_dictionary_until_they_are_grouped(
    tmp_path: Path,
) -> None:
    dice = random.Random(1)
    names = [[None, "a", "B", "é"], ["b", "B"], ["c", "a"]]
    tables = []
    for number, some in enumerate(names):
        table = table_of(dice, 200)
        shift = pc.add(table.column("arrival").cast(pa.int64()), number * 10**9).cast(UTC)
        table = table.set_column(1, "arrival", shift)
        table = table.set_column(2, "number", pc.add(table.column("number"), number * 1000))
        tables.append(table.set_column(4, "device", pa.array([dice.choice(some) for _ in range(200)])))
    files = written(tmp_path / "files", iter(tables), 1000, NUMBERED)
    assert [column.name for column in files.columns if column.repetitive] == ["device"]
    program = prepared(QUERIES[0]).sharded()
    policy = Policy.seconds(late=20, out_of_order=2)
    on_shards = QueryOnShards(SharedProgram.of(program), policy, Sharding.of(program, 2))
    as_texts = replace(files, columns=tuple(replace(column, repetitive=False) for column in files.columns))
    found = []
    for given in (files, as_texts):
        places = stages_for(NUMBERED, given, on_shards, "i", 2)
        assert places is not None
        found.append(results_of(*places))
    assert found[0] == found[1]
    (column,) = [column for column in files.columns if column.name == "device"]
    assert pa.types.is_dictionary(rows_of_group(files.groups[0], [column]).column(column.alias).type)
    # The same column may be the partition, or have to be compared as text.
    other = FileColumn("body", "device", pa.string())
    assert rows_of_group(files.groups[0], [column, other]).column("body").type == pa.string()


def test_every_row_is_in_one_part_and_after_those_of_earlier_parts(tmp_path: Path) -> None:
    for number, shape in enumerate((in_order, overlapping, by_partition)):
        dice = random.Random(number)
        table = table_of(dice, 200)
        files = written(tmp_path / str(number), shape(dice, table), 11, NUMBERED)
        parts = parts_of(files.groups, 4)
        assert parts is not None
        assert len(parts) == 4
        seen: dict[str, list[int]] = {}
        for part in parts:
            for chunk in chunks_of(part, files.columns, NUMBERED):
                for partition, _, keys in sorted_by_partition(chunk, NUMBERED):
                    seen.setdefault(partition, []).extend(keys.tolist())
        assert {partition: list(range(len(keys))) for partition, keys in seen.items()} == seen
        assert sum(map(len, seen.values())) == 200


def group(path: str, keys: tuple[int, int] | None, rows: int = 1_000_000, **given: Any) -> RowGroup:
    return RowGroup(path, 0, rows, 1000, 1, rows, 1 << 20, keys, **given)


def test_rows_that_are_not_in_order_are_left_to_an_exchange() -> None:
    apart = [group(str(place), (place * 100, place * 100 + 99)) for place in range(8)]
    parts = parts_of(apart, 2)
    assert parts is not None
    assert [[share.group.path for share in part] for part in parts] == [["0", "1", "2", "3"], ["4", "5", "6", "7"]]
    assert parts_of([*apart, group("8", None)], 2) is None
    assert parts_of([group(str(place), (0, 1000)) for place in range(8)], 2) is None
    large = [group("0", (0, 9), 100_000_000), group("1", (10, 19), 100_000_000)]
    assert parts_of(large, 2) is None
    # Two partitions of which each counts its own events.
    counted = [
        group(f"{name}/{place}", (place * 10, place * 10 + 9), partition=name) for name in (0, 1) for place in range(6)
    ]
    parts = parts_of(counted, 3)
    assert parts is not None
    assert sum(map(len, parts)) == len(counted)


def test_keys_that_meet_stay_together_as_their_content_decides() -> None:
    meeting = [group(str(place), (place * 10, place * 10 + 10)) for place in range(8)]
    parts = parts_of(meeting, 2)
    assert parts is not None
    ((last,), again) = ([share for share in parts[0] if share.upto is not None], parts[1][0])
    assert (last.group.path, last.upto, again.group.path, again.after) == ("3", 39, "3", 39)


def test_a_footer_that_is_wrong_is_named(tmp_path: Path) -> None:
    files = written(tmp_path / "files", iter([table_of(random.Random(1), 30)]), 1000, NUMBERED)
    (right,) = files.groups
    assert right.keys is not None
    wrong = RowGroup(right.path, 0, 30, 1000, 1, 30, 0, (right.keys[0] + 1, right.keys[1]))
    parts = parts_of([wrong], 1)
    assert parts is not None
    with pytest.raises(InputError, match="statistics in the footer are wrong"):
        list(chunks_of(parts[0], files.columns, NUMBERED))


@pytest.mark.parametrize("shape", [in_order, overlapping, by_partition])
def test_parts_are_summed_up_by_their_ends_where_these_decide(
    tmp_path: Path, shape: Callable[[random.Random, pa.Table], Iterator[pa.Table]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def reads(group: RowGroup, columns: Sequence[FileColumn]) -> pa.Table:
        read.append(group.rows)
        return rows_of_group(group, columns)

    monkeypatch.setattr("tidegate.spark.queries.file_parts.rows_of_group", reads)
    fewer = 0
    for seed in range(scaled(10)):
        dice = random.Random(seed)
        layout = replace(NUMBERED, fields=FIELDS[:1])
        table = table_of(dice, 400)
        # A time far in the future that an event of one partition alone has is not known from the ends.
        if dice.random() < 0.3:
            times = table.column("at").to_pylist()
            times[dice.randrange(300)] = datetime(9000, 1, 1, tzinfo=UTC_ZONE)
            table = table.set_column(3, "at", pa.array(times, UTC))
        files = written(tmp_path / str(seed), shape(dice, table), 11, NUMBERED)
        policy = Policy.seconds(late=dice.choice([3, 20]), out_of_order=2, action=dice.choice(list(Action)))
        if dice.random() < 0.5:
            policy = replace(policy, early_ticks=None)
        program = prepared(dice.choice(QUERIES)).sharded()
        query = QueryOnShards(SharedProgram.of(program), policy, Sharding.of(program, 1))
        places = stages_for(layout, replace(files, columns=files.columns[:4]), query, "i", dice.randint(2, 4))
        assert places is not None
        summaries, parts = places
        assert summaries.times.bounded is not None
        whole = replace(summaries, times=replace(summaries.times, bounded=None))
        numbers = pa.record_batch({"id": pa.array(range(len(parts.parts)), pa.int64())})
        by_ends, rows_at_ends = list(summaries(iter([numbers]))), sum(read)
        read.clear()
        by_all, rows = list(whole(iter([numbers]))), sum(read)
        read.clear()
        fewer += rows_at_ends < rows
        own = own_policy(program, "i", policy)
        carries: dict[str, list[Carry]] = {}
        firsts = {}
        for one, batches in (("ends", by_ends), ("all", by_all)):
            found = [pickle.loads(batch.column("blob")[0].as_buffer()) for batch in batches]
            before = dict.fromkeys(("0", "1", "2"), Carry())
            carries[one] = []
            for of_part in found[:-1]:
                before |= {name: timeline.scan.after(before[name], own) for name, timeline in of_part.items()}
                carries[one] += before.values()
            firsts[one] = [{name: each.steps.first for name, each in of_part.items()} for of_part in found[1:]]
        assert carries["ends"] == carries["all"], f"seed {seed}"
        assert firsts["ends"] == firsts["all"], f"seed {seed}"
    assert fewer > scaled(10) // 3
