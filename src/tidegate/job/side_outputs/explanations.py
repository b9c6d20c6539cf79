"""Explanations as an output of a job: what `job explain` says, for every event or for those that a rule touched.

The driver reads the log a second time beside the job's steps, with a carry of its own that only events advance. A
record therefore follows from the log alone, as a result does. Records leave in the order of arrival, input, partition
and sequence number, once every partition is known to have reached a later arrival, so the order does not depend on how
the log is cut into steps. A restart needs that arrival and nothing else.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.events import InputLog
from tidegate.connectors.model.metrics import SAMPLES_A_STEP
from tidegate.connectors.outputs.shape import OutputColumn, Shape
from tidegate.engine import ResultRows, Vector
from tidegate.engine.values.vectors import Datetime
from tidegate.job.analysis.event_explanation import ExplainedEvent, explain_events
from tidegate.job.analysis.replay import replayed, state_before
from tidegate.job.analysis.replay_source import ReplaySource
from tidegate.job.config.definition import ExplanationsDefinition, JobDefinition
from tidegate.job.runtime.step import Step, Stepper, Timeline, TimelineState
from tidegate.job.runtime.task import AnyCarry, RangeResult
from tidegate.job.side_outputs.side_output import RunInputs, Shapes
from tidegate.ordering import DATA_ERRORS, END_OF_TIME, NO_TIME
from tidegate.sql.plan.nodes import Type

# The carry is kept at multiples of this, so that little is read again around a touched event.
_PIECE_EVENTS = 256
_SHARES = 1 << 32

SHAPE: Shape = (
    OutputColumn("input", Type.NVARCHAR),
    OutputColumn("partition", Type.NVARCHAR),
    OutputColumn("sequenceNumber", Type.BIGINT),
    OutputColumn("arrival", Type.DATETIME),
    OutputColumn("body", Type.NVARCHAR),
    OutputColumn("rows", Type.ARRAY),
    OutputColumn("lost", Type.ARRAY),
)
"""The columns of an explanation."""


class Explanations:
    """The explanations of one run."""

    SECTION: ClassVar[str] = "explanations"

    def __init__(self, definition: ExplanationsDefinition, source: ReplaySource, explained_until: int) -> None:
        """
        Args:
            explained_until: ticks; events that arrived earlier have their explanation or need none. NO_TIME: none has.
        """
        self._output = definition.output
        self._every = definition.events == "all"
        self._share = round(definition.share * _SHARES)
        self._source = source
        self._carries: dict[Timeline, tuple[int, AnyCarry]] = {}
        self._waiting: list[tuple[int, str, int, int, ExplainedEvent]] = []
        self._explained_until = explained_until

    @classmethod
    def shapes(cls, definition: JobDefinition, query_shapes: Shapes) -> Shapes:
        return {} if definition.explanations is None else {definition.explanations.output: SHAPE}

    @classmethod
    def open(cls, inputs: RunInputs, state: Any) -> Explanations | None:
        """Return the explanations of a job, as its journal left them; None if it has none.

        Raises:
            JobError: the state is not one of explanations.
        """
        definition = inputs.definition.explanations
        if definition is None:
            return None
        if state is not None and type(state) is not int:
            raise JobError(f"the journal's state of {cls.SECTION} is damaged: expected a time in ticks, got {state!r}")
        source = ReplaySource(inputs.definition.name, inputs.program, inputs.policy, inputs.logs, inputs.definition)
        return cls(definition, source, inputs.start if state is None else state)

    def logs_for_steps(self, logs: Mapping[str, InputLog]) -> Mapping[str, InputLog]:
        """Return the logs as they are: explanations follow the steps."""
        return logs

    def before_step(self) -> None:
        """Nothing has to be prepared."""

    @property
    def has_more(self) -> bool:
        """Explanations find nothing that the step did not read."""
        return False

    def state(self) -> int:
        """Return the arrival up to which events have their explanation, in ticks."""
        return self._explained_until

    def wants_preview(self) -> bool:
        return False

    def rows_after_step(self, step: Step, stepper: Stepper, until: int) -> list[ResultRows]:
        """Explain the events of a step, and return the records that can leave.

        Raises:
            InputError: a log cannot be read.
        """
        for timeline, state in step.timelines.items():
            for explained in self._explain(timeline, state.end.end - state.backlog):
                order = (explained.arrival, timeline[0], int(timeline[1]), explained.sequence_number)
                self._waiting.append((*order, explained))
        reached = min((_reached(state) for state in step.timelines.values()), default=END_OF_TIME)
        if reached <= self._explained_until:
            return []
        self._explained_until = reached
        leaving = sorted((one for one in self._waiting if one[0] < reached), key=lambda one: one[:4])
        if not leaving:
            return []
        self._waiting = [one for one in self._waiting if one[0] >= reached]
        records = [_record(explained) for *_, explained in leaving]
        times = np.array([one[0] for one in leaving], dtype=np.int64)
        names = tuple(column.name for column in SHAPE)
        return [
            ResultRows(
                self._output, times, names, tuple(Vector.of([record[name] for record in records]) for name in names)
            )
        ]

    def _explain(self, timeline: Timeline, stop: int) -> Iterator[ExplainedEvent]:
        """Yield the explanations of a timeline's events up to where a step has read."""
        if timeline not in self._carries:
            self._carries[timeline] = self._carry_at_start(timeline)
        at, carry = self._carries[timeline]
        while at < stop:
            end = min(at + _PIECE_EVENTS, stop)
            (result,) = replayed(self._source, timeline, at, end, carry)
            numbers = [number for number in self._candidates(result, at, end) if self._is_in_share(timeline, number)]
            for explained in explain_events(self._source, timeline, numbers, (at, carry)):
                if self._every or _is_touched(explained):
                    yield explained
            at, carry = end, result.carry
        self._carries[timeline] = (at, carry)

    def _carry_at_start(self, timeline: Timeline) -> tuple[int, AnyCarry]:
        name, partition = timeline
        log = self._source.logs[name]
        end = log.ends()[partition]
        number = (
            end.begin
            if self._explained_until == NO_TIME
            else max(log.first_at(partition, self._explained_until), end.begin)
        )
        return number, state_before(self._source, timeline, number).carry

    def _candidates(self, result: RangeResult, first: int, stop: int) -> list[int]:
        """Return the events of a stretch that a rule may have touched; never fewer than it has."""
        # A task keeps only a few samples of errors that do not concern time; if there are more, check every event.
        others = {kind: count for kind, count in result.data_error_counts.items() if kind not in DATA_ERRORS.values()}
        if self._every or any(count > SAMPLES_A_STEP for count in others.values()):
            return list(range(first, stop))
        touched = {error.sequence_number for error in result.data_errors}
        for trace in result.traces:
            touched.update(trace.sequence_numbers[trace.stamps.reasons != 0].tolist())
        return sorted(touched)

    def _is_in_share(self, timeline: Timeline, number: int) -> bool:
        return zlib.crc32(f"{timeline[0]}/{timeline[1]}/{number}".encode()) < self._share


def _reached(state: TimelineState) -> int:
    """Return the earliest arrival that an unread event of a timeline can have."""
    return END_OF_TIME if state.end.complete and not state.backlog else state.carry.arrival


def _is_touched(explained: ExplainedEvent) -> bool:
    return bool(explained.lost) or any(row.explanation.reasons or row.failures for row in explained.rows)


def _record(explained: ExplainedEvent) -> dict[str, Any]:
    content = explained.as_json()
    return {**{column.name: content[column.name] for column in SHAPE}, "arrival": Datetime(explained.arrival)}
