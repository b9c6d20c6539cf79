"""Jobs on Spark through the command line: live hubs, stops and kills, and a cluster with two workers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from tests.job.run.test_run import write_job as write_recorded_job
from tests.patience import PATIENCE_S, PROMPTLY_S, eventually
from tests.profiles import scaled
from tests.spark.equality import check_on_spark
from tests.spark.publishing import publish
from tidegate.connectors.model.errors import UnavailableError
from tidegate.connectors.model.metrics import INPUT_EVENTS
from tidegate.job import load_job
from tidegate.job.config.spark_settings import SparkSettings, WhereRun
from tidegate.job.run.placement_policy import RunLocation
from tidegate.server import BackgroundServer
from tidegate.spark import run, run_job_on_spark
from tidegate.spark.stages import Answer
from tidegate.spark.step import rehearse, warm_up

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_spark")]

TIDEGATE = (sys.executable, "-m", "tidegate")
KILLS = scaled(2)


def tidegate(*arguments: str, timeout: float = 4 * PATIENCE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TIDEGATE, *arguments], capture_output=True, text=True, timeout=timeout, check=False)


# -- jobs over a hub ---------------------------------------------------------------------------------------------------


def write_job(folder: Path, hub: BackgroundServer, name: str, query: str, ordering: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.toml"
    path.write_text(
        f'name = "{name}"\nquery = """{query}"""\n[event_ordering]\n{ordering}\n'
        f'[inputs.i]\ntype = "eventhub"\nconnection_string = "{hub.connection_string};EntityPath={name}"\n'
        '[outputs.out]\ntype = "file"\npath = "out.jsonl"\n'
    )
    return path


def ordered_events(count: int, seed: int) -> tuple[list[dict[str, Any]], datetime]:
    """Events of the last minutes, some late and out of order, and a time by which all their windows are over."""
    dice = random.Random(seed)
    now = datetime.now(UTC)
    events = [
        {
            "t": (now - timedelta(seconds=60 - 60 * n / count + dice.random() * 3)).isoformat(),
            "k": dice.choice("abcd"),
            "v": dice.random() * 100,
        }
        for n in range(count)
    ]
    return events, now - timedelta(seconds=2)


PLACES = ["process", "spark"]

COUNT = """SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, AVG(v) AS mean INTO out FROM i TIMESTAMP BY t
GROUP BY k, TumblingWindow(second, 2)"""


@pytest.mark.parametrize("placement", [pytest.param("auto", marks=pytest.mark.soak), "spark"])
def test_a_live_job_lets_results_out_as_the_clock_of_the_hub_passes(
    hub: BackgroundServer, tmp_path: Path, placement: str
) -> None:
    path = write_job(tmp_path, hub, "live", COUNT, "late_arrival_tolerance_s = 1")
    command = [*TIDEGATE, "job", "run", str(path), "--placement", placement]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        # Only one partition gets events; the other two are idle and move by the hub's word alone.
        publish(
            hub.connection_string, "live", [{"t": datetime.now(UTC).isoformat(), "k": "a", "v": 1}], partition_id="0"
        )
        out = tmp_path / "out.jsonl"
        eventually(lambda: process.poll() is not None or (out.exists() and out.stat().st_size), 4 * PATIENCE_S)
        assert json.loads(out.read_text().splitlines()[0])["n"] == 1
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert time.monotonic() - began < PROMPTLY_S
        assert process.returncode == 130
        assert "Traceback" not in said
    finally:
        process.kill()


@pytest.mark.parametrize("function", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_live_job_takes_its_first_steps_here_and_moves_when_spark_is_up(
    hub: BackgroundServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: bool
) -> None:
    rehearsed: list[list[Answer]] = []
    monkeypatch.setattr(run, "rehearse", lambda *step: rehearsed.append(rehearse(*step)))
    stepped = threading.Event()

    def warm_up_later(context: SparkContext) -> None:
        # Spark may otherwise be up before the first event has been read.
        assert stepped.wait(PATIENCE_S)
        warm_up(context)

    monkeypatch.setattr(run, "warm_up", warm_up_later)
    path = write_job(tmp_path, hub, "begun", COUNT, "late_arrival_tolerance_s = 1")
    calls = tmp_path / "calls"
    if function:
        # Code of the user's is called in another process, here as on Spark.
        text = path.read_text().replace("AVG(v)", "AVG(udf.own(v))")
        path.write_text(text + '[functions.own]\nmodule = "own.py"\n')
        (tmp_path / "own.py").write_text(
            f"import os\n\n\ndef own(v):\n    with open({str(calls)!r}, 'a') as file:\n"
            "        file.write(f'{os.getpid()}\\n')\n    return v\n"
        )
    out = tmp_path / "out.jsonl"
    places: list[RunLocation] = []

    def count_one() -> None:
        body = {"t": datetime.now(UTC).isoformat(), "k": "a", "v": 1}
        publish(hub.connection_string, "begun", [body], partition_id="0")

    def note(where: RunLocation) -> None:
        places.append(where)
        count_one()

    def has_all_results() -> bool:
        counted = [json.loads(line)["n"] for line in out.read_text().splitlines()] if out.exists() else []
        assert sum(counted) <= 2
        return bool(sum(counted) == 2)

    run_job_on_spark(
        load_job(path),
        master="local[2]",
        on_place=note,
        on_step=lambda report: stepped.set(),
        should_stop=has_all_results,
    )
    assert [(one.as_json()["where"], one.why) for one in places] == [
        ("process", "Spark is starting"),
        ("spark", "Spark is up"),
    ]
    # Before that, both of Spark's workers have taken the step that was taken here, and left nothing behind.
    (answers,) = rehearsed
    assert [answer for answer in answers if answer.failure or answer.lost] == []
    assert sum(result.counts[INPUT_EVENTS] for answer in answers for result in answer.results) == 2
    assert not [*Path(tempfile.gettempdir()).glob("tidegate-rehearsal_*")]
    if function:
        callers = {int(line) for line in calls.read_text().splitlines()}
        assert len(callers) >= 2
        assert os.getpid() not in callers


def test_a_job_that_is_stopped_while_spark_starts_leaves_no_java_behind(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"partition": 0, "arrival": "2026-01-01T00:00:00Z", "body": {}}')
    path = tmp_path / "job.toml"
    path.write_text(
        'name = "j"\nquery = "SELECT * INTO out FROM i"\n[inputs.i]\ntype = "recorded"\npath = "log.jsonl"\n'
        '[outputs.out]\ntype = "file"\npath = "out.jsonl"\n'
    )
    command = [*TIDEGATE, "job", "run", str(path), "--placement", "spark"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        eventually(lambda: process.poll() is not None or (tmp_path / "j.state" / "spark.log").exists())
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        # Java has standard output too: it comes to its end when both are gone.
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert said.endswith("INFO stopped; the next run resumes after the last committed result\n")


@pytest.mark.parametrize(
    ("number", "placement"),
    [
        (signal.SIGINT, "process"),
        (signal.SIGTERM, "spark"),
        pytest.param(signal.SIGTERM, "process", marks=pytest.mark.soak),
        pytest.param(signal.SIGINT, "spark", marks=pytest.mark.soak),
    ],
)
def test_a_job_is_stopped_within_a_step(tmp_path: Path, number: signal.Signals, placement: str) -> None:
    at_work = tmp_path / "at-work"
    (tmp_path / "slow.py").write_text(
        f"import time\n\n\ndef slow(x):\n    open({str(at_work)!r}, 'w').close()\n    time.sleep(0.1)\n    return x\n"
    )
    # The function is called once for each value.
    bodies = [{"t": "2026-01-01T00:00:00Z", "v": value} for value in range(2_000)]
    lines = [json.dumps({"partition": 0, "arrival": body["t"], "body": body}) for body in bodies]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    path = tmp_path / "job.toml"
    path.write_text(
        'name = "slow"\nquery = "SELECT udf.slow(v) AS v INTO out FROM i TIMESTAMP BY t"\n'
        '[inputs.i]\ntype = "recorded"\npath = "log.jsonl"\n[outputs.out]\ntype = "file"\npath = "out.jsonl"\n'
        '[functions.slow]\nmodule = "slow.py"\n'
    )
    command = [*TIDEGATE, "job", "run", str(path), "--placement", placement]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        # The first event is at work in a step that takes minutes.
        eventually(lambda: process.poll() is not None or at_work.exists(), 4 * PATIENCE_S)
        began = time.monotonic()
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert time.monotonic() - began < PROMPTLY_S
        assert process.returncode == (130 if number == signal.SIGINT else 0)
        assert "Traceback" not in said
        assert said.endswith("INFO stopped; the next run resumes after the last committed result\n")
    finally:
        process.kill()


@pytest.mark.crash
@pytest.mark.soak
def test_a_job_on_spark_killed_at_random_gives_each_row_once(hub: BackgroundServer, tmp_path: Path) -> None:
    events, over = ordered_events(3000, seed=3)
    for partition in range(3):
        publish(hub.connection_string, "killed", events[partition::3], partition_id=str(partition))
    until = ("--until", over.isoformat())
    ordering = "late_arrival_tolerance_s = 3600\nout_of_order_tolerance_s = 1"

    whole = write_job(tmp_path / "whole", hub, "killed", COUNT, ordering)
    done = tidegate("job", "run", str(whole), *until)
    assert done.returncode == 0, done.stderr
    expected = (tmp_path / "whole" / "out.jsonl").read_bytes()
    assert expected

    path = write_job(tmp_path / "killed", hub, "killed", COUNT, ordering)
    journal = path.parent / "killed.state" / "journal.json"
    dice = random.Random(5)
    for _ in range(KILLS):
        before = journal.stat().st_mtime_ns if journal.exists() else 0
        process = subprocess.Popen(
            [
                *TIDEGATE,
                "job",
                "run",
                str(path),
                *until,
                "--max-events-per-step",
                "60",
                "--placement",
                dice.choice(PLACES),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline:
            if journal.exists() and journal.stat().st_mtime_ns != before:
                break
            time.sleep(0.005)
        time.sleep(dice.random() * 0.5)
        process.kill()
        process.wait()
    done = tidegate("job", "run", str(path), *until, "--max-events-per-step", "600", "--placement", "spark")
    assert done.returncode == 0, done.stderr
    assert (path.parent / "out.jsonl").read_bytes() == expected


# -- a cluster ---------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_cluster_with_two_workers_gives_the_same_bytes(hub: BackgroundServer, tmp_path: Path, cluster: str) -> None:
    events, over = ordered_events(3000, seed=4)
    for partition in range(3):
        publish(hub.connection_string, "remote", events[partition::3], partition_id=str(partition))
    outputs = []
    for name, master, segments in (("near", "local[1]", "auto"), ("far", cluster, "never")):
        path = write_job(tmp_path / name, hub, "remote", COUNT, "late_arrival_tolerance_s = 3600")
        path.write_text(path.read_text().replace("[outputs.out]", f'segments = "{segments}"\n[outputs.out]'))
        where = ["--master", master, "--placement", "spark", "--max-events-per-step", "1000"]
        done = tidegate("job", "run", str(path), "--until", over.isoformat(), *where)
        assert done.returncode == 0, done.stderr
        # Each shard stays where its state is.
        assert "is gone" not in done.stderr
        outputs.append((tmp_path / name / "out.jsonl").read_bytes())
    assert outputs[0] == outputs[1] != b""


@pytest.mark.parametrize("executors", ["one", pytest.param("two", marks=pytest.mark.soak)])
def test_any_number_of_executors_gives_the_same(executors: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The property of `tests/job/test_equality.py`, with each step's tasks on executors."""
    logs = scaled(1)
    if executors == "one":
        master, seeds = "local[1]", range(logs)
    else:
        master, seeds = request.getfixturevalue("cluster"), range(logs, 2 * logs)
    assert check_on_spark(master, tmp_path / "spark.log", seeds) == (1 if executors == "one" else 2)


def test_java_that_dies_while_it_is_asked_for_little_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*given: object) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(run, "run_steps", die)
    job = load_job(write_recorded_job(tmp_path, 10))
    with pytest.raises(UnavailableError, match="Spark has stopped"):
        run_job_on_spark(job, spark=SparkSettings(placement=WhereRun.PROCESS))
