"""The archive of Spark's classes: when Java is given one, when it writes one, and when it is left alone."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.programs import program
from tidegate.spark.class_archive import ARCHIVE_VARIABLE, options_for, using

MAGIC = b"\xf0\x0b\xab\xa2"
USES, WRITES = "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit="


class Machine:
    """A Java, a Spark and a user's cache folder, as far as archives depend on them."""

    def __init__(self, folder: Path) -> None:
        self.spark, self.cache = folder / "spark", folder / "cache"
        java = folder / "java"
        for path in (self.spark / "jars" / "core.jar", java / "release", java / "lib" / "server" / "classes.jsa"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("17")
        self.java = java
        self.environment = {"JAVA_HOME": str(java), "XDG_CACHE_HOME": str(self.cache)}

    def options(self, conf: dict[str, str] | None = None, **environment: str) -> list[str]:
        return options_for(self.spark, conf or {}, {**self.environment, **environment})

    def path_written(self) -> Path:
        """Return where Java is to write an archive, once it has started here before."""
        first = (self.options() or self.options())[0]
        assert first.startswith(WRITES)
        return Path(first.removeprefix(WRITES))

    def used(self) -> Path:
        """Return the archive that Java is given."""
        first = self.options()[0]
        assert first.startswith(USES)
        return Path(first.removeprefix(USES))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_one_java_has_written_the_next_uses(machine: Machine) -> None:
    written = machine.path_written()
    written.write_bytes(MAGIC + b"classes")
    used = machine.used()
    assert used.read_bytes() == MAGIC + b"classes"
    assert list(machine.cache.glob("tidegate/*.jsa")) == [used]


def test_a_first_start_writes_nothing_since_there_may_be_no_other(machine: Machine) -> None:
    assert machine.options() == []
    assert machine.options()[0].startswith(WRITES)
    # Another Java has not started here yet.
    (machine.java / "release").write_text("21")
    assert machine.options() == []


def test_writing_is_given_up_where_java_is_always_killed_before(machine: Machine) -> None:
    first, *attempts = [machine.options() for _ in range(6)]
    assert first == []
    assert [bool(options) for options in attempts] == [True, True, True, False, False]
    # An archive that was written after all is used.
    Path(attempts[0][0].removeprefix(WRITES)).write_bytes(MAGIC)
    machine.used()


def test_archives_that_nothing_has_used_for_months_are_deleted(machine: Machine) -> None:
    machine.path_written().write_bytes(MAGIC)
    old = machine.used()
    (machine.java / "release").write_text("21")
    long_ago = time.time() - 100 * 86_400
    os.utime(old, (long_ago, long_ago))
    assert machine.options() == []
    assert old.exists()
    machine.options()
    assert not old.exists()


def test_an_archive_in_use_is_no_old_one(machine: Machine) -> None:
    machine.path_written().write_bytes(MAGIC)
    used = machine.used()
    long_ago = time.time() - 100 * 86_400
    os.utime(used, (long_ago, long_ago))
    machine.used()
    assert time.time() - used.stat().st_mtime < 86_400


def test_jobs_that_write_at_the_same_time_leave_one_archive(machine: Machine) -> None:
    written = [machine.path_written(), machine.path_written()]
    assert len(set(written)) == 2
    for number, path in enumerate(written):
        path.write_bytes(MAGIC + bytes([number]))
    assert machine.used().read_bytes() in (MAGIC + b"\0", MAGIC + b"\1")
    assert len(list(machine.cache.glob("tidegate/*.jsa"))) == 1


def test_an_archive_that_is_still_written_is_not_used_and_later_deleted(machine: Machine) -> None:
    # Java leaves room for the beginning, which it writes last.
    written = machine.path_written()
    written.write_bytes(bytes(4096) + b"classes")
    assert machine.path_written() != written
    assert written.exists()
    long_ago = time.time() - 86_400
    os.utime(written, (long_ago, long_ago))
    machine.options()
    assert not written.exists()


@pytest.mark.parametrize("changed", ["jars/core.jar", "jars/more.jar", "java"])
def test_another_java_or_another_spark_has_another_archive(machine: Machine, changed: str) -> None:
    machine.path_written().write_bytes(MAGIC)
    before = machine.used()
    path = machine.java / "release" if changed == "java" else machine.spark / changed
    path.write_text("17.0.1")
    machine.path_written().write_bytes(MAGIC)
    assert machine.used() != before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (ARCHIVE_VARIABLE, "off"),
        ("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=mine.jsa"),
        ("JAVA_TOOL_OPTIONS", "-javaagent:agent.jar"),
        ("PYSPARK_SUBMIT_ARGS", "--driver-class-path more.jar pyspark-shell"),
        ("SPARK_CONF_DIR", "/etc/spark"),
        ("HADOOP_CONF_DIR", "/etc/hadoop"),
        ("PATH", ""),
    ],
)
def test_java_is_left_alone_where_the_environment_decides(machine: Machine, name: str, value: str) -> None:
    machine.path_written()
    if name == "PATH":
        del machine.environment["JAVA_HOME"]
    assert machine.options(**{name: value}) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.driver.extraJavaOptions", "-Xshare:off"),
        ("spark.driver.extraJavaOptions", "-XX:+AutoCreateSharedArchive"),
        ("spark.driver.extraJavaOptions", "-javaagent:agent.jar"),
        ("spark.driver.extraClassPath", "more.jar"),
    ],
)
def test_java_is_left_alone_where_properties_decide(machine: Machine, name: str, value: str) -> None:
    machine.path_written()
    assert machine.options({name: value}) == []


def test_other_options_of_the_user_do_not_matter(machine: Machine) -> None:
    machine.path_written()
    assert machine.options({"spark.driver.extraJavaOptions": "-Duser.timezone=UTC -Xlog:gc"}) != []


def test_java_is_left_alone_where_no_archive_can_be_kept(machine: Machine) -> None:
    machine.cache.write_text("not a folder")
    assert machine.options() == []
    assert machine.options() == []


def test_an_archive_that_others_may_write_is_not_used(machine: Machine) -> None:
    machine.path_written().write_bytes(MAGIC)
    folder = machine.used().parent
    folder.chmod(0o777)
    assert machine.options() == []


def test_java_without_classes_of_its_own_is_left_alone(machine: Machine) -> None:
    machine.path_written()
    (machine.java / "lib" / "server" / "classes.jsa").unlink()
    assert machine.options() == []


def test_spark_with_a_folder_of_settings_is_left_alone(machine: Machine) -> None:
    machine.path_written()
    (machine.spark / "conf").mkdir()
    (machine.spark / "conf" / "spark-defaults.conf").write_text("spark.driver.memory 2g")
    assert machine.options() == []


@pytest.mark.programs
def test_java_says_nothing_of_an_archive_that_does_not_fit(tmp_path: Path) -> None:
    for content in (None, b"", MAGIC + bytes(4096), b"no archive" * 1000):
        archive = tmp_path / "some.jsa"
        if content is not None:
            archive.write_bytes(content)
        done = subprocess.run([program("java"), *using(archive), "-version"], capture_output=True, check=True)
        assert b"arch" not in done.stdout + done.stderr
