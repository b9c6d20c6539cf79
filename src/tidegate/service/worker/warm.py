"""Loads what every job needs, so that processes forked afterwards share it."""

from __future__ import annotations

import pyarrow as pa

from tidegate.engine import CATALOG
from tidegate.job.inputs.kinds import INPUTS
from tidegate.job.outputs.kinds import OUTPUTS
from tidegate.saql import compile_query
from tidegate.service.worker import process, system

_QUERY = (
    "SELECT System.Timestamp() AS t, COUNT(*) AS n INTO o FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 1)"
)


def load() -> None:
    """Import the engine and every kind of input and output, and compile a query once."""
    assert process
    assert INPUTS.by_name
    assert OUTPUTS.by_name
    pa.array(["warm"])
    compile_query(_QUERY, catalog=CATALOG)
    system.name_process("tidegate-jobs")
