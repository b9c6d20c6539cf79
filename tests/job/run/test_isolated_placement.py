"""A job whose steps are taken in a process of its own gives the same, and survives the end of that process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.job.run.test_run import outputs_of, run_here, write_job
from tests.patience import PATIENCE_S, eventually
from tidegate.engine import Program
from tidegate.job import Job, RunSummary, load_job, run_job
from tidegate.job.run.isolated_placement import IsolatedPlacement
from tidegate.job.run.placement_policy import RunLocation
from tidegate.job.run.run import Placements
from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.sealing import SealedState, SealFolder, SealUnusable
from tidegate.ordering import NO_TIME

QUERY = """
SELECT System.Timestamp() AS ts, udf.own(k) AS k, COUNT(*) AS n, AVG(v) AS mean INTO counted FROM i TIMESTAMP BY t
GROUP BY udf.own(k), TumblingWindow(second, 5)
SELECT System.Timestamp() AS ts, k, v INTO large FROM i TIMESTAMP BY t WHERE v > 90
"""
FUNCTION = '[functions.own]\nmodule = "own.py"\n'


def job_with(folder: Path, function: str, events: int = 300) -> Path:
    """Write a job that calls a function of the user's for each event."""
    path = write_job(folder, events, QUERY)
    (folder / "own.py").write_text(function, encoding="utf-8")
    path.write_text(path.read_text() + FUNCTION, encoding="utf-8")
    return path


def run_isolated(job: Job, notices: list[str] | None = None) -> tuple[RunSummary, list[IsolatedPlacement]]:
    made: list[IsolatedPlacement] = []

    def isolated(program: Program) -> IsolatedPlacement:
        made.append(IsolatedPlacement(program, job.policy))
        return made[-1]

    notice = (lambda text: None) if notices is None else notices.append
    try:
        return run_job(job, Placements(isolated), max_events_per_step=50, notice=notice), made
    finally:
        for one in made:
            one.close()


@pytest.mark.slow
def test_the_results_are_those_of_a_job_in_one_process_whatever_a_function_prints(tmp_path: Path) -> None:
    function = "def own(k):\n    print('called')\n    return k + k\n"
    for name in ("here", "isolated"):
        job_with(tmp_path / name, function)
    expected = run_here(tmp_path / "here" / "job.toml", 50)
    found, _ = run_isolated(load_job(tmp_path / "isolated" / "job.toml"))
    assert outputs_of(tmp_path / "isolated") == outputs_of(tmp_path / "here")
    assert found.totals == expected.totals


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "how"),
    [("os._exit(7)", "exit code 7"), ("os.kill(os.getpid(), 9)", "killed by SIGKILL")],
)
def test_a_function_that_ends_its_process_costs_a_step(tmp_path: Path, end: str, how: str) -> None:
    here = "def own(k):\n    return k\n"
    run_here(job_with(tmp_path / "here", here))
    mark = tmp_path / "ended"
    dies = (
        f"import os\n\ncalls = 0\n\n\ndef own(k):\n    global calls\n    calls += 1\n"
        f"    if calls > 30 and not os.path.exists({str(mark)!r}):\n        open({str(mark)!r}, 'w').close()\n"
        f"        {end}\n    return k\n"
    )
    notices: list[str] = []
    run_isolated(load_job(job_with(tmp_path / "isolated", dies)), notices)
    assert outputs_of(tmp_path / "isolated") == outputs_of(tmp_path / "here")
    (ended, gone) = [text for text in notices if "own functions" in text]
    assert ended == f"the process that runs the job's own functions has ended: {how}; the step is taken again"
    assert gone.endswith("it is computed again from the log")


@pytest.mark.slow
def test_an_error_in_the_process_is_raised_here(tmp_path: Path) -> None:
    job = load_job(job_with(tmp_path, "def own(k):\n    return k\n"))
    with closing(IsolatedPlacement(job.program, job.policy)) as placement:
        assert str(RunLocation(placement.location, 0, "why")) == "the job runs in a child of this process: why"
        with pytest.raises(SealUnusable, match="it has 3 shards"):
            placement.restore(SealFolder(tmp_path / "sealed"), SealedState(3, 0, 1))
        assert placement.preview(StepOrder(NO_TIME, {})) == []


@pytest.mark.slow
def test_a_process_within_a_step_ends_with_the_placement(tmp_path: Path) -> None:
    at_work = tmp_path / "at-work"
    endless = f"def own(k):\n    open({str(at_work)!r}, 'w').close()\n    while True:\n        pass\n"
    job = load_job(job_with(tmp_path, endless))
    made: list[IsolatedPlacement] = []
    failures: list[BaseException] = []

    def isolated(program: Program) -> IsolatedPlacement:
        if made:
            raise KeyboardInterrupt
        made.append(IsolatedPlacement(program, job.policy))
        return made[-1]

    def run() -> None:
        try:
            run_job(job, Placements(isolated))
        except KeyboardInterrupt as ended:
            failures.append(ended)

    running = threading.Thread(target=run)
    running.start()
    eventually(at_work.exists)
    made[0].close()
    running.join(PATIENCE_S)
    assert not running.is_alive()
    assert failures


ENDLESS = """
import sys
from pathlib import Path
from tidegate.job import load_job, run_job
from tidegate.job.run.isolated_placement import IsolatedPlacement
from tidegate.job.run.placement_policy import RunLocation
from tidegate.job.run.run import Placements

job = load_job(Path(sys.argv[1]))
run_job(job, Placements(lambda program: IsolatedPlacement(program, job.policy)))
"""


@pytest.mark.slow
def test_a_process_within_a_step_ends_with_that_of_the_job(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    endless = (
        f"import os\n\n\ndef own(k):\n    with open({str(numbers)!r}, 'w') as file:\n"
        "        file.write(f'{os.getpid()}\\n')\n    while True:\n        pass\n"
    )
    path = job_with(tmp_path, endless)
    with subprocess.Popen([sys.executable, "-c", ENDLESS, str(path)]) as process:
        eventually(lambda: process.poll() is not None or (numbers.exists() and numbers.read_text().endswith("\n")))
        child = Path(f"/proc/{int(numbers.read_text())}")
        assert child.exists()
        process.send_signal(signal.SIGKILL)
    eventually(lambda: not child.exists() or "\nState:\tZ" in (child / "status").read_text())
