"""Where a job of the service runs that names no Spark of its own: in its process, or on the Spark that jobs share.

Nothing of Spark is loaded before the job needs it, and it is given back when the job has moved back to its process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from tidegate.connectors.model.errors import UnavailableError
from tidegate.engine import Program
from tidegate.job import JobError
from tidegate.job.config.spark_settings import SparkSettings, WhereRun, has_java
from tidegate.job.run.opening import OpenRun
from tidegate.job.run.placement_policy import PlacementPolicy, RunLocation
from tidegate.job.run.run import Placements, in_this_process
from tidegate.job.runtime.placement import Placement
from tidegate.service import channel

if TYPE_CHECKING:
    from tidegate.spark.shared.job import JobOnSharedSpark

_ENDED_WITHIN_S = 5.0


class SparkRequests:
    """The requests of this process to the service, for the Spark that jobs share."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._answers: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        self.in_use = threading.Event()

    def answered(self, answer: Mapping[str, Any]) -> None:
        """Take an answer; called in the thread that listens to the service."""
        self._answers.put(answer)

    def attach(self) -> Mapping[str, Any]:
        """Return the address of Spark, which may have to be started first.

        Raises:
            JobError: it cannot be started.
            UnavailableError: it cannot be started at the moment.
        """
        self._send({channel.SPARK: channel.ATTACH})
        answer = self._answers.get()
        if "unavailable" in answer:
            raise UnavailableError(str(answer["unavailable"]))
        if "problem" in answer:
            raise JobError(str(answer["problem"]))
        self.in_use.set()
        return answer

    def release(self) -> None:
        """Say that this process uses it no longer."""
        if self.in_use.is_set():
            self.in_use.clear()
            self._send({channel.SPARK: channel.RELEASE})

    def await_verdict(self) -> None:
        """Wait a little after an error: if the shared Spark has ended, the service knows why, and ends this process."""
        if self.in_use.is_set():
            time.sleep(_ENDED_WITHIN_S)


class SharedPlacements:
    """The placements of one job, see the module."""

    def __init__(self, opened: OpenRun, requests: SparkRequests) -> None:
        self._opened = opened
        self._requests = requests
        self._used: JobOnSharedSpark | None = None

    @staticmethod
    def suits(settings: SparkSettings) -> bool:
        """Return whether a job needs no Spark of its own: it has no master, properties or web UI that others lack."""
        return settings.master is None and not settings.conf and not settings.ui

    def of_run(self) -> Placements:
        """Return the placements between which the settings allow the job to move."""
        here = in_this_process(self._opened.job.policy)
        spark = self._opened.job.definition.spark
        match spark.where:
            case WhereRun.PROCESS:
                return replace(here, why=spark.why)
            case WhereRun.SPARK:
                return Placements(here.here, self._on_spark, why=spark.why)
            case WhereRun.AUTO:
                # Without Java there is nowhere to move to, and a large job runs as well as it can.
                return Placements(here.here, self._on_spark, PlacementPolicy()) if has_java() else here

    def moved(self, where: RunLocation) -> None:
        """Give Spark back if the job has moved to its own process; the end of the process gives it back anyway."""
        used = self._used
        if where.location.master is None and used is not None:
            self._used = None
            used.close()
            self._requests.release()

    def _on_spark(self, program: Program) -> Placement:
        if self._used is None:
            from tidegate.spark.shared.attachment import SparkAddress
            from tidegate.spark.shared.job import JobOnSharedSpark

            given = self._requests.attach()
            address = SparkAddress(given["port"], given["secret"], given["owner"], Path(given["folder"]))
            self._used = JobOnSharedSpark(self._opened, address)
        return self._used.placement(program)
