"""A nursery of jobs, for tests that kill them: `python -m tests.job.crash_child JOB MAX_EVENTS_PER_STEP`.

For every line on standard input a process is forked that runs the job, with its tasks in itself; its number comes back
as a line, and `complete` or `killed` when it is gone. A number on the line given says after how many steps it is to
wait until it is killed. What a job imports is there before the fork, so that a job can be killed very often, while it
works.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from pathlib import Path

import pyarrow as pa

from tests.job.logs import travelling
from tidegate.job import StepReport, load_job, run_job
from tidegate.job.run import commit_coordinator


def run(path: Path, max_events_per_step: int, last_step: int | None) -> None:
    """Run the job to its end, with a commit every few steps, so that there is something to lose between two."""
    commit_coordinator._COMMIT_EVERY_S = 0.02
    job = load_job(path)
    steps = itertools.count(1)

    def on_step(report: StepReport) -> None:
        # A step of a few events is over too fast to be hit; the pause lets a kill fall between any two of its parts.
        time.sleep(0.002)
        if next(steps) == last_step:
            signal.alarm(300)
            signal.pause()

    run_job(job, travelling(job), max_events_per_step=max_events_per_step, on_step=on_step)


def nurse(path: Path, max_events_per_step: int) -> None:
    """Fork as often as asked."""
    # What is imported when it is first needed is better imported once, here.
    pa.array(["warm"])
    load_job(path)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(path, max_events_per_step, int(line) if line.strip() else None)
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print("complete" if status == 0 else "killed" if os.WIFSIGNALED(status) else "failed", flush=True)


if __name__ == "__main__":
    nurse(Path(sys.argv[1]), int(sys.argv[2]))
