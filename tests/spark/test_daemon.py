"""The limit on the memory of Python workers of a shared Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import mmap, sys
from tidegate.spark.shared.daemon import limit_memory
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


def test_a_worker_may_map_states_that_are_larger_than_the_memory_it_may_have(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "state")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(4 << 30), "refused"]
