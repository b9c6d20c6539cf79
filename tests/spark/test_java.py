"""Java that does not start: the reason that reaches the user, and the second try where the cause may pass."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext

from tidegate.connectors.model.errors import UnavailableError
from tidegate.job import JobError
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.spark import spark_context
from tidegate.spark.class_archive import ARCHIVE_VARIABLE
from tidegate.spark.java import can_pass, find_java, reason_of, start_java

# A virtual machine without memory says so on its standard output.
NO_MEMORY = """#
# There is insufficient memory for the Java Runtime Environment to continue.
# Native memory allocation (mmap) failed to map 520192 bytes. Error detail: committing reserved memory.
# An error report file with more information is saved as:
# /tmp/hs_err_pid1.log"""
TOO_OLD = (
    "Error: A JNI error has occurred, please check your installation and try again\n"
    'Exception in thread "main" java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main has been '
    "compiled by a more recent version of the Java Runtime (class file version 61.0)"
)
# Spark starts Java twice: the first prints the command of the second.
STAND_IN = """#!/bin/sh
echo started >> "{folder}/starts"
case "$*" in
*launcher.Main*) printf '\\0\\n%s\\0%s\\0' "$0" second; exit 0 ;;
esac
{body}
"""


def java_home(folder: Path, body: str, text: str = STAND_IN) -> Path:
    """Return the folder of a stand-in for Java."""
    path = folder / "java" / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(text.format(folder=folder, body=body))
    path.chmod(0o755)
    return folder / "java"


@pytest.fixture
def no_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process have started no Java."""
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr("tidegate.spark.java._PAUSE_S", 0.01)


def refusal(home: Path, log_file: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(JobError) as caught:
        start_java(SparkConf().setMaster("local[1]"), log_file)
    return str(caught.value)


@pytest.mark.parametrize("descriptor", [1, 2])
@pytest.mark.usefixtures("no_gateway")
def test_what_java_says_reaches_the_user_wherever_it_says_it(
    descriptor: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java_home(tmp_path, f"echo 'Unrecognized VM option FewThreads' >&{descriptor}; exit 1")
    said = refusal(home, tmp_path / "log", monkeypatch)
    assert said == "Java ended as it started (exit code 1): Unrecognized VM option FewThreads"
    assert (tmp_path / "starts").read_text().count("started") == 2
    assert "FewThreads" in (tmp_path / "log").read_text()


@pytest.mark.usefixtures("no_gateway")
def test_a_reason_is_told_without_the_thread_and_the_class_of_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = 'Exception in thread "main" org.apache.spark.SparkException: Master must be yarn'
    home = java_home(tmp_path, f"echo '{raised}' >&2; exit 1")
    assert refusal(home, tmp_path / "log", monkeypatch) == "Java ended as it started (exit code 1): Master must be yarn"


@pytest.mark.usefixtures("no_gateway")
def test_a_start_without_memory_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal(java_home(tmp_path, f"echo '{NO_MEMORY}'; exit 1"), tmp_path / "log", monkeypatch)
    assert said.startswith("Java ended as it started, twice (exit code 1): There is insufficient memory")
    assert "failed to map 520192 bytes" in said
    assert "hs_err" not in said
    assert (tmp_path / "starts").read_text().count("started") == 4


@pytest.mark.usefixtures("no_gateway")
def test_java_is_told_where_to_keep_its_classes_before_the_options_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java_home(tmp_path, f'echo "$SPARK_SUBMIT_OPTS" > "{tmp_path}/options"; exit 1')
    (home / "lib" / "server").mkdir(parents=True)
    for path in (home / "release", home / "lib" / "server" / "classes.jsa"):
        path.touch()
    monkeypatch.delenv(ARCHIVE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=b")
    refusal(home, tmp_path / "log", monkeypatch)
    options = (tmp_path / "options").read_text().split()
    assert options[0].startswith(f"-XX:ArchiveClassesAtExit={tmp_path}/cache/tidegate/spark-")
    assert options[-1] == "-Da=b"


@pytest.mark.usefixtures("no_gateway")
def test_java_that_is_killed_each_time_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal(java_home(tmp_path, "kill -9 $$"), tmp_path / "log", monkeypatch)
    assert said == "Java ended as it started, twice (killed by SIGKILL): it said nothing"


@pytest.mark.usefixtures("no_gateway")
def test_a_launcher_of_java_that_is_killed_may_start_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's script then ends by itself, with a line about itself."""
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, "", "#!/bin/sh\nkill -9 $$\n{body}")))
    with pytest.raises(UnavailableError, match=r"Java ended as it started, twice \(exit code 1\): it said nothing"):
        start_java(SparkConf().setMaster("local[1]"), tmp_path / "log")


@pytest.mark.usefixtures("no_gateway")
def test_java_that_is_killed_when_it_has_said_where_it_listens_may_start_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = '"$_PYSPARK_DRIVER_CONN_INFO_PATH"'
    # Port 1, where nothing listens, and a secret of one letter.
    body = f"printf '\\0\\0\\0\\001\\0\\0\\0\\001x' > {written}.new; mv {written}.new {written}; kill -9 $$"
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, body)))
    with pytest.raises(UnavailableError, match=r"Java ended as it started, twice \(killed by SIGKILL\)"):
        start_java(SparkConf().setMaster("local[1]"), tmp_path / "log")


@pytest.mark.usefixtures("no_gateway")
def test_java_that_is_killed_as_it_starts_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which("java")
    once = f"""#!/bin/sh
case "$*" in
*launcher.Main*) ;;
*) [ -e "{{folder}}/killed" ] || {{{{ touch "{{folder}}/killed"; kill -9 $$; }}}} ;;
esac
exec {real} "$@"
{{body}}
"""
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, "", once)))
    gateway: Any = start_java(SparkConf().setMaster("local[1]"), tmp_path / "log")
    try:
        assert (tmp_path / "killed").exists()
        assert gateway.jvm.java.lang.System.getProperty("java.version")
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


@pytest.mark.usefixtures("no_spark")
def test_java_that_has_ended_is_replaced(tmp_path: Path) -> None:
    settings, log = SparkSettings(master="local[1]"), tmp_path / "log"
    with spark_context(settings, "one", log_file=log):
        java: Any = SparkContext._gateway
    java.proc.kill()
    java.proc.wait()
    with spark_context(settings, "two", log_file=log) as context:
        assert context.parallelize([1], 1).count() == 1


@pytest.mark.parametrize(
    ("said", "passes", "reason"),
    [
        (NO_MEMORY, True, "There is insufficient memory"),
        ("", True, "it said nothing"),
        ("Error occurred during initialization of VM\nCould not reserve enough space for object heap", True, "reserve"),
        ("bin/spark-class: line 71: /x/java: Text file busy", True, "Text file busy"),
        ("bash: fork: retry: Resource temporarily unavailable", True, "temporarily unavailable"),
        (TOO_OLD, False, "it is too old for Spark; install Java 17"),
        ("Error: Could not find or load main class", False, "Could not find or load main class"),
        ("one\ntwo\nthree\nfour\n\tat x.Y.z(Y.java:1)", False, "two; three; four"),
    ],
)
def test_the_reason_is_in_what_java_said(said: str, passes: bool, reason: str) -> None:
    assert can_pass(said) is passes
    assert reason in reason_of(said)


def test_without_java_the_reason_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JobError, match=f"JAVA_HOME is {tmp_path}, where there is no bin/java; set it to"):
        find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JobError, match="there is no Java: JAVA_HOME is not set, and PATH has no java; install Java 17"):
        find_java()


def test_a_log_without_a_line_is_not_pointed_to(
    tmp_path: Path, no_gateway: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    log = tmp_path / "log"
    with (
        pytest.raises(JobError, match=r"^Spark did not start on local\[1\]: JAVA_HOME is [^;]*; set it to .* of PATH$"),
        spark_context(SparkSettings(master="local[1]"), "without-java", log_file=log),
    ):
        pass
    assert not log.exists()


def test_a_master_that_does_not_answer_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        master = f"spark://127.0.0.1:{held.getsockname()[1]}"
        with (
            pytest.raises(JobError, match=f"Spark did not start on {master}: no master answers at .*[Rr]efused"),
            spark_context(SparkSettings(master=master), "unheard", log_file=tmp_path / "log"),
        ):
            pass
    assert not (tmp_path / "log").exists()
