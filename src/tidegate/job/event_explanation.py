"""One event of the log: which rule touched it, when, and where in the query it went, or why it was lost.

Everything is computed again from the log: where the timeline stood before the event (`replay`), what the scan says
of it (`ordering.explain`), and what the query's first operators take of it. An event whose body holds several rows
has an explanation for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.engine import Decoded, Program, Rows, SubstreamCodes, decoder_of
from tidegate.engine.windows import Panes
from tidegate.job.events import Events
from tidegate.job.holders import text_of_key
from tidegate.job.replay import event_at, replayed, standing_before, stretch
from tidegate.job.step import Timeline
from tidegate.job.subject import Subject
from tidegate.job.task import PROBLEMS, AnyCarry
from tidegate.ordering import (
    DATA_ERRORS,
    DROPPED,
    NO_TIME,
    Carry,
    Explanation,
    Keys,
    Policy,
    SubstreamCarry,
    explain,
    format_duration,
    format_time,
    scan,
    scan_substreams,
    short_time,
)
from tidegate.saql import plan

_FATES = ("ok", "adjusted", "dropped")
_MOST_WINDOWS_SAID = 3


@dataclass(frozen=True, slots=True)
class Destination:
    """What took an event in.

    Attributes:
        outputs: the outputs that depend on it.
        sentence: for people.
        windows: (start, end] in ticks, where the windows can be named.
    """

    outputs: tuple[str, ...]
    sentence: str
    windows: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainedRow:
    """One row of an event.

    Attributes:
        substream: the OVER keys as text; None without OVER.
        explanation: what the policy made of it.
        destinations: what took it in; nothing for a row that was lost or that the query leaves out.
        failures: expressions that failed for it, which is what then became of it.
    """

    substream: str | None
    explanation: Explanation
    destinations: tuple[Destination, ...]
    failures: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """The row's way, in order."""
        said = list(self.explanation.sentences)
        if self.substream is not None:
            said.insert(0, f"It belongs to the substream {self.substream}.")
        if self.explanation.fate == DROPPED:
            return said
        said += [f"It fails in the query: {failure}." for failure in self.failures]
        said += [destination.sentence for destination in self.destinations]
        if not self.destinations and not self.failures:
            said.append("The query leaves it out: no row or window takes it in (WHERE, or an APPLY without elements).")
        return said

    def as_json(self) -> dict[str, Any]:
        """As `-o json` prints it."""
        told = self.explanation
        return {
            "substream": self.substream,
            "eventTime": _json_time(told.event_time),
            "systemTimestamp": _json_time(told.system_timestamp),
            "fate": _FATES[told.fate],
            "reasons": [name for bit, name in DATA_ERRORS.items() if told.reasons & bit],
            "watermarkBefore": _json_time(told.watermark_before),
            "watermarkAfter": _json_time(told.watermark_after),
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
        rows: what its body held.
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
        """As `-o json` prints it."""
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
    subject: Subject, timeline: Timeline, numbers: Sequence[int], before: tuple[int, AnyCarry] | None = None
) -> Iterator[ExplainedEvent]:
    """Explain events of one partition, in order of their sequence numbers, in one pass over the log.

    ``before``: a sequence number at or before the first, and where the timeline stands before that event; None finds
    out.

    Raises:
        JobError: there is no such event.
        InputError: the log cannot be read.
    """
    at, carry = (0, None) if before is None else before
    notes: tuple[str, ...] = ()
    for number in sorted(set(numbers)):
        events = event_at(subject, timeline, number)
        if carry is None:
            standing = standing_before(subject, timeline, number)
            carry = standing.carry
            if not standing.whole:
                notes = ("Retention has removed older events that could matter; with them the answer may differ.",)
        else:
            for result in replayed(subject, timeline, at, number, carry, trace=False):
                carry = result.carry
        explained, carry = _explain(subject, timeline, events, carry, notes)
        at = number + 1
        yield explained


def sample(
    subject: Subject, count: int, from_ticks: int | None = None, to_ticks: int | None = None
) -> Iterator[ExplainedEvent]:
    """Explain ``count`` of the events that a rule touched or that were lost, spread over a stretch of arrival times.

    Of events that were lost for another reason than time (a body that is not JSON, an expression that fails) there
    are many alike: a few of a kind stand for all.

    Raises:
        InputError: a log cannot be read.
    """
    touched: list[tuple[int, Timeline, int]] = []
    for timeline, (first, stop) in stretch(subject, from_ticks, to_ticks).items():
        carry = standing_before(subject, timeline, first).carry
        for result in replayed(subject, timeline, first, stop, carry):
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
        yield from explain_events(subject, timeline, [number for _, of, number in chosen if of == timeline])


def _explain(
    subject: Subject, timeline: Timeline, events: Events, carry: AnyCarry, notes: tuple[str, ...]
) -> tuple[ExplainedEvent, AnyCarry]:
    name, partition = timeline
    program = subject.program
    decoded = decoder_of(program.wanted(name), events.format).decode(events.bodies)
    carry = carry.advance(events.reached)
    arrival = int(events.arrivals[0])
    times = program.event_times(name, decoded, partition, events)
    substreams = program.substream_codes(name, decoded, partition, events)
    rows = []
    for row in range(len(decoded)):
        event_time = arrival if times is None else int(times[0][row]) if times[1][row] else None
        key = None if substreams is None else _key(substreams, row)
        null_key = substreams is not None and key is None
        told, carry = _tell(event_time, arrival, carry, subject.policy_of(name), key, null_key=null_key)
        destinations, failures = _destinations(program, timeline, decoded, events, row, told)
        shown = None if key is None else text_of_key(key)
        rows.append(ExplainedRow(shown, told, destinations, failures))
    lost = tuple(f"{PROBLEMS[problem][1]} ({PROBLEMS[problem][0]})" for problem in decoded.rejected_problems.tolist())
    number = int(events.sequence_numbers[0])
    explained = ExplainedEvent(name, partition, number, arrival, events.bodies[0], tuple(rows), lost, notes)
    return explained, carry.advance(arrival)


def _key(substreams: SubstreamCodes, row: int) -> bytes | None:
    code = int(substreams.codes[row])
    return None if code < 0 else substreams.keys.take(np.array([code])).to_list()[0]


def _tell(
    event_time: int | None, arrival: int, carry: AnyCarry, policy: Policy, key: bytes | None, *, null_key: bool
) -> tuple[Explanation, AnyCarry]:
    """The explanation of a row, and the carry after it."""
    time = np.array([NO_TIME if event_time is None else event_time])
    valid = np.array([event_time is not None])
    if isinstance(carry, Carry):
        told = explain(event_time, arrival, carry, policy)
        return told, scan(time, np.array([arrival]), carry, policy, valid)[1]
    assert isinstance(carry, SubstreamCarry)
    codes = np.array([-1]) if key is None else carry.keys.codes(Keys.of([key]))
    told = explain(event_time, arrival, carry.timeline(int(codes[0])), policy, null_key=null_key)
    return told, scan_substreams(time, np.array([arrival]), codes, carry, policy, valid)[1]


def _destinations(
    program: Program, timeline: Timeline, decoded: Decoded, events: Events, row: int, told: Explanation
) -> tuple[tuple[Destination, ...], tuple[str, ...]]:
    """What of the query takes the row in, and which expressions fail for it."""
    if told.system_timestamp is None:
        return (), ()
    stamp = np.array([told.system_timestamp], dtype=np.int64)
    name, partition = timeline
    partial = program.run_stateless(name, Rows(decoded, np.array([row]), stamp, partition, events))
    failures = tuple(error.message for error in partial.errors)
    relations = dict.fromkeys(operator for operator, _ in partial.payloads)
    return tuple(
        _destination(program.relation_of(operator), program.query, told.system_timestamp) for operator in relations
    ), failures


def _destination(relation: plan.Relation, query: plan.Query, time: int) -> Destination:
    outputs = tuple(output.name for output in query.outputs if _stands_on(output.relation, relation))
    to = " and ".join(f"'{output}'" for output in outputs)
    match relation:
        case plan.Aggregate(window=window):
            named = window.windows if isinstance(window, plan.Windows) else (plan.NamedWindow(None, window),)
            every = [_window(one.window, time) for one in named]
            said = "; ".join(text for text, _ in every)
            windows = tuple(span for _, spans in every for span in spans)
            return Destination(outputs, f"For {to} it counts in {said}.", windows)
        case plan.Join():
            return Destination(outputs, f"For {to} it waits, at {short_time(time)}, for the rows it joins.")
        case plan.Temporal() | plan.Match():
            return Destination(
                outputs, f"For {to} it goes, at {short_time(time)}, to the functions that look at the rows before."
            )
        case _:
            return Destination(outputs, f"For {to} it gives a row at {short_time(time)}.")


def _window(window: plan.SimpleWindow, time: int) -> tuple[str, tuple[tuple[int, int], ...]]:
    """What to say of the windows of one kind that hold a time, and the windows where they can be named."""
    panes = Panes.of(window)
    if panes is not None and panes.pane_ticks:
        size = panes.size_ticks
        spans = tuple((end - size, end) for end in panes.window_ends(time, time + size))
        kind = "tumbling" if isinstance(window, plan.Tumbling) else "hopping"
        shown = [f"({short_time(start)}, {short_time(end)}]" for start, end in spans]
        if len(shown) > _MOST_WINDOWS_SAID:
            shown = [shown[0], f"… ({len(shown)} windows) …", shown[-1]]
        plural = "s" if len(spans) > 1 else ""
        return f"the {kind} window{plural} of {format_duration(size)} {', '.join(shown)}", spans
    match window:
        case plan.Sliding(size_ticks=size):
            return (
                f"the sliding windows of {format_duration(size)} that end from {short_time(time)} until before "
                f"{short_time(time + size)}",
                (),
            )
        case plan.Session(timeout_ticks=timeout):
            return (
                f"the session that is open at {short_time(time)}, which a gap of more than {format_duration(timeout)} "
                "ends",
                (),
            )
        case _:
            return f"the snapshot of {short_time(time)}", ((time, time),)


def _stands_on(relation: plan.Relation, other: plan.Relation) -> bool:
    return relation is other or any(_stands_on(source, other) for source in plan.sources_of(relation))


def _json_time(ticks: int | None) -> str | None:
    return None if ticks is None or ticks == NO_TIME else format_time(ticks)
