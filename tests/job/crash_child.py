"""A job in a process of its own, for tests that kill it: `python -m tests.job.crash_child JOB MAX_EVENTS_PER_STEP`.

The tasks run in the process itself, so that it starts fast enough to be killed very often.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.job.logs import runner_of
from tidegate.job import load_job, run_job

if __name__ == "__main__":
    job = load_job(Path(sys.argv[1]))
    # A step of a few events is over too fast to be hit; the pause lets a kill fall between any two of its parts.
    summary = run_job(
        job,
        runner_of(job.program, job.policy),
        max_events_per_step=int(sys.argv[2]),
        on_step=lambda report: time.sleep(0.002),
    )
    print(summary.why, flush=True)
