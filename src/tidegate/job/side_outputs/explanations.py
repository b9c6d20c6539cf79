"""Explanations as an output of a job: a record for each event, or for each that a rule touched, as `explain` tells it.

The log is read a second time beside the job's steps, on the driver, with a carry of its own that only events move. So
a record follows from the log alone, as a result does. Records leave by arrival, then by input, partition and sequence
number, once every partition is known to have reached a later arrival; which is one order for every cut of the log into
steps. A restart needs nothing but that arrival.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tidegate.engine import ResultRows, Vector
from tidegate.engine.values.vectors import Datetime
from tidegate.job.analysis.event_explanation import ExplainedEvent, explain_events
from tidegate.job.analysis.replay import replayed, standing_before
from tidegate.job.analysis.replay_source import Subject
from tidegate.job.config.definition import ExplanationsDefinition
from tidegate.job.model.errors import JobError
from tidegate.job.model.metrics import SAMPLES_A_STEP
from tidegate.job.outputs.shape import OutputColumn, Shape
from tidegate.job.runtime.step import Step, Timeline, TimelineState
from tidegate.job.runtime.task import AnyCarry, RangeResult
from tidegate.ordering import DATA_ERRORS, END_OF_TIME, NO_TIME
from tidegate.saql.plan.nodes import Type

# Where the carry is kept between, so that only what stands around a touched event is read once more.
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

    def __init__(self, definition: ExplanationsDefinition, subject: Subject, told: int) -> None:
        """
        Args:
            told: ticks; events that arrived before were explained by an earlier run, or are not to be. NO_TIME: none.

        Raises:
            JobError: the output is one of the query's.
        """
        if definition.output.lower() in {name.lower() for name in subject.program.output_names}:
            raise JobError(
                f"explanations.output: '{definition.output}' is an output of the query; explanations need another"
            )
        self._output = definition.output
        self._every = definition.events == "all"
        self._share = round(definition.share * _SHARES)
        self._subject = subject
        self._stands: dict[Timeline, tuple[int, AnyCarry]] = {}
        self._waiting: list[tuple[int, str, int, int, ExplainedEvent]] = []
        self.told = told

    def after_step(self, step: Step) -> list[ResultRows]:
        """Explain what a step has read, and give what can leave.

        Raises:
            InputError: a log cannot be read.
        """
        for timeline, state in step.timelines.items():
            for explained in self._explain(timeline, state.end.end - state.backlog):
                order = (explained.arrival, timeline[0], int(timeline[1]), explained.sequence_number)
                self._waiting.append((*order, explained))
        reached = min((_reached(state) for state in step.timelines.values()), default=END_OF_TIME)
        if reached <= self.told:
            return []
        self.told = reached
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
        """The explanations of a timeline's events up to where a step has read."""
        if timeline not in self._stands:
            self._stands[timeline] = self._begin(timeline)
        at, carry = self._stands[timeline]
        while at < stop:
            end = min(at + _PIECE_EVENTS, stop)
            (result,) = replayed(self._subject, timeline, at, end, carry)
            numbers = [number for number in self._candidates(result, at, end) if self._is_in_share(timeline, number)]
            for explained in explain_events(self._subject, timeline, numbers, (at, carry)):
                if self._every or _is_touched(explained):
                    yield explained
            at, carry = end, result.carry
        self._stands[timeline] = (at, carry)

    def _begin(self, timeline: Timeline) -> tuple[int, AnyCarry]:
        name, partition = timeline
        log = self._subject.logs[name]
        end = log.ends()[partition]
        number = end.begin if self.told == NO_TIME else max(log.first_at(partition, self.told), end.begin)
        return number, standing_before(self._subject, timeline, number).carry

    def _candidates(self, result: RangeResult, first: int, stop: int) -> list[int]:
        """The events that may be wanted of those read; surely all that are."""
        # Of errors that are not of time a task keeps a few; where there are more, every event is looked at.
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
    """The arrival that every event of a timeline that has not been read has at least."""
    return END_OF_TIME if state.end.complete and not state.backlog else state.carry.arrival


def _is_touched(explained: ExplainedEvent) -> bool:
    return bool(explained.lost) or any(row.explanation.reasons or row.failures for row in explained.rows)


def _record(explained: ExplainedEvent) -> dict[str, Any]:
    told = explained.as_json()
    return {**{column.name: told[column.name] for column in SHAPE}, "arrival": Datetime(explained.arrival)}
