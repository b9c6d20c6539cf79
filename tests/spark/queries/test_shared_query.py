"""A program that a worker of Spark unpickles once."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import gc, pickle
from tidegate.spark.queries.shared_query import SharedProgram
program = SharedProgram(pickle.dumps("anything"), "name")
program.value()
import pandas

def is_looked_at():
    return any(one is vars(pandas) for one in gc.get_objects())

print(is_looked_at())
program.value()
print(is_looked_at())
"""


@pytest.mark.slow
def test_what_its_first_use_has_imported_is_left_out_of_collections_of_garbage() -> None:
    """PySpark collects after every task, which took longer than a small task itself."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
