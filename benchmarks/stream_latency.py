"""The latency of `tidegate.spark.stream`: from an event to `foreachBatch`, and of `processAllAvailable`.

A query passes events of a hub on. One event at a time is published, some time after the one before it has come out, so
that the query is idle when it arrives. Where the time goes is in the progress of Spark's batches, whose medians are
printed, too, with the processor time of all processes while nothing happens.

Spark's workers are reached by Unix sockets, as in a session that is set up for small steps; with `tcp`, over loopback,
as is Spark's default. Over Unix sockets Spark's daemon prints a `BrokenPipeError` for each worker that is idle when the
session ends: the worker reports that its socket was closed, to the socket.

    python -m benchmarks.stream_latency [EVENTS [tcp]]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks._backlog import spark_session
from benchmarks.service_shared_spark import below, processor_s
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer
from tidegate.spark import stream

PARTITIONS = 4
WARM_UP = 15
APART_S = 0.4
REST_S, IDLE_S = 10, 30


def main(events: int = 50, sockets: str = "unix") -> None:
    """Run the query, and print the table."""
    came = threading.Semaphore(0)

    def take(rows: DataFrame, batch: int) -> None:
        # The first batch of all may be empty, and would count as the event that is published next.
        for _ in rows.collect():
            came.release()

    with tempfile.TemporaryDirectory() as temporary:
        config = NamespaceConfig(name="bench", event_hubs=(EventHubConfig(name="live", partition_count=PARTITIONS),))
        with BackgroundServer(config, Path(temporary) / "data") as server:
            log = server.server.namespace.event_hub("live").partitions[0].log
            names = {"enabled": "true", "dir": temporary} if sockets == "unix" else {}
            spark = spark_session(**{f"spark_python_unix_domain_socket_{name}": value for name, value in names.items()})
            query = (
                stream(
                    spark,
                    "SELECT device INTO results FROM i",
                    inputs={"i": {"connectionString": server.connection_string, "eventHub": "live"}},
                    schema="device string",
                )
                .option("checkpointLocation", f"{temporary}/checkpoint")
                .foreachBatch(take)
                .start()
            )

            def publish() -> None:
                body, stored = b'{"device":"a"}', threading.Event()
                log.append([b"\x00\x53\x75\xa0" + bytes((len(body),)) + body], lambda outcome: stored.set())
                # Else `processAllAvailable` might return before there is an event.
                stored.wait()

            reached_s: list[float] = []
            for _ in range(WARM_UP + events):
                time.sleep(APART_S)
                began = time.perf_counter()
                publish()
                came.acquire()
                reached_s.append(time.perf_counter() - began)
            phases: list[dict[str, Any]] = [dict(one.durationMs) for one in query.recentProgress if one.numInputRows]
            all_s: list[float] = []
            for _ in range(events):
                time.sleep(APART_S)
                publish()
                began = time.perf_counter()
                query.processAllAvailable()
                all_s.append(time.perf_counter() - began)
            time.sleep(REST_S)
            pids = [os.getpid(), *below(os.getpid())]
            before = {pid: processor_s(pid) for pid in pids}
            time.sleep(IDLE_S)
            # Spark ends workers that have nothing to do.
            idle = sum(max(0.0, processor_s(pid) - before[pid]) for pid in pids) / IDLE_S
            query.stop()
            spark.stop()
    print(f"{'':36}{'median ms':>10}{'p95 ms':>10}")
    for name, values in (("event to foreachBatch", reached_s[WARM_UP:]), ("processAllAvailable", all_s)):
        p95 = statistics.quantiles(values, n=20)[-1]
        print(f"{name:36}{1000 * statistics.median(values):>10.0f}{1000 * p95:>10.0f}")
    for name in sorted({name for one in phases for name in one}):
        values = [one.get(name, 0) for one in phases[-events:]]
        print(f"  batch: {name:27}{statistics.median(values):>10.0f}")
    print(f"processor time while idle, with the hub: {100 * idle:.0f} % of a core")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]), *sys.argv[2:])
