"""Flink's side of job_vs_pyflink, run by the Python of PyFlink's own environment.

The argument is the folder of JSON lines. For every line that comes on standard input the query is run once over all of
them, and a line with seconds and result rows goes out.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

EVENTS = """CREATE TABLE events (device STRING, entry_time TIMESTAMP_LTZ(3), speed DOUBLE,
    WATERMARK FOR entry_time AS entry_time - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json',
    'json.timestamp-format.standard' = 'ISO-8601')"""
RESULTS = """CREATE TABLE results (window_end TIMESTAMP(3), device STRING, n BIGINT, mean DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json')"""
QUERY = """INSERT INTO results SELECT window_end, device, COUNT(*) AS n, AVG(speed) AS mean
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(entry_time), INTERVAL '10' SECONDS))
GROUP BY window_start, window_end, device"""


def main(folder: str) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "2")
    # results in files become visible with a checkpoint
    tables.get_config().set("execution.checkpointing.interval", "1 s")
    tables.execute_sql(EVENTS.format(folder=f"file://{folder}"))
    results = Path(folder).with_name("flink-results")
    tables.execute_sql(RESULTS.format(folder=f"file://{results}"))
    print("ready", flush=True)
    for _ in sys.stdin:
        shutil.rmtree(results, ignore_errors=True)
        began = time.perf_counter()
        tables.execute_sql(QUERY).wait()
        took = time.perf_counter() - began
        print(took, sum(len(part.read_bytes().splitlines()) for part in results.iterdir()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
