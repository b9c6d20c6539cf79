"""Questions about a job's own log: what other tolerances would do, the watermark picture, and one event's story."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.events import InputLog
from tidegate.job.analysis.event_explanation import explain_events
from tidegate.job.analysis.replay import replayed, state_before, stretch
from tidegate.job.analysis.replay_source import ReplaySource
from tidegate.job.analysis.tuning import tuned
from tidegate.job.prepare.opening import close_logs, open_logs
from tidegate.job.runtime.task import TraceRows
from tidegate.ordering import (
    EARLY,
    INVALID_TIMESTAMP,
    LATE,
    NO_TIME,
    OUT_OF_ORDER,
    TICKS_PER_SECOND,
    parse_time,
)
from tidegate.service.workbench.samples import LogEnd, job_of

MAX_DOTS = 4000
LAST_EVENTS = 20_000
TUNED_EVENTS = 1_000_000
LADDER_S = (
    0,
    1,
    2,
    5,
    10,
    15,
    20,
    30,
    45,
    60,
    90,
    120,
    180,
    300,
    600,
    900,
    1200,
    1800,
    3600,
    7200,
    21600,
    43200,
    86400,
)
ORDER_S = (0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 420, 480, 540, 599)
_FATES = ("on time", "adjusted", "dropped")
_REASONS = ((EARLY, "early"), (LATE, "late"), (OUT_OF_ORDER, "out of order"), (INVALID_TIMESTAMP, "unreadable"))


@contextmanager
def _source(question: Mapping[str, Any], events: int | None = None) -> Iterator[ReplaySource]:
    """Yield a job's query, policy and logs; with `events`, only the last of the logs. Raises JobError."""
    job = job_of(question["definition"])
    opened, _ = open_logs(job.definition, job.program, job.policy)
    logs: Mapping[str, InputLog] = opened
    if events is not None:
        logs = {name: LogEnd.of(log, events) for name, log in opened.items()}
    try:
        yield ReplaySource(job.definition.name, job.program, job.policy, logs, job.definition)
    finally:
        close_logs(opened)


def tuned_log(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each pair of tolerances on the sliders would do to the log's last events.

    `further` adds tolerances between the steps of the sliders, in seconds: `late` and `order`.

    Raises:
        JobError: a log cannot be read.
    """
    further = question.get("further") or {}
    with _source(question, TUNED_EVENTS) as source:
        own = source.policy
        late = _steps(LADDER_S, own.late_ticks, further.get("late"))
        order = _steps(ORDER_S, own.out_of_order_ticks, further.get("order"))
        found = tuned(source, late_ticks=late, out_of_order_ticks=order).as_json()
    return {
        **found,
        "lateSeconds": [ticks / TICKS_PER_SECOND for ticks in late],
        "outOfOrderSeconds": [ticks / TICKS_PER_SECOND for ticks in order],
        "mostEvents": TUNED_EVENTS,
    }


def _steps(ladder: Sequence[int], own: int | None, further_s: float | None) -> list[int]:
    further = None if further_s is None else round(further_s * TICKS_PER_SECOND)
    added = {ticks for ticks in (own, further) if ticks is not None and ticks >= 0}
    return sorted({seconds * TICKS_PER_SECOND for seconds in ladder} | added)


def _time(question: Mapping[str, Any], name: str) -> int | None:
    """Return a time that a question names, None without it. Raises JobError."""
    try:
        return parse_time(question[name]) if question.get(name) else None
    except ValueError as error:
        raise JobError(f"{name}: {error}") from None


def picture(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dots of the watermark picture, and each timeline's watermark, of a stretch of arrivals.

    Without `from` and `to`, the stretch is that of the last events. Where there are more events than dots, those that
    a rule has touched are kept first.

    Raises:
        JobError: `from` or `to` is no time, no event arrived in the stretch, or a log cannot be read.
    """
    first, stop = (_time(question, name) for name in ("from", "to"))
    traces: list[TraceRows] = []
    with _source(question) as source:
        stretches = stretch(source, first, stop)
        if first is None:
            each = max(1, LAST_EVENTS // max(1, len(stretches)))
            stretches = {timeline: (max(begin, end - each), end) for timeline, (begin, end) in stretches.items()}
        for timeline, (begin, end) in stretches.items():
            carry = state_before(source, timeline, begin).carry
            for result in replayed(source, timeline, begin, end, carry):
                traces += result.traces
        policy = source.policy
        described = policy.describe()
    shown = [_dots(trace) for trace in traces]
    events = sum(len(trace.arrivals) for trace in traces)
    dots = [dot for dots in shown for dot in dots]
    if len(dots) > MAX_DOTS:
        touched = [dot for dot in dots if dot[4] != _FATES[0]]
        rest = [dot for dot in dots if dot[4] == _FATES[0]]
        room = max(0, MAX_DOTS - len(touched))
        dots = touched[:MAX_DOTS] + rest[:: max(1, -(-len(rest) // room))] if room else touched[:MAX_DOTS]
    dots.sort(key=lambda dot: dot[2])
    return {
        "columns": ["timeline", "sequenceNumber", "arrival", "eventTime", "outcome", "watermark", "reason"],
        "dots": dots,
        "events": events,
        "policy": described,
    }


def _dots(trace: TraceRows) -> list[list[Any]]:
    """Return a dot for each event; times in milliseconds since 1970, None for none."""
    stamps = trace.stamps
    name = f"{trace.input}/{trace.partition}"

    def milliseconds(ticks: Any) -> list[float | None]:
        return [None if value == NO_TIME else value / 10_000 for value in ticks.tolist()]

    return [
        [name, number, arrival, time, _FATES[fate], watermark, _reason(reasons)]
        for number, arrival, time, fate, watermark, reasons in zip(
            trace.sequence_numbers.tolist(),
            milliseconds(trace.arrivals),
            milliseconds(np.asarray(trace.event_times)),
            stamps.fate.tolist(),
            milliseconds(stamps.watermark),
            stamps.reasons.tolist(),
            strict=True,
        )
    ]


def _reason(bits: int) -> str | None:
    """Return the first rule that touched an event, None for none."""
    return next((name for bit, name in _REASONS if bits & bit), None)


def explained(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return what happened to one event, and why. Raises JobError."""
    with _source(question) as source:
        timeline = source.timeline(question.get("input"), str(question["partition"]))
        (event,) = explain_events(source, timeline, [int(question["sequenceNumber"])])
        return event.as_json()
