"""What a query reports of itself, in the form of Spark's ``StreamingQueryProgress``."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from tidegate.job import Step
from tidegate.job.run.progress_report import StepTimes
from tidegate.job.runtime.step import TimelineState
from tidegate.ordering import END_OF_TIME, NO_TIME, format_time
from tidegate.spark.streaming.steps import Handed

_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class QueryIdentity:
    """A query: ``id`` is that of its checkpoint, ``run`` that of this start; ``name`` is None if it has none."""

    id: str
    run: str
    name: str | None


@dataclass(slots=True)
class ProgressLog:
    """The latest reports of a query.

    Attributes:
        inputs: by name, what each is.
        sinks: by output, what each is.
        handed: by output, what has been handed over.
    """

    identity: QueryIdentity
    inputs: Mapping[str, str]
    sinks: Mapping[str, str]
    handed: Mapping[str, Handed]
    kept: int = 100
    _reports: deque[dict[str, Any]] = field(default_factory=deque)
    _rows: int = 0
    _began_ns: int = 0

    def note(self, step: Step, times: StepTimes) -> None:
        """Note a step, and report it if it read an event or emitted a row."""
        if not step.events and not step.result_count:
            return
        since_s = (times.began_ns - self._began_ns) / _NANOSECONDS if self._began_ns else 0.0
        self._began_ns = times.began_ns
        self._reports.append(self._report(step, times, since_s))
        while len(self._reports) > self.kept:
            self._reports.popleft()

    def reports(self) -> list[dict[str, Any]]:
        """Return the latest reports as JSON, the oldest first."""
        return list(self._reports)

    def recent(self) -> list[StreamingQueryProgress]:
        """Return the latest reports, the oldest first."""
        return [StreamingQueryProgress.fromJson(report) for report in list(self._reports)]

    def last(self) -> StreamingQueryProgress | None:
        """Return the latest report; None before the first."""
        return StreamingQueryProgress.fromJson(self._reports[-1]) if self._reports else None

    def _report(self, step: Step, times: StepTimes, since_s: float) -> dict[str, Any]:
        took_ms = (times.committed_ns - times.began_ns) // 1_000_000
        rows = sum(handed.rows for handed in self.handed.values())
        written, self._rows = rows - self._rows, rows
        adding_ms = round(1000 * sum(handed.took_s for handed in self.handed.values())) if written else 0
        by_input: dict[str, dict[str, TimelineState]] = {name: {} for name in self.inputs}
        for (name, partition), state in step.timelines.items():
            by_input.setdefault(name, {})[partition] = state
        sources = [
            {
                "description": self.inputs.get(name, name),
                "startOffset": {partition: state.position - state.events for partition, state in states.items()},
                "endOffset": {partition: state.position for partition, state in states.items()},
                "latestOffset": {partition: state.end.end for partition, state in states.items()},
                **_rates(sum(state.events for state in states.values()), since_s, took_ms),
                "metrics": {},
            }
            for name, states in by_input.items()
        ]
        known = step.watermark not in (NO_TIME, END_OF_TIME)
        return {
            "id": self.identity.id,
            "runId": self.identity.run,
            "name": self.identity.name,
            "timestamp": _time(times.began_ns),
            "batchId": max(handed.step for handed in self.handed.values()),
            "batchDuration": took_ms,
            **_rates(step.events, since_s, took_ms),
            "durationMs": {
                "triggerExecution": took_ms,
                "addBatch": adding_ms,
                "queryExecution": (times.computed_ns - times.began_ns) // 1_000_000,
                "commitOffsets": max(0, (times.committed_ns - times.computed_ns) // 1_000_000 - adding_ms),
            },
            "eventTime": {"watermark": format_time(step.watermark)} if known else {},
            # Spark's form has ten counts of state stores, which are not those of a shard.
            "stateOperators": [],
            "observedMetrics": {} if step.state_bytes is None else {"tidegate.state": {"bytes": step.state_bytes}},
            "sources": sources,
            "sink": {
                "description": ", ".join(self.sinks.values()),
                "numOutputRows": written,
                "metrics": {},
            },
        }


def _rates(events: int, since_s: float, took_ms: int) -> dict[str, Any]:
    return {
        "numInputRows": events,
        "inputRowsPerSecond": events / since_s if since_s else 0.0,
        "processedRowsPerSecond": 1000 * events / max(1, took_ms),
    }


def _time(nanoseconds: int) -> str:
    moment = datetime.fromtimestamp(nanoseconds / _NANOSECONDS, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
