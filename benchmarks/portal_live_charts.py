"""What live charts cost the browser: an hour of a job's metrics, updated every second. Linux only.

`python -m benchmarks.portal_live_charts [SECONDS]` needs Chromium, Node.js and what the browser tests install. The job
really runs; the hour before is written into its history. The browser draws without a graphics card.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.portal import portal
from tidegate.server import BackgroundServer
from tidegate.service import JobDocument, Jobs, JobState
from tidegate.service.metric_history import MetricHistory

SCRIPT = Path(__file__).with_suffix(".mjs")
QUERY = "SELECT COUNT(*) AS n INTO o FROM i GROUP BY TumblingWindow(second, 1)"
METRICS = (
    "Input Events",
    "Output Events",
    "Late Input Events",
    "Out-of-Order Events",
    "Early Input Events",
    "Runtime Errors",
    "Data Conversion Errors",
    "Input Deserialization Errors",
    "Watermark Delay",
    "Backlogged Input Events",
)


def write_hour(folder: Path) -> None:
    """Write an hour of samples that end now."""
    history, now_s = MetricHistory(folder), time.time()
    for at in range(3600):
        history.add(now_s - 3600 + at, dict.fromkeys(METRICS, at * (3 + at % 5)))
    history.flush()


def main(seconds: int) -> None:
    """Measure, and print the shares of one core."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("no Chromium: run `scripts/need chromium`")
    folder = Path(tempfile.mkdtemp())
    jobs = Jobs(folder / "service")
    config = NamespaceConfig(name="emulatorNs1", event_hubs=(EventHubConfig(name="eh", partition_count=2),))
    with BackgroundServer(config, folder / "data", http_port=0, further_routes=[portal(jobs)]) as running, jobs:
        section = {"type": "eventhub", "connection_string": running.connection_string, "event_hub": "eh"}
        output = {"type": "file", "path": str(folder / "o.jsonl")}
        jobs.create("live", JobDocument({"query": QUERY, "inputs": {"i": section}, "outputs": {"o": output}}))
        (own,) = (folder / "service" / "jobs").iterdir()
        write_hour(own)
        jobs.start("live")
        job = jobs.wait("live", {JobState.RUNNING, JobState.FAILED}, 120)
        assert job.state is JobState.RUNNING, job.reason
        url = f"http://127.0.0.1:{running.server.http_port}/jobs/live/monitor?range=1h"
        settings = json.dumps({"url": url, "chromiumPath": chromium, "seconds": seconds})
        server_s, began = time.process_time(), time.monotonic()
        done = subprocess.run(["node", str(SCRIPT), settings], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        found = json.loads(done.stdout)
        server = (time.process_time() - server_s) / (time.monotonic() - began)
        print(f"an hour of five charts, updated every second for {seconds} s; percent of one core")
        for kind, share in sorted(found["share"].items(), key=lambda one: -one[1]):
            print(f"{kind:16} {100 * share:5.1f}")
        print(f"{'together':16} {100 * sum(found['share'].values()):5.1f}")
        print(f"{'page thread':16} {100 * found['thread']:5.1f}")
        print(f"{'server':16} {100 * server:5.1f}   (with {threading.active_count()} threads, the hub included)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
