"""Computes examples of the equality property with tasks and shards on a Spark master: `MASTER LOG SEED…`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from tests.job.equality import check
from tidegate.engine import Program
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.placement import Outcome
from tidegate.job.runtime.task import Task
from tidegate.ordering import Policy
from tidegate.spark.calls import StepThread
from tidegate.spark.placement import SMALL_EVENTS, PlacementSettings, SparkPlacement
from tidegate.spark.runner import SparkRunner
from tidegate.spark.session import spark_context


class OfBothShapes(SparkPlacement):
    """Takes steps in one task and in several stages by turns; all of these logs are small."""

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        one_task = self._settings.small_events < 0
        most = SMALL_EVENTS if one_task else -1
        self._settings = replace(self._settings, small_events=most, first_events=most)
        return super().run(tasks, order)


if __name__ == "__main__":
    settings = SparkSettings(master=sys.argv[1])
    with (
        spark_context(settings, "equality", log_file=Path(sys.argv[2])) as context,
        tempfile.TemporaryDirectory() as folder,
    ):
        print(f"{context.defaultParallelism} at once", flush=True)
        thread, session = StepThread(), SparkSession(context)

        def placed(program: Program, policy: Policy, shards: int, seed: int) -> SparkPlacement:
            return OfBothShapes(session, program, policy, PlacementSettings(shards, Path(folder)), thread)

        for number in sys.argv[3:]:
            check(int(number), lambda program, policy: SparkRunner(context, program, policy), placed)
            print(number, flush=True)
