"""A service for tests that kill it: `python -m tests.service.service_child FOLDER EVENTS`.

When every job runs or has ended, it prints the numbers of the processes by job, as a line of JSON, and again from time
to time. A step of a job reads so many events; if they are few, there is more to lose.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tidegate.service import Jobs, JobState, ServiceSettings


def main(folder: Path, events_per_step: int) -> None:
    """Run the jobs of a folder until killed."""
    with Jobs(folder, ServiceSettings(max_events_per_step=events_per_step)) as jobs:
        while True:
            summaries = jobs.summaries()
            if not [job for job in summaries if job.state in (JobState.STARTING, JobState.DEGRADED)]:
                print(json.dumps({job.name: job.process for job in summaries if job.process is not None}), flush=True)
                time.sleep(0.3)
            time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
