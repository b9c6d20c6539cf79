"""Early results: what the open windows hold, told again and again, until their final rows take that place.

When. A revision is made whenever the arrival of the inputs passes a multiple of the period: at the multiple B every
event that arrived before B has been read, and none that arrived at B or later. So what a revision says follows from
the log alone; a replay, a restart and a slower machine tell the same revisions in the same order. Steps are cut at the
multiples for that: the logs show what arrived before the next one and no more (`CutLog`), and promise no more.

In which order. Between two multiples final rows leave as the watermark passes them, in time order. At a multiple the
watermark is one that the log determines, too, so the rows before a revision and those after it are always the same.
Multiples between which nothing arrived are passed over, for their revisions would say nothing new.

What is kept for a restart: the last multiple that was told, and how many revisions each open window has had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate.engine import Program, ResultRows, Vector
from tidegate.engine.expressions.relations import is_local
from tidegate.job.config.definition import EarlyResultsDefinition
from tidegate.job.model.errors import JobError
from tidegate.job.model.events import InputLog, LogRange, PartitionEnd
from tidegate.job.outputs.shape import OutputColumn, Shape
from tidegate.job.runtime.step import Step, Stepper, Timeline
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND
from tidegate.ordering.ticks import FIRST_TICKS
from tidegate.saql.plan import nodes as plan

REVISION, FINAL = "revision", "final"
# Before any event of ours arrived: a cut there shows nothing.
_NOTHING_YET = 0


@dataclass(slots=True)
class EarlyMark:
    """What a journal keeps.

    Attributes:
        told: ticks; the last multiple of the period whose revision left.
        revisions: by output and end of the window in ticks, how many revisions it has had; only of open windows.
    """

    told: int = NO_TIME
    revisions: dict[str, dict[int, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """For the journal, whose keys are texts."""
        return {"told": self.told, "revisions": {name: list(of.items()) for name, of in self.revisions.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, object] | None) -> EarlyMark:
        """What `as_json` gave."""
        if content is None:
            return cls()
        revisions = content["revisions"]
        assert isinstance(revisions, dict)
        told = content["told"]
        assert isinstance(told, int)
        return cls(told, {name: {int(end): int(count) for end, count in of} for name, of in revisions.items()})


class CutLog:
    """A log as it was before a time of arrival: what arrived from then on is not there yet."""

    def __init__(self, log: InputLog) -> None:
        self._log = log
        self._settled: dict[tuple[str, int], int] = {}
        self.until = _NOTHING_YET
        self.passed: dict[str, bool] = {}

    def set(self, until: int) -> None:
        """Cut at another time, in ticks."""
        self.until = until
        self._settled = {}

    def ends(self) -> dict[str, PartitionEnd]:
        """See ``InputLog.ends``; ``passed`` then says of each partition whether all before the cut is there."""
        self.passed = {}
        return {partition: self._cut(partition, end) for partition, end in self._log.ends().items()}

    def _cut(self, partition: str, end: PartitionEnd) -> PartitionEnd:
        if end.arrival_lower_bound is not None and end.arrival_lower_bound < self.until and not end.complete:
            self.passed[partition] = False
            return end
        before = min(self._first_at_cut(partition), end.end)
        passed = (
            before < end.end
            or end.complete
            or (end.arrival_lower_bound is not None and end.arrival_lower_bound >= self.until)
        )
        self.passed[partition] = passed
        if passed:
            self._settled[partition, self.until] = before
        if before == end.end and end.complete:
            return end
        return replace(
            end, end=max(before, end.begin), arrival_lower_bound=self.until if passed else None, complete=False
        )

    def _first_at_cut(self, partition: str) -> int:
        settled = self._settled.get((partition, self.until))
        return self._log.first_at(partition, self.until) if settled is None else settled

    def uncut(self) -> dict[str, PartitionEnd]:
        """The ends of the whole log."""
        return self._log.ends()

    def first_at(self, partition: str, arrival: int) -> int:
        """See ``InputLog.first_at``."""
        return self._log.first_at(partition, arrival)

    def range(self, partition: str, start: int, end: int) -> LogRange:
        """See ``InputLog.range``."""
        return self._log.range(partition, start, end)

    def close(self) -> None:
        """See ``InputLog.close``."""
        self._log.close()


class EarlyResults:
    """The early results of one run."""

    def __init__(
        self,
        definition: EarlyResultsDefinition,
        program: Program,
        logs: Mapping[str, InputLog],
        mark: EarlyMark,
        read_from: int | None,
    ) -> None:
        """
        Args:
            logs: the inputs, which the run then reads as ``logs`` of this object.
            mark: where an earlier run came to.
            read_from: ticks; events that arrived before are not read. None: all are.

        Raises:
            JobError: the query has no such output, or its rows are not of a kind that has early results.
        """
        self._period = round(definition.period_s * TICKS_PER_SECOND)
        self._to = _checked(definition, program)
        self._read_from = read_from
        self._before: dict[Timeline, int] | None = None
        self.logs = {name: CutLog(log) for name, log in logs.items()}
        self.mark = mark
        self.waits = True

    def before_step(self) -> None:
        """Show the logs up to where the next revision is due."""
        if self._before is None and not self._begin():
            return
        if not self.waits:
            self._go_on()
            self.waits = True

    def _begin(self) -> bool:
        """Find the first multiple; False while the inputs have no event at all."""
        if self.mark.told == NO_TIME:
            firsts = [
                int(next(iter(log.range(partition, number, number + 1).read(1))).arrivals[0])
                for log in self.logs.values()
                for partition, end in log.uncut().items()
                if (number := self._first(log, partition, end)) < end.end
            ]
            if not firsts:
                if all(end.complete for log in self.logs.values() for end in log.uncut().values()):
                    self._cut(END_OF_TIME)
                return False
            self.mark.told = (min(firsts) - FIRST_TICKS) // self._period * self._period + FIRST_TICKS
        self._before = self._counts(self.mark.told)
        self.waits = False
        return True

    def _first(self, log: CutLog, partition: str, end: PartitionEnd) -> int:
        return end.begin if self._read_from is None else max(log.first_at(partition, self._read_from), end.begin)

    def _go_on(self) -> None:
        """Cut at the next multiple before which something arrived, or may yet arrive."""
        assert self._before is not None
        periods = 1
        while True:
            multiple = self.mark.told + periods * self._period
            self._cut(multiple)
            ends = {(name, partition): end for name, log in self.logs.items() for partition, end in log.ends().items()}
            quiet = all(end.end <= self._before.get(at, 0) for at, end in ends.items())
            if quiet and all(end.complete for end in ends.values()):
                self._cut(END_OF_TIME)
                return
            if quiet and self._passed():
                self.mark.told = multiple
                periods *= 2
            elif periods == 1:
                return
            else:
                periods = 1

    def _cut(self, until: int) -> None:
        for log in self.logs.values():
            log.set(until)

    def _passed(self) -> bool:
        return all(all(log.passed.values()) for log in self.logs.values())

    def _counts(self, until: int) -> dict[Timeline, int]:
        return {
            (name, partition): log.first_at(partition, until)
            for name, log in self.logs.items()
            for partition in log.uncut()
        }

    def after_step(self, step: Step, stepper: Stepper, until: int) -> list[ResultRows]:
        """The rows of a step for the outputs of early results: final ones, then a revision if it is due.

        Args:
            until: ticks; no row at or after this leaves.
        """
        rows = [self._final(rows) for rows in step.rows if rows.output in self._to]
        for name, revisions in self.mark.revisions.items():
            self.mark.revisions[name] = {end: count for end, count in revisions.items() if end >= stepper.released}
        cut = next(iter(self.logs.values())).until
        if self._before is None or cut == END_OF_TIME or not (step.caught_up and self._passed()):
            return rows
        self.mark.told = cut
        before, self._before = self._before, {at: self._settled(at, cut) for at in step.timelines}
        if any(count > before.get(at, 0) for at, count in self._before.items()):
            previews = [preview for preview in stepper.preview() if preview.output in self._to]
            rows += [revision for preview in previews if (revision := self._revision(preview, until)) is not None]
        self.waits = False
        return rows

    def _settled(self, at: Timeline, cut: int) -> int:
        return self.logs[at[0]].first_at(at[1], cut)

    def _final(self, rows: ResultRows) -> ResultRows:
        revisions = self.mark.revisions.get(rows.output, {})
        numbers = [revisions.get(end, 0) + 1 for end in rows.timestamps.tolist()]
        return self._marked(rows, numbers, final=True)

    def _revision(self, rows: ResultRows, until: int) -> ResultRows | None:
        count = int(np.searchsorted(rows.timestamps, until))
        if not count:
            return None
        revisions = self.mark.revisions.setdefault(rows.output, {})
        for end in np.unique(rows.timestamps[:count]).tolist():
            revisions[end] = revisions.get(end, 0) + 1
        places = np.arange(count)
        columns = tuple(column.take(places) for column in rows.columns)
        shown = ResultRows(rows.output, rows.timestamps[:count], rows.names, columns)
        return self._marked(shown, [revisions[end] for end in shown.timestamps.tolist()], final=False)

    def _marked(self, rows: ResultRows, revisions: list[int], *, final: bool) -> ResultRows:
        return ResultRows(
            self._to[rows.output],
            rows.timestamps,
            (*rows.names, REVISION, FINAL),
            (
                *rows.columns,
                Vector.bigints(np.array(revisions, dtype=np.int64)),
                Vector.bits(np.full(len(rows), final, dtype=np.bool_)),
            ),
        )


def shapes_of_early_results(
    definition: EarlyResultsDefinition | None, program: Program, shapes: Mapping[str, Shape | None]
) -> dict[str, Shape | None]:
    """The columns of the outputs that early results go to, by output."""
    if definition is None:
        return {}
    more = (OutputColumn(REVISION, plan.Type.BIGINT), OutputColumn(FINAL, plan.Type.BIT))
    found: dict[str, Shape | None] = {}
    for of, to in _checked(definition, program).items():
        shape = shapes[of]
        found[to] = None if shape is None else (*shape, *more)
    return found


def _checked(definition: EarlyResultsDefinition, program: Program) -> dict[str, str]:
    """By output of the query, where its early results go."""
    names = {output.name.lower(): output for output in program.query.outputs}
    to: dict[str, str] = {}
    for of, place in definition.outputs.items():
        output = names.get(of.lower())
        if output is None:
            raise JobError(
                f"early_results.outputs: the query has no output '{of}'; it writes {', '.join(program.output_names)}"
            )
        if place.lower() in names:
            raise JobError(f"early_results.outputs: '{place}' is an output of the query; early results need another")
        wrong = "OVER lets substreams leave by themselves" if program.by_substream else _obstacle(output.relation)
        if wrong is not None:
            raise JobError(
                f"early_results.outputs: '{of}' has no early results: {wrong}; they are for tumbling and hopping "
                "windows right over an input"
            )
        to[output.name] = place
    return to


def _obstacle(relation: plan.Relation) -> str | None:
    """Why the rows of a relation have no early results; None if they do."""
    while isinstance(relation, plan.Project | plan.Filter | plan.Step):
        relation = relation.relation if isinstance(relation, plan.Step) else relation.source
    if not isinstance(relation, plan.Aggregate):
        return f"its rows come from {_KINDS.get(type(relation), 'an input')}, and not from a window"
    if not is_local(relation.source):
        return "its windows are over what other windows, joins or functions of the rows before give"
    window = relation.window
    kinds = [one.window for one in window.windows] if isinstance(window, plan.Windows) else [window]
    for kind in kinds:
        if not isinstance(kind, plan.Tumbling | plan.Hopping):
            return f"it has a {type(kind).__name__.lower()} window, which may end anywhere"
    return None


_KINDS: dict[type, str] = {
    plan.Join: "a join",
    plan.Temporal: "a function of the rows before",
    plan.Union: "a union",
    plan.Apply: "an APPLY",
    plan.Match: "MATCH_RECOGNIZE",
}
