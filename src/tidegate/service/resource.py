"""A job as a resource: what the service keeps of it, and the immutable picture of it that readers get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from tidegate.service.states import JobState

DEFAULT_EVENT_ORDERING: Mapping[str, Any] = MappingProxyType(
    {
        "late_arrival_tolerance_s": 5,
        "out_of_order_tolerance_s": 0,
        "action": "adjust",
        "early_arrival_tolerance_s": 300,
        "timelines": "by partition",
        "enabled": True,
    }
)
"""The policy of a job whose definition has none; the defaults of the job file."""


class StartMode(StrEnum):
    """Where a job's output starts, by the names of Stream Analytics' outputStartMode."""

    NOW = "JobStartTime"
    CUSTOM = "CustomTime"
    LAST = "LastOutputEventTime"


@dataclass(frozen=True, slots=True)
class Scale:
    """What a job may use.

    Attributes:
        streaming_units: each is `ResourceLimits.memory_bytes_per_unit` of memory.
    """

    streaming_units: int = 1


@dataclass(frozen=True, slots=True)
class JobDocument:
    """What a user says about a job.

    Attributes:
        definition: the content of a job file. It may be incomplete until the job is started. Paths are absolute.
        arm: what Azure's management API keeps beside it, in the API's own terms; the service only stores it.
        scale: what the job may use.
    """

    definition: Mapping[str, Any] = field(default_factory=dict)
    arm: Mapping[str, Any] = field(default_factory=dict)
    scale: Scale = Scale()


@dataclass(frozen=True, slots=True)
class QueryPeriod:
    """One query (with its event ordering and functions) that a job has run, and the results that are its own.

    Attributes:
        fingerprint: what identifies it.
        query: its text; None if it was run before the service kept texts.
        since: when it was first run.
        results_from: its results begin at this time, as it is written; None: at the log's beginning.
        results_before: they end before this time; None: it is the present one.
        first_rows: by output, the number of its first row in the job's sequence of rows.
    """

    fingerprint: str
    query: str | None
    since: str
    results_from: str | None
    results_before: str | None
    first_rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobSummary:
    """How a job is, as far as no file has to be read for it; see `JobResource` for the fields.

    Attributes:
        metrics: what its process last measured, under the names of Stream Analytics; empty if none runs.
    """

    name: str
    state: JobState
    reason: str | None
    restarts: int
    process: int | None
    metrics: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobResource:
    """A job at one moment. Secrets are None.

    Attributes:
        name: as it was created; names that differ only in case are the same job.
        job_id: a UUID, the job's own for its whole life.
        etag: changes whenever the definition, the ARM parts or the scale change.
        state: see `JobState`.
        reason: why it is in this state, for people; None if there is nothing to say.
        definition: the content of its job file.
        arm: see `JobDocument`.
        scale: what it may use.
        created: when it was created. changed: when its definition was last changed.
        state_since: when it came into this state.
        started: when a user last started it; None: never.
        start_mode: how it was last started.
        output_start: the output start time of the last start, where there was one.
        last_output: up to which time its results have left, in event time; None: there are none yet.
        placement: where it last ran, in its own process or on Spark, since when and why; None: it has not run yet.
        restarts: how often its process was started again by itself since it was started.
        process: the number of its process, if it has one.
        versions: the queries it has run, the oldest first.
    """

    name: str
    job_id: str
    etag: str
    state: JobState
    reason: str | None
    definition: Mapping[str, Any]
    arm: Mapping[str, Any]
    scale: Scale
    created: datetime
    changed: datetime
    state_since: datetime
    started: datetime | None = None
    start_mode: StartMode | None = None
    output_start: datetime | None = None
    last_output: datetime | None = None
    placement: Mapping[str, Any] | None = None
    restarts: int = 0
    process: int | None = None
    versions: tuple[QueryPeriod, ...] = ()

    @property
    def query(self) -> str | None:
        """The query's text, if the definition holds it."""
        query = self.definition.get("query")
        return query if isinstance(query, str) else None

    @property
    def event_ordering(self) -> Mapping[str, Any]:
        """The event-ordering policy, with the defaults of the job file."""
        return {**DEFAULT_EVENT_ORDERING, **self.definition.get("event_ordering", {})}

    @property
    def inputs(self) -> Mapping[str, Mapping[str, Any]]:
        """The inputs, by the name that the query uses, as the job file has them."""
        return dict(self.definition.get("inputs", {}))

    @property
    def outputs(self) -> Mapping[str, Mapping[str, Any]]:
        """The outputs, by the name that the query uses, as the job file has them."""
        return dict(self.definition.get("outputs", {}))

    @property
    def functions(self) -> Mapping[str, Mapping[str, Any]]:
        """The functions, by the name that the query calls, as the job file has them."""
        return dict(self.definition.get("functions", {}))
