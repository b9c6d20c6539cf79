"""The watermark picture of a stretch of a job's log: every event as the job stamps it, every timeline's watermark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.events import Int64Array
from tidegate.engine import TaskSide
from tidegate.job.analysis.picture import watermark_svg
from tidegate.job.analysis.replay import BATCH_EVENTS, CHUNK_EVENTS, replayed, state_before, stretch
from tidegate.job.analysis.replay_source import ReplaySource
from tidegate.job.runtime.step import Timeline
from tidegate.job.runtime.task import TraceRows
from tidegate.job.runtime.watermark_blockers import text_of_key
from tidegate.ordering import Stamps

NO_KEY = "without a key"


def stretch_svg(
    source: ReplaySource, *, from_ticks: int | None = None, to_ticks: int | None = None, title: str | None = None
) -> str:
    """Draw the events with ``from_ticks`` ≤ arrival < ``to_ticks`` as an SVG document (text).

    They are stamped as in the job: events before the stretch are read as far back as they matter.

    Raises:
        JobError: no event arrived in that stretch.
        InputError: a log cannot be read.
    """
    traces: list[TraceRows] = []
    names: list[str] = []
    for timeline, (first, stop) in stretch(source, from_ticks, to_ticks).items():
        carry = state_before(source, timeline, first).carry
        for result in replayed(source, timeline, first, stop, carry):
            traces += result.traces
        names += _timelines(source, timeline, first, stop, sum(len(trace.arrivals) for trace in traces) - len(names))
    if not names:
        raise JobError(f"{source.name}: there is no event to draw" + (" in this stretch" if from_ticks else ""))
    arrivals = _joined([trace.arrivals for trace in traces])
    order = np.argsort(arrivals, kind="stable")
    stamps = [trace.stamps for trace in traces]
    inputs = {trace.input for trace in traces}
    policies = {source.policy_of(name) for name in inputs}
    return watermark_svg(
        _joined([trace.event_times for trace in traces])[order],
        arrivals[order],
        Stamps(
            _joined([one.system_timestamp for one in stamps])[order],
            np.concatenate([one.fate for one in stamps])[order],
            np.concatenate([one.reasons for one in stamps])[order],
            _joined([one.watermark_event for one in stamps])[order],
            _joined([one.watermark for one in stamps])[order],
        ),
        title=title or f"{source.name}: what became of each event, and the watermark",
        policy=policies.pop() if len(policies) == 1 else None,
        timelines=[names[place] for place in order.tolist()] if len(set(names)) > 1 else None,
    )


def _timelines(source: ReplaySource, timeline: Timeline, first: int, stop: int, rows: int) -> Iterator[str]:
    """Yield the name of each row's timeline: its partition, or its substream."""
    name, partition = timeline
    several = len(source.logs) > 1
    where = f"{name}, partition {partition}" if several else f"partition {partition}"
    if not source.program.has_substreams(name):
        yield from [where] * rows
        return
    alone = len(source.logs[name].ends()) == 1 and not several
    for begin in range(first, stop, CHUNK_EVENTS):
        log_range = source.logs[name].range(partition, begin, min(begin + CHUNK_EVENTS, stop))
        for events in log_range.read_events(BATCH_EVENTS):
            substreams = TaskSide(source.program).decode(name, partition, events).substreams
            assert substreams is not None
            keys = [text_of_key(key) for key in substreams.keys.to_list()]
            for code in substreams.codes.tolist():
                key = keys[code] if code >= 0 else NO_KEY
                yield key if alone else f"{key} ({where})"


def _joined(columns: Sequence[Int64Array]) -> Int64Array:
    joined: Int64Array = np.concatenate(columns)
    return joined
