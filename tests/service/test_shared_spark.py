"""Jobs of the service that run on Spark share one, and one that fails or is killed does no harm to the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.jars import stop_spark
from tests.job.run.test_run import QUERY, outputs_of
from tests.patience import PATIENCE_S, eventually
from tests.service.launchers import FakeLauncher
from tests.service.test_processes import document, endless
from tests.spark.test_java import java_home
from tidegate.service import JobDocument, Jobs, JobState, ServiceSettings, SharedSparkSettings
from tidegate.spark import end_java

FEW = ServiceSettings(max_events_per_step=60, spark=SharedSparkSettings(cores=2, memory_bytes=512 << 20))
LONG_S = 3 * PATIENCE_S


def placed(made: JobDocument, place: str) -> JobDocument:
    return replace(made, definition={**made.definition, "spark": {"placement": place}})


def calling(made: JobDocument, folder: Path, body: str) -> JobDocument:
    """The job with a function in Python, in a module of the same name for every job."""
    (folder / "same.py").write_text(f"def changed(value):\n    {body}\n")
    definition = dict(made.definition)
    definition["query"] = str(definition["query"]).replace("k, v INTO large", "k, udf.changed(v) AS v INTO large")
    definition["functions"] = {"changed": {"module": str(folder / "same.py")}}
    return JobDocument(definition)


def below(pid: int) -> Iterator[tuple[int, str]]:
    """Yield the processes that stem from one, each with its name."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in path.read_text().split()]
        except OSError:
            continue
        for child in children:
            try:
                yield child, Path(f"/proc/{child}/comm").read_text().strip()
            except OSError:
                continue
            yield from below(child)


@pytest.fixture(scope="module", autouse=True)
def no_java_of_earlier_tests() -> None:
    """End the Java process of sessions in this process, so that each one here is of the service."""
    stop_spark()
    end_java()


def javas() -> list[int]:
    """Return the Java processes below this one; what Java starts has its name for a moment, before it is another's."""
    found = [pid for pid, name in below(os.getpid()) if name == "java"]
    of_java = {child for pid in found for child, _ in below(pid)}
    return [pid for pid in found if pid not in of_java]


def host_of(jobs: Jobs) -> int:
    host = jobs._spark._host
    assert host is not None
    return host.process.pid


def states(folder: Path) -> set[str]:
    """Return the names of the states that jobs have on the shared Spark, each that of its owner and run."""
    # Unlike rglob, os.walk leaves out a folder that is removed meanwhile.
    return {name for _, folders, _ in os.walk(folder / "service") for name in folders if name.startswith("tidegate-")}


def runs_on_spark(jobs: Jobs, name: str) -> bool:
    job = jobs.show(name)
    assert job.state is not JobState.FAILED, job.reason
    return job.state is JobState.RUNNING and (job.placement or {}).get("where") == "spark"


@pytest.mark.spark
def test_jobs_on_one_spark_write_the_bytes_of_jobs_in_processes_of_their_own(tmp_path: Path) -> None:
    with Jobs(tmp_path / "service", FEW) as jobs:
        names = {}
        for name, body in {"doubled": "return 2 * value", "halved": "return value / 2"}.items():
            for place in ("process", "spark"):
                folder = tmp_path / f"{name}-{place}"
                names[folder.name] = place
                jobs.create(folder.name, placed(calling(document(folder), folder, body), place))
        greedy = tmp_path / "greedy"
        names["greedy"] = "spark"
        jobs.create("greedy", placed(calling(document(greedy), greedy, "return len(bytearray(8 << 30))"), "spark"))
        for name in names:
            jobs.start(name)
        most = 0

        def ended() -> bool:
            nonlocal most
            most = max(most, len(javas()))
            return all(job.state in (JobState.STOPPED, JobState.FAILED) for job in jobs.summaries())

        eventually(ended, LONG_S)
        for name, place in names.items():
            job = jobs.show(name)
            assert (job.state, job.restarts) == (JobState.STOPPED, 0), job.reason
            assert job.placement is not None
            assert (job.placement["where"], job.placement["shared"]) == (place, place == "spark")
        assert most == 1
        assert any("MemoryError" in str(error) for error in jobs.data_errors("greedy"))
        usage = jobs.spark_usage()
        assert usage is not None
        assert usage.java_bytes > 50 << 20
    assert javas() == []
    for name in ("doubled", "halved"):
        found = outputs_of(tmp_path / f"{name}-spark")
        assert found == outputs_of(tmp_path / f"{name}-process")
        assert found[0]
    assert outputs_of(tmp_path / "doubled-spark") != outputs_of(tmp_path / "halved-spark")


@pytest.mark.spark
def test_a_job_takes_its_steps_however_much_others_have_to_do_and_whatever_its_name_is(tmp_path: Path) -> None:
    # With two busy jobs, one of them always waits for the only core when it becomes free.
    settings = ServiceSettings(spark=SharedSparkSettings(cores=1, memory_bytes=512 << 20))
    query = QUERY.replace(" WHERE v > 90", "")
    with Jobs(tmp_path / "service", settings) as jobs:
        for name, seconds in {"a": 0.3, "b": 0.3, "c": 0}.items():
            made = document(tmp_path / name, query)
            made = calling(made, tmp_path / name, f"import time; time.sleep({seconds}); return value")
            steps = {"placement": "spark", "max_events_per_step": 1 if seconds else 1000}
            jobs.create(name, replace(made, definition={**made.definition, "name": name, "spark": steps}))
        for name in ("a", "b"):
            jobs.start(name)
        eventually(lambda: runs_on_spark(jobs, "a") and runs_on_spark(jobs, "b"), LONG_S)
        jobs.start("c")
        ended = jobs.wait("c", {JobState.STOPPED, JobState.FAILED}, LONG_S)
        assert ended.state is JobState.STOPPED, ended.reason
        assert [jobs.show(name).state for name in ("a", "b")] == [JobState.RUNNING, JobState.RUNNING]


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.soak
def test_kills_of_a_job_and_of_spark_leave_nothing_and_change_no_byte(tmp_path: Path) -> None:
    places = {"alone": "process", "first": "spark", "second": "spark"}
    with Jobs(tmp_path / "service", FEW) as jobs:
        for name, place in places.items():
            jobs.create(name, placed(endless(tmp_path / name), place))
            jobs.start(name)
        eventually(lambda: runs_on_spark(jobs, "first") and runs_on_spark(jobs, "second"), LONG_S)
        eventually(lambda: len(states(tmp_path)) == 2, LONG_S)
        before = states(tmp_path)
        alone = jobs.wait("alone", {JobState.RUNNING}, PATIENCE_S).process

        first = jobs.show("first").process
        assert first is not None
        os.kill(first, signal.SIGKILL)
        jobs.wait("first", {JobState.DEGRADED}, PATIENCE_S)
        eventually(lambda: len(states(tmp_path) & before) == 1)
        eventually(lambda: runs_on_spark(jobs, "first") and len(states(tmp_path)) == 2, LONG_S)
        assert jobs.show("second").restarts == 0

        os.kill(host_of(jobs), signal.SIGKILL)
        for name in ("first", "second"):
            lost = jobs.wait(name, {JobState.DEGRADED}, PATIENCE_S)
            shared = "the Spark that the jobs of this service share has ended"
            assert str(lost.reason).startswith(f"{shared} (killed by SIGKILL); starting again")
        eventually(lambda: runs_on_spark(jobs, "first") and runs_on_spark(jobs, "second"), LONG_S)

        (java,) = javas()
        os.kill(java, signal.SIGKILL)
        lost = jobs.wait("second", {JobState.DEGRADED}, PATIENCE_S)
        ended = "its Java process has ended: killed by SIGKILL"
        assert str(lost.reason).startswith(f"{shared} ({ended}); starting again")
        eventually(lambda: runs_on_spark(jobs, "first") and runs_on_spark(jobs, "second"), LONG_S)
        for name in ("first", "second"):
            eventually(lambda name=name: outputs_of(tmp_path / name) == outputs_of(tmp_path / "alone"), LONG_S)

        assert (jobs.show("alone").process, jobs.show("alone").restarts) == (alone, 0)
    expected = outputs_of(tmp_path / "alone")
    assert expected[0]
    assert outputs_of(tmp_path / "first") == expected
    assert outputs_of(tmp_path / "second") == expected


@pytest.mark.spark
@pytest.mark.crash
def test_a_service_that_is_killed_leaves_no_java(tmp_path: Path) -> None:
    with Jobs(tmp_path / "service") as jobs:
        jobs.create("job", placed(endless(tmp_path / "files"), "spark"))
        jobs.start("job")
    command = [sys.executable, "-m", "tests.service.service_child", str(tmp_path / "service"), "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            assert list(json.loads(service.stdout.readline())) == ["job"]
            started = dict(below(service.pid))
        finally:
            service.kill()
    assert "java" in started.values()
    eventually(lambda: not [pid for pid in started if is_running(pid)])
    assert not list((tmp_path / "service" / "spark").iterdir())


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_spark_that_cannot_start_ends_the_job_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with Jobs(tmp_path / "service") as jobs:
        jobs.create("wants", placed(document(tmp_path / "wants"), "spark"))
        jobs.create("may", placed(document(tmp_path / "may"), "auto"))
        for name in ("wants", "may"):
            jobs.start(name)
        failed = jobs.wait("wants", {JobState.FAILED, JobState.STOPPED}, PATIENCE_S)
        assert "there is no Java: JAVA_HOME is not set, and PATH has no java; install Java 17" in str(failed.reason)
        assert failed.state is JobState.FAILED
        assert jobs.wait("may", {JobState.FAILED, JobState.STOPPED}, PATIENCE_S).state is JobState.STOPPED


def test_spark_whose_java_is_killed_as_it_starts_makes_the_job_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system does it on a machine that is out of memory for a moment."""
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, "kill -9 $$")))
    with Jobs(tmp_path / "service") as jobs:
        jobs.create("wants", placed(document(tmp_path / "wants"), "spark"))
        jobs.start("wants")
        waiting = jobs.wait("wants", {JobState.FAILED, JobState.STOPPED, JobState.DEGRADED}, PATIENCE_S)
        assert "Java ended as it started, twice (killed by SIGKILL)" in str(waiting.reason)
        assert waiting.state is JobState.DEGRADED


class StandIn:
    """A module to run instead of the host, which says what a test wants it to say."""

    TEXT = """
import json, sys
order = json.loads(sys.stdin.readline())["start"]
print(json.dumps({"up": {"port": 4711, "secret": order["folder"]}}), flush=True)
for line in sys.stdin:
    if "leave" in open(LEAVING).read():
        sys.exit(3)
"""

    def __init__(self, folder: Path) -> None:
        self.leaving = folder / "leaving"
        self.leaving.write_text("")
        (folder / "stand_in.py").write_text(self.TEXT.replace("LEAVING", repr(str(self.leaving))))


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setattr("tidegate.service.shared_spark._MODULE", "stand_in")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return StandIn(tmp_path)


def started(jobs: Jobs, launcher: FakeLauncher, *names: str) -> None:
    for name in names:
        jobs.create(name, JobDocument({}))
        jobs.start(name)
        launcher.last.run()
        launcher.last.events.spark_wanted()


def answers(launcher: FakeLauncher) -> list[Mapping[str, Any]]:
    return [answer for process in launcher.processes for answer in process.spark]


def test_processes_get_the_address_with_a_name_of_their_own(tmp_path: Path, stand_in: StandIn) -> None:
    launcher = FakeLauncher()
    with Jobs(tmp_path / "service", launcher=lambda: launcher) as jobs:
        started(jobs, launcher, "one", "two")
        eventually(lambda: len(answers(launcher)) == 2)
        one, two = answers(launcher)
        assert (one["port"], one["secret"]) == (two["port"], two["secret"])
        assert one["owner"] != two["owner"]
        assert Path(one["folder"]).parent == Path(two["folder"]).parent


def test_the_process_of_spark_ends_when_no_job_uses_it(tmp_path: Path, stand_in: StandIn) -> None:
    launcher = FakeLauncher()
    settings = ServiceSettings(spark=SharedSparkSettings(idle_s=0.1))
    with Jobs(tmp_path / "service", settings, launcher=lambda: launcher) as jobs:
        started(jobs, launcher, "one", "two")
        eventually(lambda: len(answers(launcher)) == 2)
        first, second = launcher.processes
        pid = host_of(jobs)
        first.events.spark_released()
        assert jobs._spark._stopping is None
        second.events.spark_released()
        eventually(lambda: not is_running(pid))
        assert jobs.spark_usage() is None
        assert {job.state for job in jobs.summaries()} == {JobState.RUNNING}
        second.events.spark_wanted()
        eventually(lambda: len(second.spark) == 2)
        assert host_of(jobs) != pid


def test_the_end_of_spark_ends_the_processes_that_use_it(tmp_path: Path, stand_in: StandIn) -> None:
    launcher = FakeLauncher()
    with Jobs(tmp_path / "service", launcher=lambda: launcher) as jobs:
        started(jobs, launcher, "one", "two", "three")
        eventually(lambda: len(answers(launcher)) == 3)
        one, two, three = launcher.processes
        three.events.spark_released()
        stand_in.leaving.write_text("leave")
        jobs._spark._host.write({"forget": "anything"})
        eventually(lambda: one.killed and two.killed)
        reason = "the Spark that the jobs of this service share has ended (exit code 3); starting again after 1 s"
        assert str(jobs.show("one").reason).startswith(reason)
        assert not three.killed
