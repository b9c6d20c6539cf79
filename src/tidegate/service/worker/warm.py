"""Loads what every job needs, so that processes forked afterwards share it."""

from __future__ import annotations

import pyarrow as pa

from tidegate.connectors.inputs.kinds import INPUTS
from tidegate.connectors.outputs.kinds import OUTPUTS
from tidegate.engine import CATALOG
from tidegate.service.worker import process, system
from tidegate.sql import compile_query

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
