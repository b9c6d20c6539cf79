"""`tidegate` with executors that write the results of small steps too: `python -m tests.spark.cluster_child ARG…`."""

from __future__ import annotations

from tidegate.cli import main
from tidegate.connectors.outputs.tables import lake_output
from tidegate.spark import placement

if __name__ == "__main__":
    placement.WRITE_FROM_ROWS = 30
    lake_output.LEAST_BYTES = 0
    main()
