"""A live job: how long after its window's end a result is on the disk, at 1,000 events a second or another rate.

A publisher in a process of its own sends events of now, with Microsoft's client, to 4 partitions; the job counts them
by device in windows of a second. With events flowing and no tolerance for disorder the watermark passes a window's
end with the next event of every partition, so what is measured is publishing, reading, stamping, evaluating, writing
and fdatasync.

    python -m benchmarks.job_live [SECONDS] [EVENTS_PER_SECOND]

TIDEGATE_PLACEMENT=process measures the job in its process instead of on Spark.

With several rates, such as `job_live 30 10,10000,10`, each is published for so long, with Tidegate's client, which
leaves more of the machine to the job. The job is not restarted, and its results are compared with those that a job in
one process has of the same log, byte for byte.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.job import StepReport, load_job
from tidegate.server import BackgroundServer
from tidegate.spark import run_job_on_spark

PARTITIONS = 4
WARM_UP_S = 10
MOST_AT_ONCE = 8_000  # an event batch has a megabyte
SQL = """SELECT System.Timestamp() AS window_end, device, COUNT(*) AS n, AVG(speed) AS mean INTO results
FROM i TIMESTAMP BY entry_time GROUP BY device, TumblingWindow(second, 1)"""
PUBLISHER = f"""
import json, sys, time
from datetime import datetime, timezone
from azure.eventhub import EventData, EventHubProducerClient
from tidegate.client import ConnectionString
from tidegate.client.publisher import Publisher
rates = list(map(int, sys.argv[3].split(",")))
if len(rates) == 1:
    client = EventHubProducerClient.from_connection_string(sys.argv[1], eventhub_name="live")
    def send(partition, bodies):
        batch = client.create_batch(partition_id=str(partition))
        for body in bodies:
            batch.add(EventData(body))
        client.send_batch(batch)
else:
    hub = ConnectionString.parse(sys.argv[1], "live")
    publishers = [Publisher(hub) for _ in range({PARTITIONS})]
    def send(partition, bodies):
        publishers[partition].publish([body.encode() for body in bodies], partition=str(partition))
for rate in rates:
    began, sent = time.time(), 0
    while time.time() - began < float(sys.argv[2]):
        due = min(int((time.time() - began) * rate) - sent, {MOST_AT_ONCE})
        for partition in range({PARTITIONS} if due >= {PARTITIONS} else 0):
            now = datetime.now(timezone.utc).isoformat()
            body = {{"entry_time": now, "speed": 61.5}}
            count = due // {PARTITIONS}
            send(partition, [json.dumps({{"device": "device-%02d" % (n % 20), **body}}) for n in range(count)])
        sent += due // {PARTITIONS} * {PARTITIONS}
        time.sleep(0.03)
    print(began, time.time(), sent, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """A step: when it was done and how long after the one before, its events, and the delay of each of its results."""

    at: float
    took_s: float
    events: int
    delays_s: list[float]


def main(seconds: int = 60, rates: str = "1000") -> None:
    """Publish for a while, run the job meanwhile, and print the delays."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    is_steady = "," not in rates
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = NamespaceConfig(name="bench", event_hubs=(EventHubConfig(name="live", partition_count=PARTITIONS),))
        with BackgroundServer(config, folder / "data") as server:
            address = server.connection_string
            arguments = [address, str(seconds + (WARM_UP_S if is_steady else 0)), rates]
            arguments = [sys.executable, "-c", PUBLISHER, *arguments]
            publisher = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
            steps = measure(job_file(folder / "live", address), publisher)
            for rate, line in zip(rates.split(","), publisher.communicate()[0].splitlines(), strict=True):
                began, ended, sent = map(float, line.split())
                table(rate, began + (WARM_UP_S if is_steady else 0), ended, sent / (ended - began), steps)
            if not is_steady:
                compare(folder, address)


def job_file(folder: Path, address: str) -> Path:
    """Write the job, with a folder of its own."""
    folder.mkdir()
    path = folder / "job.toml"
    path.write_text(
        f'name = "live"\nquery = """{SQL}"""\n[event_ordering]\nlate_arrival_tolerance_s = 5\n'
        f'[inputs.i]\ntype = "eventhub"\nconnection_string = "{address};EntityPath=live"\n'
        '[outputs.results]\ntype = "file"\npath = "results.jsonl"\n',
        encoding="utf-8",
    )
    return path


def measure(path: Path, publisher: subprocess.Popen[str]) -> list[Taken]:
    """Run the job until the publisher has ended and all of its events are read."""
    steps: list[Taken] = []
    last = time.time()
    caught_up = False

    def on_step(report: StepReport) -> None:
        nonlocal last, caught_up
        ended = publisher.poll() is not None
        now = time.time()
        delays_s = [delay for rows in report.step.rows for delay in (now - rows.timestamps / 10_000_000).tolist()]
        steps.append(Taken(now, now - last, report.step.events, delays_s))
        last = now
        caught_up = ended and report.step.caught_up

    run_job_on_spark(load_job(path), on_step=on_step, should_stop=lambda: caught_up)
    return steps


def compare(folder: Path, address: str) -> None:
    """Compare the results with those of a job in one process, which may have been stopped at another window."""
    os.environ["TIDEGATE_PLACEMENT"] = "process"
    caught_up = False

    def on_step(report: StepReport) -> None:
        nonlocal caught_up
        caught_up = report.step.caught_up

    run_job_on_spark(load_job(job_file(folder / "again", address)), on_step=on_step, should_stop=lambda: caught_up)
    live, again = ((folder / name / "results.jsonl").read_bytes() for name in ("live", "again"))
    size = min(len(live), len(again))
    if not size or live[:size] != again[:size]:
        raise SystemExit(f"the results differ: {len(live):,} and {len(again):,} bytes")
    print(f"the same {size:,} bytes of results in one process (in all {len(live):,} and {len(again):,})")


def table(rate: str, began: float, ended: float, published: float, steps: list[Taken]) -> None:
    """Print the figures of one rate."""
    taken = [step for step in steps if began <= step.at < ended]
    busy = [step.events for step in taken if step.events]
    delays_s = [delay for step in taken for delay in step.delays_s]
    if len(delays_s) < 2:
        print(f"{rate} events/s: no results in this time")
        return
    print(f"{rate} events/s: {published:,.0f} published, {len(delays_s):,} results, {len(taken):,} steps")
    if busy:
        print(f"events of a step: median {statistics.median(busy):,.0f}, at most {max(busy):,}")
    usual_s = statistics.median(delays_s)
    late = [step.at for step in taken if step.delays_s and max(step.delays_s) > 2 * usual_s]
    settled_s = max(late, default=began) - began
    print(f"last result that took more than twice the median: {settled_s:.1f} s after the start")
    print(f"{'':28}{'median':>10}{'p95':>10}{'most':>10}")
    for name, values in (("delay after window end, ms", delays_s), ("step, ms", [step.took_s for step in taken])):
        p95 = statistics.quantiles(values, n=20)[-1]
        print(f"{name:28}{1000 * statistics.median(values):>10.0f}{1000 * p95:>10.0f}{1000 * max(values):>10.0f}")


if __name__ == "__main__":
    main(*(convert(argument) for convert, argument in zip((int, str), sys.argv[1:], strict=False)))
