"""Computes examples of the equality property with their tasks on a Spark master: `MASTER SEED…`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.job.equality import check
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.spark.runner import SparkRunner
from tidegate.spark.session import spark_context

if __name__ == "__main__":
    with spark_context(SparkSettings(master=sys.argv[1]), "equality", log_file=Path(sys.argv[2])) as context:
        print(f"{context.defaultParallelism} at once", flush=True)
        for seed in sys.argv[3:]:
            check(int(seed), lambda program, policy: SparkRunner(context, program, policy))
            print(seed, flush=True)
