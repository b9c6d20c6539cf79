"""A live job: how long after its window's end a result is on the disk, at 1,000 events a second or another rate.

A publisher in a process of its own sends events of now, with Microsoft's client, to 4 partitions; the job counts them
by device in windows of a second. With events flowing and no tolerance for disorder the watermark passes a window's
end with the next event of every partition, so what is measured is publishing, reading, stamping, evaluating, writing
and fdatasync.

    python -m benchmarks.job_live [SECONDS] [EVENTS_PER_SECOND]

TIDEGATE_PLACEMENT=process measures the job in its process instead of on Spark.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.job import StepReport, load_job
from tidegate.server import BackgroundServer
from tidegate.spark import run_job_on_spark

PARTITIONS = 4
WARM_UP_S = 10
SQL = """SELECT System.Timestamp() AS window_end, device, COUNT(*) AS n, AVG(speed) AS mean INTO results
FROM i TIMESTAMP BY entry_time GROUP BY device, TumblingWindow(second, 1)"""
PUBLISHER = f"""
import json, sys, time
from datetime import datetime, timezone
from azure.eventhub import EventData, EventHubProducerClient
client = EventHubProducerClient.from_connection_string(sys.argv[1], eventhub_name="live")
began, sent = time.time(), 0
while time.time() - began < float(sys.argv[2]):
    due = int((time.time() - began) * int(sys.argv[3])) - sent
    for partition in range({PARTITIONS}):
        batch = client.create_batch(partition_id=str(partition))
        for n in range(due // {PARTITIONS}):
            now = datetime.now(timezone.utc).isoformat()
            body = {{"device": "device-%02d" % (n % 20), "entry_time": now, "speed": 61.5}}
            batch.add(EventData(json.dumps(body)))
        client.send_batch(batch)
    sent += due // {PARTITIONS} * {PARTITIONS}
    time.sleep(0.03)
print(sent, flush=True)
"""


def main(seconds: int = 60, rate: int = 1_000) -> None:
    """Publish for a while, run the job meanwhile, and print the delays."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = NamespaceConfig(name="bench", event_hubs=(EventHubConfig(name="live", partition_count=PARTITIONS),))
        with BackgroundServer(config, folder / "data") as server:
            path = folder / "job.toml"
            path.write_text(
                f'name = "live"\nquery = """{SQL}"""\n[event_ordering]\nlate_arrival_tolerance_s = 5\n'
                f'[inputs.i]\ntype = "eventhub"\nconnection_string = "{server.connection_string};EntityPath=live"\n'
                '[outputs.results]\ntype = "file"\npath = "results.jsonl"\n',
                encoding="utf-8",
            )
            arguments = [server.connection_string, str(seconds + WARM_UP_S), str(rate)]
            arguments = [sys.executable, "-c", PUBLISHER, *arguments]
            publisher = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
            delays_s, steps_s = measure(path, publisher)
            sent = int(publisher.communicate()[0])
    table(sent / (seconds + WARM_UP_S), delays_s, steps_s)


def measure(path: Path, publisher: subprocess.Popen[str]) -> tuple[list[float], list[float]]:
    """The delay of every result after the warm-up, and the time between steps; in seconds."""
    delays_s: list[float] = []
    steps_s: list[float] = []
    began = last = time.time()

    def on_step(report: StepReport) -> None:
        nonlocal last
        now = time.time()
        if now - began > WARM_UP_S and publisher.poll() is None:
            steps_s.append(now - last)
            for rows in report.step.rows:
                delays_s.extend((now - rows.timestamps / 10_000_000).tolist())
        last = now

    run_job_on_spark(load_job(path), on_step=on_step, should_stop=lambda: publisher.poll() is not None)
    return delays_s, steps_s


def table(rate: float, delays_s: list[float], steps_s: list[float]) -> None:
    """The figures."""
    print(f"{rate:,.0f} events/s published, {len(delays_s):,} results")
    print(f"{'':28}{'median':>10}{'p95':>10}")
    for name, values in (("delay after window end, ms", delays_s), ("step, ms", steps_s)):
        p95 = statistics.quantiles(values, n=20)[-1]
        print(f"{name:28}{1000 * statistics.median(values):>10.0f}{1000 * p95:>10.0f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
