"""A steady job on Spark with TIMESTAMP BY … OVER device: time per event, with one substream and with a million.

The queries and the log of job_substreams, a step of 10,000 events each second, as a job does that reads a hub at that
rate. Each step is a stage of Spark's, with all that this costs: the events and what travels of the state to the worker,
the results back. What is measured begins when every device has been heard of and is the mean over whole windows, so
that the steps in which a window's results leave are in it. Steps follow each other at once. Beside the time stands what
all processes used of the processors.

    python -m benchmarks.job_substreams_on_spark [MOST_SUBSTREAMS] [QUERY …]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks._backlog import ProcessorTime, job_session, on_spark
from benchmarks.job_substreams import DAYS, QUERIES, MadeLog
from tidegate.engine import CATALOG, Program
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.ordering import Policy
from tidegate.sql import compile_query

STEP_EVENTS = 10_000
WARM_UP_STEPS = 10
MEASURED_STEPS = 40


def microseconds_per_event(
    spark: SparkSession, used: ProcessorTime, sql: str, log: MadeLog, late_s: int, folder: Path
) -> tuple[float, float]:
    """Of time and of processor time, over whole windows."""
    program = Program.prepare(compile_query(sql, catalog=CATALOG))
    policy = Policy.seconds(late=late_s)
    placement = on_spark(spark, program, policy, folder)
    log.shown = len(log.bodies) - (WARM_UP_STEPS + MEASURED_STEPS) * STEP_EVENTS
    stepper = Stepper(program, policy, {"i": log}, placement, settings=StepSettings(250_000))
    while not stepper.step().caught_up:
        pass
    begin = time.perf_counter(), used.seconds()
    for number in range(WARM_UP_STEPS + MEASURED_STEPS):
        if number == WARM_UP_STEPS:
            begin = time.perf_counter(), used.seconds()
        log.shown += STEP_EVENTS
        for rows in stepper.step().rows:
            rows.to_json_lines()
    events = MEASURED_STEPS * STEP_EVENTS / 1e6
    costs = (time.perf_counter() - begin[0]) / events, (used.seconds() - begin[1]) / events
    placement.close()
    return costs


def main(arguments: Sequence[str]) -> int:
    """Print a table; 1 if the bar is missed."""
    most = int(arguments[0]) if arguments else 1_000_000
    used, folder = ProcessorTime(), Path(tempfile.mkdtemp())
    table = Table("query", "substreams", "late tolerance", "µs per event", "ratio", "µs of processors", "ratio")
    worst = 0.0
    with job_session() as spark:
        for name in arguments[1:] or QUERIES:
            first = None
            for substreams in (1, most):
                log = MadeLog(substreams, 20)
                for late_s in (5, DAYS):
                    costs = microseconds_per_event(spark, used, QUERIES[name], log, late_s, folder)
                    first = first or costs
                    ratios = [cost / one for cost, one in zip(costs, first, strict=True)]
                    worst = max(worst, ratios[0])
                    late = "5 s" if late_s == 5 else "20 d"
                    cells = [f"{value:.2f}" for pair in zip(costs, ratios, strict=True) for value in pair]
                    table.add_row(name, f"{substreams:,}", late, *cells)
    Console().print(table)
    print(f"worst ratio of time to one substream {worst:.2f}, to be at most 2")
    return int(worst > 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
