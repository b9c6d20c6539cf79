"""The equality property (tests/job/equality.py) with tasks and shards on Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
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
from tidegate.spark.session import spark_context


class OfBothShapes(SparkPlacement):
    """Takes steps in one task and in several stages by turns; all of these logs are small."""

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        one_task = self._settings.small_events < 0
        most = SMALL_EVENTS if one_task else -1
        self._settings = replace(self._settings, small_events=most, first_events=most)
        return super().run(tasks, order)


def check_on_spark(master: str, log_file: Path, seeds: Iterable[int]) -> int:
    """Compute the examples of some seeds, and return how many tasks the master runs at once."""
    with (
        spark_context(SparkSettings(master=master), "equality", log_file=log_file) as context,
        tempfile.TemporaryDirectory() as folder,
    ):
        thread, session = StepThread(), SparkSession(context)

        def placed(program: Program, policy: Policy, shards: int, seed: int) -> SparkPlacement:
            return OfBothShapes(session, program, policy, PlacementSettings(shards, Path(folder)), thread)

        for seed in seeds:
            check(seed, placed)
        return context.defaultParallelism
