"""Computes examples of the equality property with tasks and shards on a Spark master: `MASTER LOG SEED…`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tests.job.equality import check
from tidegate.engine import Program
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.ordering import Policy
from tidegate.spark.calls import StepThread
from tidegate.spark.placement import PlacementSettings, SparkPlacement
from tidegate.spark.runner import SparkRunner
from tidegate.spark.session import spark_context

if __name__ == "__main__":
    settings = SparkSettings(master=sys.argv[1])
    with (
        spark_context(settings, "equality", log_file=Path(sys.argv[2])) as context,
        tempfile.TemporaryDirectory() as folder,
    ):
        print(f"{context.defaultParallelism} at once", flush=True)
        thread, session = StepThread(), SparkSession(context)

        def placed(program: Program, policy: Policy, shards: int, seed: int) -> SparkPlacement:
            return SparkPlacement(session, program, policy, PlacementSettings(shards, Path(folder)), thread)

        for number in sys.argv[3:]:
            check(int(number), lambda program, policy: SparkRunner(context, program, policy), placed)
            print(number, flush=True)
