"""How a command starts Spark: its properties, its web UI, and what it says if Spark does not start."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from tests.job.run.test_run import write_job
from tests.source import ROOT
from tidegate.cli import main
from tidegate.connectors.model.errors import UnavailableError
from tidegate.job import JobError, load_job
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.spark import run_job_on_spark, spark_context

pytestmark = pytest.mark.usefixtures("no_spark")


def test_the_job_files_settings_reach_spark_and_its_ui_has_the_jobs_name(tmp_path: Path) -> None:
    path = write_job(tmp_path, 20)
    section = "\n[spark]\nmaster = 'local[1]'\nui = true\n[spark.conf]\n'spark.ui.port' = 0\n"
    path.write_text(path.read_text() + section, encoding="utf-8")
    applications: list[Any] = []
    properties: dict[str, str] = {}

    def look(address: str) -> None:
        applications.extend(answer(f"{address}/api/v1/applications"))
        found = answer(f"{address}/api/v1/applications/{applications[0]['id']}/environment")
        properties.update(found["sparkProperties"])

    run_job_on_spark(load_job(path), until_caught_up=True, on_spark_ui=look)
    assert [one["name"] for one in applications] == ["tidegate crash"]
    assert (properties["spark.master"], properties["spark.ui.port"]) == ("local[1]", "0")


def answer(address: str) -> Any:
    with urllib.request.urlopen(address) as response:
        return json.load(response)


def test_a_command_line_prints_the_address_of_the_ui(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = sorted((ROOT / "tests" / "cases").glob("*.json"))[0]
    with pytest.raises(SystemExit) as left:
        main(["job", "test", str(path), "--master", "local[1]", "--spark-ui", "--spark-conf", "spark.ui.port=0"])
    assert left.value.code in (0, None)
    assert re.search(r"^Spark UI: http://\S+:\d+$", capfd.readouterr().err, re.MULTILINE)


def test_without_a_request_there_is_no_ui() -> None:
    with spark_context(SparkSettings(master="local[1]", conf={"spark.app.name": "mine"}), "theirs") as context:
        assert context.uiWebUrl is None
        assert context.appName == "mine"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        # PySpark 4.0 names no value.
        (SparkSettings(master="local[1]", conf={"spark.executor.heartbeatInterval": "many"}), "many|Time must be"),
        (
            SparkSettings(master="sparks://nowhere:1"),
            "Could not parse Master URL: 'sparks://nowhere:1' [(]SparkException",
        ),
        # Spark says "An error has occurred"; that nobody answers is a cause of a cause.
        (SparkSettings(master="k8s://https://127.0.0.1:1"), "refused"),
    ],
)
def test_what_spark_rejects_is_told_in_one_line(settings: SparkSettings, told: str, tmp_path: Path) -> None:
    with (
        pytest.raises(JobError) as caught,
        spark_context(settings, "rejected", log_file=tmp_path / "log"),
    ):
        pass
    said = str(caught.value)
    assert said.startswith("Spark did not start on")
    assert re.search(told, said)
    assert len(said.splitlines()) == 1
    assert "An error occurred while calling" not in said
    assert "org.apache" not in said


def test_a_start_whose_java_is_killed_may_succeed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of the service wait for it then, instead of failing for good."""
    process = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(SparkContext, "_gateway", None)

    def killed(conf: object, log_file: Path) -> SparkContext:
        SparkContext._gateway = SimpleNamespace(proc=process)
        process.kill()
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("tidegate.spark.session._start", killed)
    with (
        pytest.raises(UnavailableError, match=r"Spark did not start on local\[2\]: Java was killed"),
        spark_context(SparkSettings(), "x", log_file=tmp_path / "log"),
    ):
        pass


def test_what_java_rejects_is_told_in_one_line(tmp_path: Path) -> None:
    said = of_a_process(
        "from tidegate.job import JobError\n"
        f"settings = SparkSettings(master='local[1]', conf={{'spark.driver.memory': 'lots'}})\n"
        f"try:\n    spark_context(settings, 'rejected', log_file=Path({str(tmp_path / 'log')!r})).__enter__()\n"
        "except JobError as error:\n    print(error)"
    )
    assert "lots" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--spark-conf", "executor.memory=1g"], "did you mean 'spark.executor.memory'?"),
        (["--spark-conf", "spark.executor.memory"], "expected KEY=VALUE"),
    ],
)
def test_a_property_that_is_none_ends_the_command_before_spark_starts(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["job", "run", str(write_job(tmp_path, 1)), *arguments])
    assert left.value.code == 2
    assert told in capsys.readouterr().err


def test_properties_without_a_master_are_not_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["job", "test", str(tmp_path), "--spark-ui"])
    assert left.value.code == 2
    assert "need --master" in capsys.readouterr().err


SOCKETS = (
    "with spark_context(SparkSettings(master='local[1]'), 'sockets') as context:\n"
    "    context.parallelize([1], 1).map(abs).collect()\n"
    "    folder = context.getConf().get('spark.python.unix.domain.socket.dir')\n"
    "    print(folder, len(list(Path(folder).glob('.*.sock'))) > 0, flush=True)\n"
)
ARGUMENTS = (
    "    bean = context._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()\n"
    "    print(*bean.getInputArguments(), sep='\\n')\n"
    "    print(context.getConf().get('spark.executor.extraJavaOptions', ''))\n"
)


@pytest.fixture(scope="module")
def left_by_the_killed() -> str:
    """What a driver that was killed said of its sockets, whose folder is there until the next driver."""
    said = of_a_process(SOCKETS + "    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n", killed=True)
    assert Path(said.split()[0]).exists()
    return said


@pytest.fixture(scope="module")
def said_by_the_next(left_by_the_killed: str) -> list[str]:
    """What the driver after it said of its own, and of how its Java was started."""
    return of_a_process(SOCKETS + ARGUMENTS).splitlines()


def test_java_is_started_for_the_short_life_that_a_test_gives_it(said_by_the_next: list[str]) -> None:
    _, *arguments, of_executors = said_by_the_next
    assert {"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"} <= set(arguments)
    assert "TieredStopAtLevel=1" in of_executors


@pytest.mark.soak
def test_workers_of_a_cluster_do_not_wait_for_acknowledgements_either(cluster: str) -> None:
    said = of_a_process(
        f"with spark_context(SparkSettings(master={cluster!r}), 'sockets') as context:\n"
        "    def enabled(number): import os; return os.environ.get('PYTHON_UNIX_DOMAIN_ENABLED')\n"
        "    print(context.parallelize([1], 1).map(enabled).collect())\n"
    )
    assert said.strip() == str([None if version("pyspark").startswith("4.0.") else "True"])


def test_sockets_of_workers_that_a_killed_driver_leaves_are_deleted_by_the_next(
    left_by_the_killed: str, said_by_the_next: list[str]
) -> None:
    # Spark 4.0 has no Unix sockets, and leaves the folder empty.
    has_sockets = str(not version("pyspark").startswith("4.0."))
    left, there = left_by_the_killed.split()
    assert there == has_sockets
    ended, there = said_by_the_next[0].split()
    assert there == has_sockets
    assert not Path(left).exists()
    assert not Path(ended).exists()


def test_a_killed_daemon_of_workers_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another name of the same Python, as in the environment that `make test` gives.
    monkeypatch.setenv("PYSPARK_PYTHON", str(Path(sys.executable).with_name("python3")))

    def daemon(rows: Iterable[int]) -> Iterator[int]:
        list(rows)
        yield os.getppid()

    with spark_context(SparkSettings(master="local[1]"), "daemon") as context:
        one = context.parallelize([1], 1).mapPartitions(daemon)
        (first,) = one.collect()
        assert b"\0tidegate.spark.daemon\0" in Path(f"/proc/{first}/cmdline").read_bytes()
        os.kill(first, signal.SIGKILL)
        assert all(one.collect() for _ in range(3))


def test_workers_of_another_python_are_forked_by_the_daemon_of_pyspark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    with spark_context(SparkSettings(master="local[1]"), "another") as context:
        assert context.getConf().get("spark.python.daemon.module") in (None, "pyspark.daemon")


def of_a_process(script: str, *, killed: bool = False) -> str:
    """Return what a script prints that starts a Java of its own; the one of this process has its settings already."""
    imports = (
        "from pathlib import Path\n"
        "from tidegate.job.config.spark_settings import SparkSettings\n"
        "from tidegate.spark import spark_context\n"
    )
    done = subprocess.run([sys.executable, "-c", imports + script], capture_output=True, text=True, check=not killed)
    assert killed == (done.returncode < 0)
    return done.stdout.strip()
