"""Computing lost shards again while the other shards of a run keep their states.

A run that begins again from its progress finds the same results, so a state may be computed by another run that has
read as far. Such a run *follows* the first one: it begins with empty states of the lost shards alone, reads the log
from where a restart would read it, up to where the first one is, and emits what the first one has emitted, which is
dropped. The states that it leaves are those of the lost shards, and the first run continues with them.

What the first run has emitted must be emitted and nothing else, as the other shards have done with their rows: they
have forgotten them, and sent them on to higher levels. So the follower goes exactly that far (`Stepper.emitted_to`),
whatever the watermark is by now. A run that has begun again itself may have emitted less than the one before it.

Where each substream has its own watermark, that is the arrival up to which results were emitted by emission arrival
(`tidegate.ordering.emission`). What a shard knows of a substream may be less than it knew: events before those that are
read again matter to no result that is still to come. The numbers that tasks give to substreams are not those of the
first run, which its next tasks use; each dictionary of substreams says so by its generation.

Where partitions are merged by arrival, the first run has read all events before an arrival that every partition had
reached, and the follower finds this arrival as the lower bound of what is still to come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidegate.connectors.model.events import InputLog, LogRange, PartitionEnd
from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.placement import Placement, ShardName
from tidegate.job.runtime.step import Step, Stepper, StepSettings
from tidegate.ordering import NO_TIME


@dataclass(frozen=True, slots=True)
class LogSoFar:
    """A log as a run has read it.

    Attributes:
        positions: by partition, the sequence number to read next.
        arrivals: by partition, a lower bound (ticks) on arrivals from there on; NO_TIME for none.
    """

    log: InputLog
    positions: Mapping[str, int]
    arrivals: Mapping[str, int]

    def ends(self) -> dict[str, PartitionEnd]:
        """Return where the run is in each of its partitions."""
        ends = self.log.ends()
        return {partition: self._end(partition, ends[partition]) for partition in self.positions if partition in ends}

    def _end(self, partition: str, end: PartitionEnd) -> PartitionEnd:
        position, arrival = self.positions[partition], self.arrivals[partition]
        bound = None if arrival == NO_TIME else arrival
        complete = end.complete and position >= end.end
        return PartitionEnd(end.begin, max(position, end.begin), bound, complete, end.log_id)

    def first_at(self, partition: str, arrival: int) -> int:
        return min(self.log.first_at(partition, arrival), self.positions[partition])

    def range(self, partition: str, start: int, end: int) -> LogRange:
        return self.log.range(partition, start, end)

    def close(self) -> None:
        """Leave the log open; the run still reads it."""


class Follower:
    """A run that reads up to where another one is.

    Attributes:
        stepper: its steps.
        events: how many events it has read.
    """

    def __init__(
        self, run: Stepper, placement: Placement, logs: Mapping[str, InputLog], settings: StepSettings
    ) -> None:
        """Begin with an empty state.

        Args:
            run: the run to follow; it takes no step meanwhile.
            placement: has the shards that are computed again.
        """
        self.events = 0
        self._until = run.until if run.program.by_substream else run.emitted_to.time
        so_far: dict[str, InputLog] = {}
        for name, log in logs.items():
            # A partition that has appeared since the last step would hold back what that step emitted.
            positions = {partition: run.positions[of, partition] for of, partition in run.known if of == name}
            arrivals = {partition: run.arrival_of((name, partition)) for partition in positions}
            so_far[name] = LogSoFar(log, positions, arrivals)
        self.stepper = Stepper(run.program, run.policy, so_far, placement, run.progress, settings)
        self.stepper.may_have_emitted = run.emitted_to
        self.stepper.until_arrival = run.emitted_to.arrival

    def step(self, most_events: int | None = None) -> Step:
        """Read on.

        Returns:
            The step; once it has caught up, the states are those of the run.

        Raises:
            InputError, StateLost, WorkersLost: see `Stepper.step`.
        """
        step = self.stepper.step(self._until, most_events)
        self.events += step.events
        return step


def to_the_end(order: StepOrder) -> StepOrder:
    """Return an order by which shards that follow others emit even if nothing is to be emitted that they have not.

    Those that they follow have done so, and have forgotten what they emitted or sent on.
    """
    return order if order.until == NO_TIME else replace(order, released=min(order.released, order.until - 1))


def with_those_below(lost: Iterable[ShardName], shards: int) -> frozenset[ShardName]:
    """Return lost shards, and those of lower levels, as any of them may have sent rows to a lost one."""
    given = frozenset(lost)
    highest = max((level for level, _ in given), default=0)
    return given | {(level, shard) for level in range(highest) for shard in range(shards)}
