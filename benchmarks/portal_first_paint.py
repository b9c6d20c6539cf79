"""How soon the portal's overview, a job and its monitor are painted, with 1,000 event hubs and 100 jobs.

`python -m benchmarks.portal_first_paint` needs Chromium, Node.js and what the browser tests install. Each figure is the
median of the visits; a visit begins with an empty cache, and with a blank page, which is the peer.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.portal import portal
from tidegate.server import BackgroundServer
from tidegate.service import JobDocument, Jobs, JobState

HUBS, JOBS, VISITS = 1000, 100, 5
QUERY = "SELECT COUNT(*) AS n INTO o FROM i GROUP BY TumblingWindow(second, 5)"
SCRIPT = Path(__file__).with_suffix(".mjs")


def make_jobs(folder: Path, jobs: Jobs, count: int) -> None:
    """Create jobs that have run: one of them really, the others with a copy of its state."""
    log = folder / "log.jsonl"
    lines = [{"arrival": f"2026-01-01T00:{at // 60:02d}:{at % 60:02d}Z", "body": {"a": at}} for at in range(600)]
    log.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    for number in range(count):
        name, state = f"job-{number:03d}", folder / "states" / f"{number}"
        definition = {
            "query": QUERY,
            "inputs": {"i": {"type": "recorded", "path": str(log)}},
            "outputs": {"o": {"type": "file", "path": str(folder / f"{number}.jsonl")}},
            "state_dir": str(state),
        }
        jobs.create(name, JobDocument(definition))
        if number:
            shutil.copytree(folder / "states" / "0", state)
        else:
            jobs.start(name)
            ended = jobs.wait(name, {JobState.STOPPED, JobState.FAILED}, 120)
            assert ended.state is JobState.STOPPED, ended.reason


def main() -> None:
    """Measure, and print a line for each page."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("no Chromium: run `scripts/need chromium`")
    folder = Path(tempfile.mkdtemp())
    hubs = tuple(EventHubConfig(name=f"hub-{number:04d}", partition_count=1) for number in range(HUBS))
    jobs = Jobs(folder / "service")
    config = NamespaceConfig(name="emulatorNs1", event_hubs=hubs)
    with BackgroundServer(config, folder / "data", http_port=0, further_routes=[portal(jobs)]) as running, jobs:
        make_jobs(folder, jobs, JOBS)
        base = f"http://127.0.0.1:{running.server.http_port}"
        pages = ("/", "/eventhubs/hub-0500", "/jobs/job-050", "/jobs/job-050/monitor")
        settings = {"urls": [base + page for page in pages], "chromiumPath": chromium, "visits": VISITS}
        done = subprocess.run(["node", str(SCRIPT), json.dumps(settings)], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        print(f"{HUBS:,} event hubs, {JOBS} jobs; milliseconds, medians of {VISITS} visits")
        for page, visits in zip(pages, json.loads(done.stdout).values(), strict=True):
            keys = ("paint", "answer", "blank")
            paint, answer, blank = (statistics.median(visit[key] for visit in visits) for key in keys)
            slowest = max(visit["paint"] for visit in visits)
            kib = visits[0]["bytes"] / 1024
            print(
                f"{page:24} first paint {paint:4.0f} (slowest {slowest:.0f}), answer {answer:4.0f}, {kib:.0f} KiB; "
                f"a blank page {blank:.0f}"
            )


if __name__ == "__main__":
    main()
