"""Spark's daemon of Python workers: what it has imported before it forks, and the limit on the memory of workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import mmap, sys
from tidegate.spark.daemon import limit_memory
limit_memory(512 << 20)
with open(sys.argv[1], "r+b") as file:
    file.truncate(4 << 30)
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(len(mapped))
try:
    bytearray(600 << 20)
except MemoryError:
    print("refused")
"""

LOADED = """
import os, sys
from tidegate.spark.daemon import load
load()
modules = ("pyspark.worker", "pyarrow", "numpy.random")
print(len(os.listdir("/proc/self/task")), *(name in sys.modules for name in modules))
"""


def test_what_tasks_need_is_imported_without_a_thread_that_a_fork_would_not_copy() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    # The random numbers of NumPy would be the same in all workers.
    assert done.stdout.split() == ["1", "True", "True", "False"]


def test_a_worker_may_map_states_that_are_larger_than_the_memory_it_may_have(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "state")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(4 << 30), "refused"]
