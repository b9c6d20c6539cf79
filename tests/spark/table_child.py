"""Runs a job on Spark and replaces its table after a step: `python -m tests.spark.table_child JOB TABLE AFTER_STEP`.

The table's new content is on standard input.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tidegate.job import StepReport, load_job
from tidegate.spark import run_job_on_spark

if __name__ == "__main__":
    job, table, after = load_job(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
    content = sys.stdin.read()

    def on_step(report: StepReport) -> None:
        if report.number == after:
            table.write_text(content)
            os.utime(table, (1, 1))

    print(run_job_on_spark(job, master="local[2]", max_events_per_step=10, on_step=on_step).why)
