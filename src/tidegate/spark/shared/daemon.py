"""Spark's daemon of Python workers, whose memory is limited: `spark.python.daemon.module` of a shared Spark.

PySpark can limit a worker by itself (`spark.executor.pyspark.memory`), but it limits address space, and the states of
shards are mapped files, which may be far larger than the memory. This is a limit on memory that is the worker's own.
"""

from __future__ import annotations

import os
import sys

from pyspark.daemon import manager

BYTES = "TIDEGATE_SPARK_WORKER_BYTES"
"""The environment variable with the limit."""


def limit_memory(most_bytes: int) -> None:
    """Let requests of this process, and of those that it forks, fail beyond so much memory of their own. Linux only."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))


if __name__ == "__main__":
    limit_memory(int(os.environ[BYTES]))
    manager()
