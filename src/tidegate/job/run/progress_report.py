"""The times of steps, and reports of them in the form of Spark's ``StreamingQueryProgress``.

Tools that read what a ``StreamingQueryListener`` writes can read these: names, units and nesting are Spark's. The
number of a step takes the place of ``batchId``, and offsets are sequence numbers by partition. What Spark does not have
is in ``tidegate``.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidegate.job.run.placement_policy import RunLocation
from tidegate.job.runtime.step import Step, TimelineState
from tidegate.ordering import END_OF_TIME, NO_TIME, format_time

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The times of a step in nanoseconds of Unix time."""

    began_ns: int
    computed_ns: int
    committed_ns: int

    def as_json(self) -> dict[str, int]:
        """Return how long the step and its parts took, in milliseconds."""
        return {
            "compute": (self.computed_ns - self.began_ns) // _NS_PER_MS,
            "commit": (self.committed_ns - self.computed_ns) // _NS_PER_MS,
            "triggerExecution": (self.committed_ns - self.began_ns) // _NS_PER_MS,
        }


_NS_PER_S = 1_000_000_000


class ProgressReport:
    """Describes the steps of one run."""

    def __init__(self, name: str, identity: str, outputs: Mapping[str, str]) -> None:
        """
        Args:
            identity: of the job's journal; it is the same after a restart.
            outputs: the kind of each output, by name.
        """
        self._name = name
        self._identity = identity
        self._outputs = outputs
        self._run = str(uuid.uuid4())
        self._began_before_ns: int | None = None

    def of(self, number: int, step: Step, times: StepTimes, where: RunLocation) -> dict[str, Any]:
        """Return the report of a step as JSON; ``number`` counts the steps that found something, from 0."""
        gap_ns = None if self._began_before_ns is None else times.began_ns - self._began_before_ns
        self._began_before_ns = times.began_ns
        spent_ns = times.committed_ns - times.began_ns
        by_input: dict[str, dict[str, TimelineState]] = {}
        for (name, partition), state in step.timelines.items():
            by_input.setdefault(name, {})[partition] = state
        return {
            "id": self._identity,
            "runId": self._run,
            "name": self._name,
            "timestamp": datetime.fromtimestamp(times.began_ns / _NS_PER_S, UTC).isoformat(timespec="milliseconds")[:-6]
            + "Z",
            "batchId": number,
            "batchDuration": times.as_json()["triggerExecution"],
            **_rates(step.events, gap_ns, spent_ns),
            "durationMs": times.as_json(),
            "eventTime": {"watermark": format_time(step.watermark)}
            if step.watermark not in (NO_TIME, END_OF_TIME)
            else {},
            "stateOperators": [
                {
                    "operatorName": "keyedSide",
                    "memoryUsedBytes": step.state_bytes or 0,
                    "numStateStoreInstances": where.location.shards,
                }
            ],
            "sources": [_source(name, states, gap_ns, spent_ns) for name, states in sorted(by_input.items())],
            "sink": {
                "description": ", ".join(f"{name} ({kind})" for name, kind in self._outputs.items()),
                "numOutputRows": step.result_count,
            },
            "tidegate": {"backlog": step.backlog, "placement": where.as_json()},
        }


def _rates(events: int, gap_ns: int | None, spent_ns: int) -> dict[str, Any]:
    return {
        "numInputRows": events,
        "inputRowsPerSecond": 0.0 if not gap_ns else events * _NS_PER_S / gap_ns,
        "processedRowsPerSecond": 0.0 if not spent_ns else events * _NS_PER_S / spent_ns,
    }


def _source(name: str, states: Mapping[str, TimelineState], gap_ns: int | None, spent_ns: int) -> dict[str, Any]:
    return {
        "description": name,
        "startOffset": {partition: state.position - state.events for partition, state in states.items()},
        "endOffset": {partition: state.position for partition, state in states.items()},
        "latestOffset": {partition: state.end.end for partition, state in states.items()},
        **_rates(sum(state.events for state in states.values()), gap_ns, spent_ns),
    }
