"""Early results: revisions of what the open windows hold, until their final rows replace them.

These are the early firings of the Dataflow model (https://www.vldb.org/pvldb/vol8/p1792-Akidau.pdf, section 2.3),
triggered by the arrival times in the log rather than by the machine's clock.

When. A revision is emitted whenever the arrival time of the inputs passes a multiple of the period. At the multiple B
every event that arrived before B has been read, and none that arrived at B or later. The content of a revision
therefore follows from the log alone: after a restart or on a slower machine the same revisions leave in the same order.
To this end, steps are cut at the multiples: the logs show what arrived before the next one and nothing else
(`CutLog`), and state no later lower bound on arrivals.

Order. Between two multiples, final rows leave in time order as the watermark passes them. At a multiple the watermark
too is determined by the log, so the rows before and after a revision are always the same. Multiples between which
nothing arrived are skipped: their revisions would repeat the one before.

State for a restart: the last multiple with a revision, and how many revisions each open window has had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.events import InputLog, LogRange, PartitionEnd
from tidegate.connectors.outputs.shape import OutputColumn, Shape
from tidegate.engine import ResultRows, Vector
from tidegate.job.config.definition import JobDefinition
from tidegate.job.runtime.step import Step, Stepper, Timeline
from tidegate.job.side_outputs.side_output import RunInputs, Shapes
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND, read_from
from tidegate.ordering.ticks import FIRST_TICKS
from tidegate.sql.plan import nodes as plan

REVISION, FINAL = "revision", "final"
# Earlier than any arrival: a cut here shows no event.
_BEFORE_ALL_EVENTS = 0


@dataclass(slots=True)
class EarlyState:
    """What a restart needs.

    Attributes:
        revised_at: ticks; the last multiple of the period whose revision left.
        revisions: by output and end of the window in ticks, how many revisions it has had; open windows only.
    """

    revised_at: int = NO_TIME
    revisions: dict[str, dict[int, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it for the journal."""
        return {
            "revised_at": self.revised_at,
            "revisions": {name: list(of.items()) for name, of in self.revisions.items()},
        }

    @classmethod
    def from_json(cls, content: Any) -> EarlyState:
        """Return what `as_json` was called on.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: `as_json` did not write this.
        """
        revisions = content["revisions"].items()
        return cls(
            int(content["revised_at"]), {name: {int(end): int(count) for end, count in of} for name, of in revisions}
        )


class CutLog:
    """A log as it was at an earlier time: it ends before the first event that arrived at that time or later."""

    def __init__(self, log: InputLog) -> None:
        self._log = log
        self._settled: dict[tuple[str, int], int] = {}
        self.until = _BEFORE_ALL_EVENTS
        self.passed: dict[str, bool] = {}

    def cut_at(self, until: int) -> None:
        """Move the cut to another time, in ticks."""
        self.until = until
        self._settled = {}

    def ends(self) -> dict[str, PartitionEnd]:
        """``passed`` then says of each partition whether everything before the cut is known."""
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

    def whole_ends(self) -> dict[str, PartitionEnd]:
        """Return the ends of the log without the cut."""
        return self._log.ends()

    def first_at(self, partition: str, arrival: int) -> int:
        return self._log.first_at(partition, arrival)

    def range(self, partition: str, start: int, end: int) -> LogRange:
        return self._log.range(partition, start, end)

    def close(self) -> None:
        self._log.close()


class EarlyResults:
    """The early results of one run."""

    SECTION: ClassVar[str] = "early_results"

    def __init__(self, inputs: RunInputs, period_s: float, outputs: Mapping[str, str], state: EarlyState) -> None:
        """
        Args:
            outputs: by output of the query, the output for its early results.
        """
        self._period = round(period_s * TICKS_PER_SECOND)
        names = {name.lower(): name for name in inputs.program.output_names}
        self._to = {names[of.lower()]: output for of, output in outputs.items()}
        lookback = inputs.program.lookback_ticks
        self._read_from = None if inputs.start == NO_TIME else read_from(inputs.start, lookback, inputs.policy)
        self._before: dict[Timeline, int] | None = None
        self._logs = {name: CutLog(log) for name, log in inputs.logs.items()}
        self._state = state
        self._is_cut = True
        self._settled_at: tuple[tuple[int, int], dict[Timeline, int]] = ((_BEFORE_ALL_EVENTS, 0), {})

    @classmethod
    def shapes(cls, definition: JobDefinition, query_shapes: Shapes) -> Shapes:
        if definition.early_results is None:
            return {}
        more = (OutputColumn(REVISION, plan.Type.BIGINT), OutputColumn(FINAL, plan.Type.BIT))
        known = {name.lower(): shape for name, shape in query_shapes.items()}
        found: dict[str, Shape | None] = {}
        for of, output in definition.early_results.outputs.items():
            shape = known[of.lower()]
            found[output] = None if shape is None else (*shape, *more)
        return found

    @classmethod
    def open(cls, inputs: RunInputs, state: Any) -> EarlyResults | None:
        """Return the early results of a job, as its journal left them; None if it has none.

        Raises:
            JobError: the state is not one of early results.
        """
        definition = inputs.definition.early_results
        if definition is None:
            return None
        try:
            found = EarlyState() if state is None else EarlyState.from_json(state)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise JobError(f"the journal's state of {cls.SECTION} is damaged ({error!r})") from error
        return cls(inputs, definition.period_s, definition.outputs, found)

    def logs_for_steps(self, logs: Mapping[str, InputLog]) -> Mapping[str, InputLog]:
        """Return the logs, cut where the next revision is due."""
        return self._logs

    @property
    def has_more(self) -> bool:
        """Whether a revision has just left, so that the logs may hold events behind the cut."""
        return not self._is_cut

    def state(self) -> dict[str, Any]:
        return self._state.as_json()

    def before_step(self) -> None:
        """Cut the logs where the next revision is due."""
        if self._before is None and not self._find_first_multiple():
            return
        if not self._is_cut:
            self._cut_at_next_multiple()
            self._is_cut = True

    def _find_first_multiple(self) -> bool:
        """Find the multiple before the first event; False while the inputs have no event at all."""
        if self._state.revised_at == NO_TIME:
            firsts = [
                int(next(iter(log.range(partition, number, number + 1).read_events(1))).arrivals[0])
                for log in self._logs.values()
                for partition, end in log.whole_ends().items()
                if (number := self._first(log, partition, end)) < end.end
            ]
            if not firsts:
                if all(end.complete for log in self._logs.values() for end in log.whole_ends().values()):
                    self._cut(END_OF_TIME)
                return False
            self._state.revised_at = (min(firsts) - FIRST_TICKS) // self._period * self._period + FIRST_TICKS
        self._before = self._counts(self._state.revised_at)
        self._is_cut = False
        return True

    def _first(self, log: CutLog, partition: str, end: PartitionEnd) -> int:
        return end.begin if self._read_from is None else max(log.first_at(partition, self._read_from), end.begin)

    def _cut_at_next_multiple(self) -> None:
        """Cut at the next multiple before which something arrived or may still arrive."""
        assert self._before is not None
        periods = 1
        while True:
            multiple = self._state.revised_at + periods * self._period
            self._cut(multiple)
            ends = {(name, partition): end for name, log in self._logs.items() for partition, end in log.ends().items()}
            quiet = all(end.end <= self._before.get(at, 0) for at, end in ends.items())
            if quiet and all(end.complete for end in ends.values()):
                self._cut(END_OF_TIME)
                return
            if quiet and self._passed():
                self._state.revised_at = multiple
                periods *= 2
            elif periods == 1:
                return
            else:
                periods = 1

    def _cut(self, until: int) -> None:
        for log in self._logs.values():
            log.cut_at(until)

    def _passed(self) -> bool:
        return all(all(log.passed.values()) for log in self._logs.values())

    def _counts(self, until: int) -> dict[Timeline, int]:
        return {
            (name, partition): log.first_at(partition, until)
            for name, log in self._logs.items()
            for partition in log.whole_ends()
        }

    def rows_after_step(self, step: Step, stepper: Stepper, until: int) -> list[ResultRows]:
        """Return the final rows of a step for the outputs of early results, then a revision if one is due."""
        is_due = step.caught_up and self._is_due()
        # A preview can fail, and is then asked for again: until it is there, nothing may change.
        cut, settled = self._until, self._settled_now() if is_due else {}
        previews = stepper.preview() if self._has_news(settled) else []
        rows = [self._final(rows) for rows in step.rows if rows.output in self._to]
        for name, revisions in self._state.revisions.items():
            self._state.revisions[name] = {end: count for end, count in revisions.items() if end >= stepper.released}
        if is_due:
            mine = [preview for preview in previews if preview.output in self._to]
            rows += [revision for preview in mine if (revision := self._revision(preview, until)) is not None]
            self._state.revised_at, self._before, self._is_cut = cut, settled, False
        return rows

    def wants_preview(self) -> bool:
        """Return whether a revision is due after a step that reads all that the logs show."""
        return self._is_due() and self._has_news(self._settled_now())

    @property
    def _until(self) -> int:
        return next(iter(self._logs.values())).until

    def _is_due(self) -> bool:
        return self._before is not None and self._until != END_OF_TIME and self._passed()

    def _settled_now(self) -> dict[Timeline, int]:
        """Return where the cut is; a log can be far away, so it is asked once for each cut."""
        own = [(name, partition) for name, log in self._logs.items() for partition in log.passed]
        asked = (self._until, len(own))
        if self._settled_at[0] != asked:
            self._settled_at = (asked, {at: self._settled(at, self._until) for at in own})
        return self._settled_at[1]

    def _has_news(self, settled: Mapping[Timeline, int]) -> bool:
        return any(count > self._known(at) for at, count in settled.items())

    def _known(self, at: Timeline) -> int:
        return (self._before or {}).get(at, 0)

    def _settled(self, at: Timeline, cut: int) -> int:
        return self._logs[at[0]].first_at(at[1], cut)

    def _final(self, rows: ResultRows) -> ResultRows:
        revisions = self._state.revisions.get(rows.output, {})
        numbers = [revisions.get(end, 0) + 1 for end in rows.timestamps.tolist()]
        return self._marked(rows, numbers, final=True)

    def _revision(self, rows: ResultRows, until: int) -> ResultRows | None:
        count = int(np.searchsorted(rows.timestamps, until))
        if not count:
            return None
        revisions = self._state.revisions.setdefault(rows.output, {})
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
