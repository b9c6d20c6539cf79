"""A query over history in this process: what Spark would sort and send between places is sorted and sent here."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from tests.job.equality import EPOCH, drawn
from tests.job.logs import TravellingTasks
from tidegate.connectors.model.events import InputLog
from tidegate.engine import Program, ResultRows
from tidegate.engine.sharding.payloads import Sharding
from tidegate.job.runtime.step import Progress, Stepper
from tidegate.ordering import NO_TIME, TICKS_PER_SECOND, Policy
from tidegate.spark.queries.history import Bounds, parcels_of, timelines_of
from tidegate.spark.queries.parcels import ORDER, Parcel, parcels_in, rows_of
from tidegate.spark.queries.shard_side import ShardRun
from tidegate.spark.queries.shared_query import QueryOnShards, SharedProgram

Rows = dict[str, list[tuple[int, bytes]]]
"""By output, the results as lines of JSON with their times, sorted."""


def shuffled(parcels: Iterable[Parcel]) -> dict[int, list[Parcel]]:
    """Return the parcels of each shard as Spark would hand them over."""
    table = pa.Table.from_batches([*rows_of(parcels)])
    by_shard: dict[int, list[Parcel]] = {}
    for parcel in parcels_in(table.sort_by([(name, "ascending") for name in ORDER]).to_batches(max_chunksize=3)):
        by_shard.setdefault(parcel.shard, []).append(parcel)
    return by_shard


def rows_of_history(
    program: Program,
    policy: Policy,
    logs: Mapping[str, InputLog],
    *,
    shards: int = 2,
    parcel_events: int = 5,
    batch_events: int = 3,
    start: int = NO_TIME,
    until: int | None = None,
    seed: int = 0,
    watch: Callable[[ShardRun], None] = lambda run: None,
) -> Rows:
    """Return the results of all outputs.

    Args:
        watch: called with a shard after each of its turns.
    """
    own = program.sharded()
    bounds = Bounds.of(own, policy, None if start == NO_TIME else start, until)
    sharding = Sharding.of(own, shards, seed)
    query = QueryOnShards(SharedProgram.of(own), policy, sharding, bounds.start, bounds.until, parcel_events)
    parcels: list[Parcel] = []
    for read in timelines_of(logs, bounds, policy):
        parcels += parcels_in(read.found(query, parcels_of, batch_events))
    return rows_of_parcels(query, parcels, watch)


def rows_of_parcels(
    query: QueryOnShards, parcels: list[Parcel], watch: Callable[[ShardRun], None] = lambda run: None
) -> Rows:
    """Return the results of all outputs, given the parcels of all timelines."""
    found: list[ResultRows] = []
    for level in range(query.sharding.levels):
        following: list[Parcel] = []
        for shard, inbox in shuffled(parcels).items() if parcels else ():
            run = ShardRun(query, level, shard)
            for rows, more in run.run(inbox):
                found += rows
                following += more
                watch(run)
        parcels = following
    return lines_of(found)


def lines_of(found: Iterable[ResultRows]) -> Rows:
    """Return results as lines of JSON with their times, sorted."""
    lines: Rows = {}
    for rows in found:
        own = zip(rows.timestamps.tolist(), rows.to_json_lines().splitlines(), strict=True)
        lines.setdefault(rows.output, []).extend(own)
    return {output: sorted(of_output) for output, of_output in lines.items()}


def rows_of_job(program: Program, policy: Policy, logs: Mapping[str, InputLog], start: int = NO_TIME) -> Rows:
    """Return what a job gives in one step."""
    return lines_of(Stepper(program, policy, logs, TravellingTasks(program, policy), Progress(start)).step().rows)


def check_a_random_history(seed: int, *, merged: bool | None = None) -> None:
    """Whatever a job gives, the query over history gives, from any start to any end, however it is cut.

    Args:
        merged: whether partitions are merged into one timeline; None leaves that to the seed too.

    Raises:
        AssertionError: it does not; the message has the seed.
    """
    dice = random.Random(seed)
    program, logs, policy = drawn(dice)
    if merged is not None:
        policy = replace(policy, merged=merged)
    start = dice.choice([NO_TIME, EPOCH + dice.randint(-5, 60) * TICKS_PER_SECOND + dice.randint(-1, 1)])
    until = dice.choice([None, EPOCH + dice.randint(0, 90) * TICKS_PER_SECOND + dice.randint(-1, 1)])
    found = rows_of_history(
        program,
        policy,
        logs,
        shards=dice.randint(1, 4),
        parcel_events=dice.randint(1, 20),
        batch_events=dice.randint(1, 9),
        start=start,
        until=until,
        seed=dice.getrandbits(64),
    )
    whole = rows_of_job(program, policy, logs, start)
    if until is not None:
        whole = {output: [one for one in rows if one[0] < until] for output, rows in whole.items()}
    assert found == {output: rows for output, rows in whole.items() if rows}, f"TIDEGATE_EQUALITY_SEED={seed}"
