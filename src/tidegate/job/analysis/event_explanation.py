"""Explain one event of the log: which rule affected it, when, and where in the query it went, or why it was lost.

Everything is computed again from the log: the state of the timeline before the event (`replay`), the verdict of the
scan (`ordering.explain`), and where the query's first operators sent it. An event whose body holds several rows has
an explanation for each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.connectors.model.events import Int64Array
from tidegate.engine import Stamped, TaskSide
from tidegate.engine.windows.kind import kind_of
from tidegate.job.analysis.replay import check_event, replayed, state_before, stretch
from tidegate.job.analysis.replay_source import ReplaySource
from tidegate.job.runtime.batch import Batch
from tidegate.job.runtime.step import Timeline
from tidegate.job.runtime.task import PROBLEMS, AnyCarry, RangeTask, stamp
from tidegate.job.runtime.watermark_blockers import text_of_key
from tidegate.ordering import (
    DATA_ERRORS,
    DROPPED,
    NO_TIME,
    Carry,
    Explanation,
    Stamps,
    explain,
    format_time,
    short_time,
)
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import relations_in


@dataclass(frozen=True, slots=True)
class Destination:
    """What an event went into.

    Attributes:
        outputs: the outputs that depend on it.
        sentence: a sentence that describes it.
        windows: (start, end] in ticks, where the windows can be named.
    """

    outputs: tuple[str, ...]
    sentence: str
    windows: tuple[tuple[int, int], ...] = ()


def destination_of(relation: plan.Relation, query: plan.Query, time: int) -> Destination:
    """Return the destination of a row with a time (ticks) that a relation of a query reads."""
    outputs = tuple(output.name for output in query.outputs if _stands_on(output.relation, relation))
    to = " and ".join(f"'{output}'" for output in outputs)
    match relation:
        case plan.Aggregate(windows=named):
            every = [kind_of(one.window) for one in named]
            said = "; ".join(window.describe_windows(time) for window in every)
            windows = tuple(span for window in every for span in window.spans_of(time))
            return Destination(outputs, f"For {to} it counts in {said}.", windows)
        case plan.Join():
            return Destination(outputs, f"For {to} it waits, at {short_time(time)}, for the rows it joins.")
        case plan.Temporal() | plan.Match():
            return Destination(
                outputs, f"For {to} it goes, at {short_time(time)}, to the functions that read earlier rows."
            )
        case _:
            return Destination(outputs, f"For {to} it produces a row at {short_time(time)}.")


def _stands_on(relation: plan.Relation, other: plan.Relation) -> bool:
    return any(below is other for below in relations_in(relation))


_FATES = ("ok", "adjusted", "dropped")
_RUN_EVENTS = 1024
_NEAR = 64


@dataclass(frozen=True, slots=True)
class ExplainedRow:
    """One row of an event.

    Attributes:
        substream: the OVER keys as text; None without OVER.
        explanation: what the policy did to it.
        destinations: where the row went; empty for a row that was lost or that the query filters out.
        failures: the expressions that failed for it and so decided what became of it.
    """

    substream: str | None
    explanation: Explanation
    destinations: tuple[Destination, ...]
    failures: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """Return what happened to the row, in order."""
        said = list(self.explanation.sentences)
        if self.substream is not None:
            said.insert(0, f"It belongs to the substream {self.substream}.")
        if self.explanation.fate == DROPPED:
            return said
        said += [f"It fails in the query: {failure}." for failure in self.failures]
        said += [destination.sentence for destination in self.destinations]
        if not self.destinations and not self.failures:
            said.append("The query filters it out: it reaches no row or window (WHERE, or an APPLY without elements).")
        return said

    def as_json(self) -> dict[str, Any]:
        """Return the object that `-o json` prints."""
        explanation = self.explanation
        return {
            "substream": self.substream,
            "eventTime": _json_time(explanation.event_time),
            "systemTimestamp": _json_time(explanation.system_timestamp),
            "fate": _FATES[explanation.fate],
            "reasons": [name for bit, name in DATA_ERRORS.items() if explanation.reasons & bit],
            "watermarkBefore": _json_time(explanation.watermark_before),
            "watermarkAfter": _json_time(explanation.watermark_after),
            "destinations": [
                {
                    "outputs": list(destination.outputs),
                    "windows": [{"start": _json_time(a), "end": _json_time(b)} for a, b in destination.windows],
                }
                for destination in self.destinations
            ],
            "failures": list(self.failures),
            "sentences": self.sentences,
        }


@dataclass(frozen=True, slots=True)
class ExplainedEvent:
    """One event of a log.

    Attributes:
        arrival: ticks.
        body: as the publisher sent it.
        rows: the rows in its body.
        lost: why the body, or a row of it, could not be read.
        notes: what limits the explanation.
    """

    input: str
    partition: str
    sequence_number: int
    arrival: int
    body: bytes
    rows: tuple[ExplainedRow, ...]
    lost: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the object that `-o json` prints."""
        return {
            "input": self.input,
            "partition": self.partition,
            "sequenceNumber": self.sequence_number,
            "arrival": _json_time(self.arrival),
            "body": self.body.decode("utf-8", errors="replace"),
            "rows": [row.as_json() for row in self.rows],
            "lost": list(self.lost),
            "notes": list(self.notes),
        }


def explain_events(
    source: ReplaySource, timeline: Timeline, numbers: Sequence[int], before: tuple[int, AnyCarry] | None = None
) -> Iterator[ExplainedEvent]:
    """Explain events of one partition, in order of their sequence numbers, in one pass over the log.

    ``before``: a sequence number at or before the first, and the state of the timeline before that event; None: it is
    found.

    Raises:
        JobError: there is no such event.
        InputError: the log cannot be read.
    """
    at, carry = (0, None) if before is None else before
    notes: tuple[str, ...] = ()
    for run in _runs(numbers):
        check_event(source, timeline, run[0])
        check_event(source, timeline, run[-1])
        if carry is None:
            state = state_before(source, timeline, run[0])
            carry = state.carry
            if not state.whole:
                notes = ("Retention has removed older events that could matter; with them the answer may differ.",)
        else:
            for result in replayed(source, timeline, at, run[0], carry, trace=False):
                carry = result.carry
        at = run[-1] + 1
        log_range = source.logs[timeline[0]].range(timeline[1], run[0], at)
        for events in log_range.read_events(_RUN_EVENTS):
            batch = Batch(RangeTask(*timeline, log_range, carry, count_from=0), events, TaskSide(source.program))
            explained, carry = _explain(source, batch, timeline, carry, frozenset(run), notes)
            yield from explained


def _runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Group ascending sequence numbers that are so close together that one read covers the gaps as well."""
    run: list[int] = []
    for number in sorted(set(numbers)):
        if run and (number - run[-1] > _NEAR or number - run[0] >= _RUN_EVENTS):
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def sample(
    source: ReplaySource, count: int, from_ticks: int | None = None, to_ticks: int | None = None
) -> Iterator[ExplainedEvent]:
    """Explain ``count`` of the events that a rule affected or that were lost, spread over a stretch of arrival times.

    Events lost for a reason other than time (a body that is not JSON, an expression that fails) are often alike, so a
    few of each kind represent all of them.

    Raises:
        InputError: a log cannot be read.
    """
    touched: list[tuple[int, Timeline, int]] = []
    for timeline, (first, stop) in stretch(source, from_ticks, to_ticks).items():
        carry = state_before(source, timeline, first).carry
        for result in replayed(source, timeline, first, stop, carry):
            for trace in result.traces:
                places = np.flatnonzero(trace.stamps.reasons)
                pairs = zip(trace.arrivals[places].tolist(), trace.sequence_numbers[places].tolist(), strict=True)
                touched += [(arrival, timeline, number) for arrival, number in dict.fromkeys(pairs)]
            touched += [
                (error.arrival, timeline, error.sequence_number)
                for error in result.data_errors
                if error.kind not in DATA_ERRORS.values()
            ]
    touched = sorted(set(touched))
    chosen = [touched[place * len(touched) // count] for place in range(min(count, len(touched)))]
    if count >= len(touched):
        chosen = touched
    for timeline in dict.fromkeys(timeline for _, timeline, _ in chosen):
        yield from explain_events(source, timeline, [number for _, of, number in chosen if of == timeline])


def _explain(
    source: ReplaySource,
    batch: Batch,
    timeline: Timeline,
    carry: AnyCarry,
    wanted: frozenset[int],
    notes: tuple[str, ...],
) -> tuple[list[ExplainedEvent], AnyCarry]:
    """Return the explanations of the requested events of a batch, and the carry after the whole batch."""
    events, decoded, policy = batch.events, batch.rows.decoded, source.policy_of(timeline[0])
    carry = carry.advance(events.reached)
    # Read each row's timeline before the scan, which may forget a substream.
    rows = _Rows.of(batch, carry)
    stamps, carry = stamp(batch, carry, source.policy)
    kept = np.flatnonzero(stamps.fate != DROPPED)
    asked = kept[np.isin(batch.rows.sequence_numbers[kept], list(wanted))]
    taken, errors = TaskSide(source.program).trace(batch.rows, Stamped(asked, stamps.system_timestamp[asked]))
    of_event: dict[int, list[ExplainedRow]] = {}
    carries = rows.carries_before(stamps)
    for row, (event, number) in enumerate(
        zip(decoded.events.tolist(), batch.rows.sequence_numbers.tolist(), strict=True)
    ):
        before = next(carries)
        if number not in wanted:
            continue
        explanation = explain(
            rows.times[row], int(batch.rows.arrivals[row]), before, policy, null_key=rows.has_null_key(row)
        )
        destinations = tuple(
            destination_of(
                source.program.operators[operator].relation, source.program.query, explanation.system_timestamp
            )
            for operator, reaching in taken.items()
            if explanation.system_timestamp is not None and _holds(reaching, row)
        )
        failures = tuple(dict.fromkeys(error.message for error in errors if row in error.rows))
        of_event.setdefault(event, []).append(ExplainedRow(rows.keys[row], explanation, destinations, failures))
    lost: dict[int, list[str]] = {}
    for event, problem in zip(decoded.rejected_events.tolist(), decoded.rejected_problems.tolist(), strict=True):
        lost.setdefault(event, []).append(f"{PROBLEMS[problem][1]} ({PROBLEMS[problem][0]})")
    explained = [
        ExplainedEvent(
            *timeline, number, arrival, body, tuple(of_event.get(event, ())), tuple(lost.get(event, ())), notes
        )
        for event, (number, arrival, body) in enumerate(
            zip(events.sequence_numbers.tolist(), events.arrivals.tolist(), events.bodies, strict=True)
        )
        if number in wanted
    ]
    return explained, carry


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a batch before the scan: n event times (None: unreadable), n substreams as text, and what is needed
    to find the state of each row's timeline just before it."""

    times: list[int | None]
    keys: list[str | None]
    codes: list[int] | None
    largest: list[int]
    arrivals: list[int]

    @classmethod
    def of(cls, batch: Batch, carry: AnyCarry) -> _Rows:
        times: list[int | None] = batch.rows.arrivals.tolist()
        if batch.rows.times is not None:
            times = [
                time if valid else None for time, valid in zip(*map(np.ndarray.tolist, batch.rows.times), strict=True)
            ]
        # The latest arrival known before each row: for an event's first row the event before, for later rows its own.
        reached = np.maximum.accumulate(np.concatenate([[carry.arrival], batch.events.arrivals]))
        places = batch.rows.decoded.events
        again = np.concatenate([[False], places[1:] == places[:-1]])[: len(places)]
        arrivals = reached[places + again].tolist()
        if isinstance(carry, Carry) or batch.rows.substreams is None:
            assert isinstance(carry, Carry)
            return cls(times, [None] * len(times), None, [carry.max_time], arrivals)
        substreams, codes = batch.rows.substreams, batch.rows.substreams.codes.tolist()
        shown = [text_of_key(key) for key in substreams.keys.to_list()]
        largest = [carry.timeline(number).max_time for number in carry.keys.codes(substreams.keys).tolist()]
        return cls(times, [shown[code] if code >= 0 else None for code in codes], codes, largest, arrivals)

    def has_null_key(self, row: int) -> bool:
        return self.codes is not None and self.codes[row] < 0

    def carries_before(self, stamps: Stamps) -> Iterator[Carry]:
        """Yield the state of each row's timeline before it: its largest time is the largest stamp before the row."""
        largest = list(self.largest)
        for row, time in enumerate(stamps.system_timestamp.tolist()):
            of = 0 if self.codes is None else self.codes[row]
            if of < 0:
                yield Carry(arrival=self.arrivals[row])
                continue
            yield Carry(largest[of], self.arrivals[row])
            largest[of] = max(largest[of], time)


def _holds(sorted_rows: Int64Array, row: int) -> bool:
    place = int(np.searchsorted(sorted_rows, row))
    return place < len(sorted_rows) and int(sorted_rows[place]) == row


def _json_time(ticks: int | None) -> str | None:
    return None if ticks is None or ticks == NO_TIME else format_time(ticks)
