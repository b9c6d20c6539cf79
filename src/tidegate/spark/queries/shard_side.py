"""The shards of a query over history: parcels in, finished rows or parcels for the next level out.

A shard takes its parcels in the order of their keys, some at a time: a *turn* has at most one parcel of each timeline.
It is a step of a job, with the same `run_shard`: how a log is cut into steps changes no row, so neither does how
history is cut into parcels and turns. Every shard of a level gets a parcel from every sender, so all make the same
turns, and a shard of the next level can put together what all of them sent in a turn.

A shard emits as it goes. It holds what the watermark has not passed, as in a live job, and not the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from tidegate.engine import EmissionRange, ResultRows
from tidegate.job.runtime.emission import Reached, StepOrder, Timeline
from tidegate.job.runtime.shards import ShardInput, new_shard, run_shard
from tidegate.spark.queries.parcels import HEADER, Parcel, parcels_in, rows_of, rows_of_task
from tidegate.spark.queries.result_schema import ResultSchema
from tidegate.spark.queries.shared_query import QueryOnShards

_BEFORE_ALL = -1


class ShardRun:
    """One shard of one level, from its first parcel to its last."""

    def __init__(self, query: QueryOnShards, level: int, shard: int) -> None:
        self._query = query
        self._place = level, shard
        self._program = query.program.value()
        self._keyed = new_shard(self._program, query.policy, query.sharding, level)
        self._reached: dict[Timeline, Reached] = {}
        self._released = query.start
        self._ahead: dict[str, int] = {}
        self._turns = 0

    @property
    def state(self) -> object:
        """What the shard holds between turns."""
        return self._keyed.state

    def run(self, parcels: Iterable[Parcel]) -> Iterator[tuple[list[ResultRows], list[Parcel]]]:
        """Yield what each turn emits, and the parcels for the next level.

        Args:
            parcels: those of this shard, sorted.
        """
        turn: list[Parcel] = []
        begun = False
        for parcel in parcels:
            if parcel.number == HEADER:
                assert isinstance(parcel.content, dict)
                self._reached.update(parcel.content)
                continue
            if not begun:
                begun = True
                yield [], self._headers()
            if self._closes(turn, parcel):
                yield self._take(turn)
                turn = []
            turn.append(parcel)
        if not begun:
            yield [], self._headers()
        if turn or not begun:
            yield self._take(turn)

    def _closes(self, turn: list[Parcel], parcel: Parcel) -> bool:
        """Return whether a parcel begins the next turn."""
        level, _ = self._place
        if level:
            return bool(turn) and turn[0].key != parcel.key
        return any(one.sender == parcel.sender for one in turn)

    def _headers(self) -> list[Parcel]:
        """Return what the next level needs before the first turn; one shard of this level sends it."""
        level, shard = self._place
        if shard or level + 1 == self._query.sharding.levels:
            return []
        every = range(self._query.sharding.shards)
        return [Parcel(other, _BEFORE_ALL, "", HEADER, dict(self._reached)) for other in every]

    def _take(self, turn: list[Parcel]) -> tuple[list[ResultRows], list[Parcel]]:
        deliveries = [
            replace(parcel.content, sender=number)
            for number, parcel in enumerate(sorted(turn, key=lambda one: one.sender))
            if isinstance(parcel.content, ShardInput)
        ]
        read = {timeline: at for one in deliveries for timeline, at in one.reached.items()}
        order = self._order(read)
        report, following = run_shard(self._keyed, self._place, self._query.sharding, order, deliveries)
        self._reached.update(read)
        slowest = report.complete.slowest
        if not self._program.by_substream:
            self._ahead.update(order.ahead_at(slowest, self._program))
        self._released = max(self._released, slowest)
        key = self._turns
        self._turns += 1
        _, shard = self._place
        return report.rows, [Parcel(other, key, f"{shard:06}", 0, delivery) for other, delivery in enumerate(following)]

    def _order(self, read: Mapping[Timeline, Reached]) -> StepOrder:
        query = self._query
        return StepOrder(
            released=self._released,
            ahead=dict(self._ahead),
            until=query.until,
            emission=EmissionRange(query.start, query.until),
            idle={timeline: at for timeline, at in self._reached.items() if timeline not in read},
            read=frozenset(read),
            timelines=tuple(sorted({*self._reached, *read})),
        )


@dataclass(frozen=True, slots=True)
class ShardsStage:
    """Runs the shards of one level that Spark has put into a partition, one after the other.

    Attributes:
        last_level: the level that emits the rows that are wanted.
        schema: of those rows.
    """

    query: QueryOnShards
    level: int
    last_level: int
    schema: ResultSchema

    @property
    def __name__(self) -> str:
        """The name that Spark's plans and UI show."""
        return f"shards_of_{self.schema.output}" if self.level == self.last_level else f"shards_of_level_{self.level}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows_of_task(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for shard, parcels in groupby(parcels_in(batches), key=lambda parcel: parcel.shard):
            for rows, following in ShardRun(self.query, self.level, shard).run(parcels):
                if self.level < self.last_level:
                    yield from rows_of(following)
                    continue
                for each in rows:
                    if each.output == self.schema.output and len(each):
                        yield self.schema.batch(each)
