"""A job on a cluster whose processes are killed at random gives each row once, whichever of them it hits.

`make test` kills an executor, and the driver with all of its machine while executors write to a table, in one run;
`test_placement.py` kills a Python worker. `make soak` kills each kind often, in runs of their own.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.postgres import postgres
from tests.connectors.outputs.test_table_output import Place
from tests.job.run.test_run import run_here, write_job
from tests.patience import PATIENCE_S, eventually
from tests.profiles import scaled
from tests.spark.standalone import Standalone, standalone
from tests.spark.test_writers_crash import QUERY as QUERY_OF_ROWS
from tests.spark.test_writers_crash import STAGED, rows_of, sections
from tidegate.job.run.journal import Journal

pytestmark = [pytest.mark.spark, pytest.mark.crash]

KILLS = 2 * scaled(1)
EVENTS_A_STEP = 150
STEPS_A_KILL = 5
"""So many that every kill finds work, wherever it is; fewer are enough for one that waits for its moment."""

# Windows, then windows of their results by another key; earlier rows of a key; and a join: state of every sort.
QUERY = """
WITH counts AS (SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, AVG(v) AS mean FROM i TIMESTAMP BY t
                GROUP BY k, TumblingWindow(second, 2))
SELECT * INTO counted FROM counts
SELECT System.Timestamp() AS ts, n, COUNT(*) AS keys INTO chained FROM counts GROUP BY n, TumblingWindow(second, 4)
SELECT System.Timestamp() AS ts, k, v, LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 5)) AS before
INTO rows FROM i TIMESTAMP BY t
SELECT System.Timestamp() AS ts, a.k, a.v, b.v AS other INTO pairs
FROM i a TIMESTAMP BY t JOIN i b TIMESTAMP BY t ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 1 WHERE a.v < b.v
"""
OUTPUTS = """
[outputs.counted]
type = "file"
path = "counted.jsonl"
[outputs.chained]
type = "sqlite"
path = "chained.db"
table = "chained"
[outputs.rows]
type = "files"
path = "rows/k={k}"
minimum_rows = 50
[outputs.pairs]
type = "file"
path = "pairs.csv"
format = "csv"
"""
# A run that begins again reads a few hundred events again, not those of five minutes.
ORDERING = "late_arrival_tolerance_s = 4\nearly_arrival_tolerance_s = 5"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def results_of(folder: Path) -> dict[str, Any]:
    """Everything that readers of the outputs see."""
    found: dict[str, Any] = {name: (folder / name).read_bytes() for name in ("counted.jsonl", "pairs.csv")}
    for path in sorted(folder.glob("rows/k=*/*")):
        found[path.parent.name] = found.get(path.parent.name, b"") + path.read_bytes()
    with sqlite3.connect(folder / "chained.db") as connection:
        found["chained"] = connection.execute("SELECT * FROM chained").fetchall()
    return found


class JobOnCluster:
    """A job whose log, state and outputs are in a shared folder, and the machine of its driver: one folder."""

    def __init__(self, shared: Path, machines: Path, url: str) -> None:
        self._shared = shared
        self._machines = machines
        self._url = url
        self._journal = Journal(shared / "crash.state")
        self._machine = machines / "0"
        self._lives = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the driver, in a folder that it has not seen before if the last one is gone."""
        self._lives += 1
        if not self._machine.exists():
            self._machine = self._machines / str(self._lives)
        (self._machine / "tmp").mkdir(parents=True, exist_ok=True)
        (self._machine / "spark").mkdir(exist_ok=True)
        text = (self._shared / "job.toml").read_text()
        for name in ("log.jsonl", "counted.jsonl", "chained.db", "rows/k={k}", "pairs.csv"):
            text = text.replace(f'path = "{name}"', f'path = "{self._shared}/{name}"')
        job = self._machine / "job.toml"
        job.write_text(f'state_dir = "{self._shared}/crash.state"\n{text}')
        command = [sys.executable, "-m", "tests.spark.cluster_child", "job", "run", str(job), "--master", self._url]
        command += ["--max-events-per-step", str(EVENTS_A_STEP), "--progress", str(self._shared / "progress.json")]
        root = str(Path(__file__).parents[2])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), root]).strip(os.pathsep),
            "TMPDIR": str(self._machine / "tmp"),
            "SPARK_LOCAL_DIRS": str(self._machine / "spark"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._machine, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def log(self) -> Path:
        return self._shared / "log.txt"

    @property
    def position(self) -> int:
        """How many events the job has read, each counted once however often it is read again."""
        commit = self._journal.read_commit()
        return 0 if commit is None else sum(sum(of.values()) for of in commit.positions.values())

    @property
    def steps(self) -> int:
        """How many steps have been reported."""
        progress = self._shared / "progress.json"
        return progress.read_bytes().count(b"\n") if progress.exists() else 0

    def wait_for_progress(self) -> None:
        """Wait for a step that goes further than all before it; a driver that has ended has failed."""
        before = self.position
        eventually(lambda: self.position > before or self._exit_code() is not None, 3 * PATIENCE_S)
        assert self._exit_code() is None, self.log.read_text()[-5000:]

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a moment that is soon over."""
        deadline = time.monotonic() + 3 * PATIENCE_S
        while not is_so():
            assert self._exit_code() is None, self.log.read_text()[-5000:]
            assert time.monotonic() < deadline, "it does not come to what it is to be killed in"
            time.sleep(0.002)

    def _exit_code(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def kill_python(self) -> None:
        """Kill the driver's Python process; its Java process ends by itself."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def kill_java(self) -> None:
        """Kill the driver's Java process; its Python process then ends, and says so in one line."""
        assert self._process is not None
        # A driver that follows two which have died tries events in a process of their own, before it starts Java.
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        java = [int(child) for child in children if is_java(int(child))]
        for child in java:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        if not java:
            self._process.kill()
        self._process.wait(PATIENCE_S)

    def kill_machine(self) -> None:
        """Kill all that runs on the driver's machine, and delete its folders."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

        def is_gone() -> bool:
            # What was killed may still be about to create a file.
            shutil.rmtree(self._machine, ignore_errors=True)
            return not self._machine.exists()

        eventually(is_gone)

    def finish(self) -> None:
        """Wait for the end of the log."""
        assert self._process is not None
        assert self._process.wait(6 * PATIENCE_S) == 0, self.log.read_text()[-5000:]

    def stop(self) -> None:
        """End what is left."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def is_java(process: int) -> bool:
    """Whether a process that may have ended runs Java."""
    try:
        return Path(f"/proc/{process}/comm").read_text().strip() == "java"
    except OSError:
        return False


def kill_one(find: Callable[[], list[int]], dice: random.Random) -> None:
    """Kill one of the processes that are found, as soon as there is one."""
    while True:
        eventually(find)
        with suppress(ProcessLookupError, IndexError):
            os.kill(dice.choice(find()), signal.SIGKILL)
            return


def kill_python_worker(cluster: Standalone, job: JobOnCluster, dice: random.Random) -> None:
    kill_one(cluster.python_workers, dice)


def kill_executor(cluster: Standalone, job: JobOnCluster, dice: random.Random) -> None:
    kill_one(cluster.executors, dice)


def kill_worker_daemon(cluster: Standalone, job: JobOnCluster, dice: random.Random) -> None:
    worker = dice.choice(cluster.workers)
    worker.kill()
    worker.wait()
    time.sleep(dice.choice([0, 2]) * dice.random())
    cluster.start_worker()


def kill_driver(cluster: Standalone, job: JobOnCluster, dice: random.Random) -> None:
    dice.choice([job.kill_python, job.kill_java])()
    job.start()


def kill_machine_of_driver(cluster: Standalone, job: JobOnCluster, dice: random.Random) -> None:
    job.kill_machine()
    job.start()


VICTIMS = {
    "a Python worker": kill_python_worker,
    "an executor": kill_executor,
    "a Worker daemon": kill_worker_daemon,
    "the driver": kill_driver,
    "the machine of the driver": kill_machine_of_driver,
}


def test_a_job_on_a_cluster_gives_each_row_once_whatever_is_killed(tmp_path: Path, cluster: Standalone) -> None:
    with postgres() as database:
        places = {"database": database}
        table = Place("postgresql", database)
        for schema in ("whole", "killed"):
            table.run(f"CREATE SCHEMA {schema}")

        def is_staged() -> bool:
            return table.run(STAGED) != [(0,)]

        check_kills(
            tmp_path,
            cluster,
            ["an executor", "the machine of the driver"],
            QUERY + QUERY_OF_ROWS.format(name="stored"),
            lambda schema: OUTPUTS + sections(["stored"], schema, places),
            is_staged,
            steps_a_kill=3,
        )
        assert not is_staged()
        whole, killed = (rows_of("stored", schema, tmp_path, places) for schema in ("whole", "killed"))
    assert killed == whole != []


@pytest.mark.soak
@pytest.mark.parametrize("victim", list(VICTIMS))
def test_a_job_on_a_cluster_gives_each_row_once_however_often_one_is_killed(
    tmp_path: Path, cluster: Standalone, victim: str
) -> None:
    check_kills(tmp_path, cluster, [victim] * KILLS)


@pytest.mark.soak
def test_an_executor_that_joins_gets_shards_with_their_states_and_one_that_goes_costs_its_own(tmp_path: Path) -> None:
    """The log is read once, and what the executor had that is killed again."""
    events = 120 * EVENTS_A_STEP
    expected = write_job(tmp_path / "whole", events, QUERY, ORDERING, OUTPUTS)
    summary = run_here(expected)
    joined = write_job(tmp_path / "joined", events, QUERY, ORDERING, OUTPUTS)
    (tmp_path / "cluster").mkdir()
    with standalone(tmp_path / "cluster", workers=1) as cluster:
        job = JobOnCluster(joined.parent, tmp_path / "machines", cluster.url)
        try:
            job.start()
            job.wait_for_progress()
            cluster.start_worker()
            eventually(lambda: "have moved to executors that have joined" in job.log.read_text(), 6 * PATIENCE_S)
            said = job.log.read_text()
            assert not re.search(r"is gone|read again", said), said
            job.wait_for_progress()
            assert not re.search(r"is gone|read again", job.log.read_text())
            kill_executor(cluster, job, random.Random(1))
            job.finish()
        finally:
            job.stop()
    said = job.log.read_text()
    assert "Traceback" not in said
    assert re.search(r"and \d+ more is gone|the state of shard \d \(level \d\) is gone", said), said
    assert results_of(joined.parent) == results_of(expected.parent)
    commit = Journal(joined.parent / "crash.state").read_commit()
    assert commit is not None
    assert commit.counters == summary.totals


def check_kills(
    tmp_path: Path,
    cluster: Standalone,
    victims: list[str],
    query: str = QUERY,
    outputs: Callable[[str], str] = lambda schema: OUTPUTS,
    last_is_when: Callable[[], bool] | None = None,
    steps_a_kill: int = STEPS_A_KILL,
) -> None:
    """Run a job on the cluster and kill a victim now and then, the last one when something is so, if that is given."""
    events = (len(victims) + 1) * steps_a_kill * EVENTS_A_STEP
    expected = write_job(tmp_path / "whole", events, query, ORDERING, outputs("whole"))
    summary = run_here(expected)
    killed = write_job(tmp_path / "killed", events, query, ORDERING, outputs("killed"))
    job = JobOnCluster(killed.parent, tmp_path / "machines", cluster.url)
    seed = random.randrange(10_000)
    dice = random.Random(seed)
    killed_at: list[int] = []
    try:
        job.start()
        for number, victim in enumerate(victims):
            # One in four hits a job that is still recovering from the one before.
            if last_is_when is not None and number == len(victims) - 1:
                job.wait_until(last_is_when)
            elif number == 0 or dice.random() < 0.75:
                job.wait_for_progress()
                time.sleep(dice.random() * 0.5)
            else:
                time.sleep(dice.random() * 1.5)
            killed_at.append(job.steps)
            VICTIMS[victim](cluster, job, dice)
        job.finish()
    finally:
        job.stop()
    said = job.log.read_text()
    assert "Traceback" not in said
    assert results_of(killed.parent) == results_of(expected.parent), f"seed {seed}"
    commit = Journal(killed.parent / "crash.state").read_commit()
    assert commit is not None
    assert commit.counters == summary.totals
    reports = [json.loads(line) for line in (killed.parent / "progress.json").read_text().splitlines()]
    assert {report["tidegate"]["placement"]["where"] for report in reports} == {"spark"}
    lives = [after - before for before, after in pairwise([0, *killed_at, len(reports)])]
    steps = f"{statistics.median(lives):.0f} steps between two (median), none before {lives.count(0)} of them"
    print(f"{len(killed_at)} kills: {', '.join(sorted(set(victims)))}; {steps}; {costs_of(job.log)}")


def costs_of(log: Path) -> str:
    """What recoveries from lost states have cost, for those who measure it: `pytest -s`."""
    found = re.findall(r"complete again: ([\d,]+) events were read again, in ([\d.]+) s", log.read_text())
    events = [int(count.replace(",", "")) for count, _ in found]
    seconds = [float(text) for _, text in found]
    if not found:
        return "no state was lost"
    middle = statistics.median
    return f"{len(found)} recoveries: {middle(events):.0f} events read again, {middle(seconds):.1f} s (medians)"
