"""Spark's daemon of Python workers, with what tasks need: `spark.python.daemon.module` where executors surely have it.

PySpark's own daemon forks workers before it imports anything, because a library may start threads when it is imported,
and a fork does not copy threads (`pyspark.daemon.worker`). Each worker then spends about a second of processor time on
imports. The libraries that tasks need can be configured to start no threads.

On a shared Spark it also limits the memory of workers. PySpark can limit a worker by itself
(`spark.executor.pyspark.memory`), but it limits address space, and the states of shards are mapped files, which may be
far larger than the memory. This is a limit on memory that is the worker's own.
"""

from __future__ import annotations

import importlib
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


def load() -> None:
    """Import what tasks need, and start no thread."""
    # Arrow's own jemalloc would return memory to the system in a thread; its default pool is mimalloc's.
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    # NumPy's linear algebra would have a thread for each core. Spark says how many cores a task has.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    for name in ("pyspark.worker", "tidegate.spark.stages"):
        importlib.import_module(name)


if __name__ == "__main__":
    if BYTES in os.environ:
        limit_memory(int(os.environ[BYTES]))
    load()
    manager()
