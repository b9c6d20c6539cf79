"""Flink's side of job_vs_pyflink, run by the Python of PyFlink's own environment.

The argument is the folder of JSON lines. For every line that comes on standard input the query is run once over all of
them, and a line with seconds and result rows goes out.
"""

from __future__ import annotations

import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment

EVENTS = """CREATE TABLE events (device STRING, entry_time TIMESTAMP_LTZ(3), speed DOUBLE,
    WATERMARK FOR entry_time AS entry_time - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json',
    'json.timestamp-format.standard' = 'ISO-8601')"""
QUERY = """SELECT window_end, device, COUNT(*) AS n, AVG(speed) AS mean
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(entry_time), INTERVAL '10' SECONDS))
GROUP BY window_start, window_end, device"""


def main(folder: str) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "2")
    tables.execute_sql(EVENTS.format(folder=f"file://{folder}"))
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        with tables.execute_sql(QUERY).collect() as results:
            rows = sum(1 for _ in results)
        print(time.perf_counter() - began, rows, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
