"""Settings of the service."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.service.sharing.shared_spark import SharedSparkSettings


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What the processes of jobs may use.

    Attributes:
        memory_bytes_per_unit: of memory that is the process's own, for each streaming unit. A process that uses more
            is ended, with that as the reason, and started again.
        nice: how much jobs yield the processor to the hub.
    """

    memory_bytes_per_unit: int = 1 << 30
    nice: int = 10


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How jobs are run.

    Attributes:
        key_file: the key of the secrets at rest; None: `key` in the service's folder.
        limits: what a job may use.
        spark: the Spark that jobs share.
        max_events_per_step: how much of a backlog one step reads; None: what the job file says, or a million.
        parallelism: how many tasks a step has at most.
        traces: URL of the OpenTelemetry collector that traces of steps are sent to; None: none are made.
    """

    key_file: Path | None = None
    limits: ResourceLimits = ResourceLimits()
    spark: SharedSparkSettings = field(default_factory=SharedSparkSettings)
    max_events_per_step: int | None = None
    parallelism: int = min(2, os.cpu_count() or 1)
    traces: str | None = None
