"""Java for tests: servers whose jars come from Maven Central, by the pom.xml in their folders, and how Spark starts."""

import itertools
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.programs import program
from tidegate.spark import class_archive

# Each Java of a test lives for seconds, so compiling well is time lost; this halves the processor time of Spark.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
"""Spark's classes as Java keeps them in memory; `python -m tests.jars` writes them. With them Spark starts in half."""


def class_path(folder: Path) -> str:
    """Return the class path of the jars that a folder's pom.xml names, which are fetched if they are missing."""
    jars = folder / "jars"
    if not (jars / "fetched").exists():
        command = [program("mvn", needed="maven"), "--quiet", "--batch-mode", f"--file={folder / 'pom.xml'}"]
        fetch = ["dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"]
        subprocess.run([*command, *fetch], check=True, capture_output=True)
        (jars / "fetched").touch()
    return f"{jars}/*"


def with_classes(archive: Path) -> list[str]:
    """Return the options that let Java take classes from an archive, if there is one."""
    return class_archive.using(archive) if archive.exists() else []


def keeping_classes(archive: Path) -> list[str]:
    """Return the options that let Java write its classes to an archive, in place of an older one, as it ends."""
    archive.unlink(missing_ok=True)
    return class_archive.writing(archive)


def java(*arguments: str) -> list[str]:
    """Return the command that starts Java for a server that lives for seconds."""
    return [program("java"), *_SHORT_LIVED.split(), "-Xmx512m", *arguments]


def start_spark_quickly() -> None:
    """Let every Java process of Spark that this process and its children start be made for a short life.

    By the variables of Spark's own scripts, because Java reports those of its own on standard error.
    """
    options = " ".join([_SHORT_LIVED, *with_classes(ARCHIVE)])
    # Tests leave nothing in the user's cache folder, and take nothing from it.
    os.environ[class_archive.ARCHIVE_VARIABLE] = "off"
    os.environ["SPARK_LAUNCHER_OPTS"] = _SHORT_LIVED
    os.environ["SPARK_DAEMON_JAVA_OPTS"] = options
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} '-Dspark.executor.extraJavaOptions={options}'"


def stop_spark() -> None:
    """Stop the Spark session that tests of this process share, if there is one; its Java process stays.

    A session whose Java a test has killed cannot be stopped. It is forgotten, so that the next one gets a new Java.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from tidegate.spark.java import forget_ended_java

    if (session := SparkSession._instantiatedSession) is None:
        return
    forget_ended_java()
    if SparkContext._gateway is None:
        SparkSession._instantiatedSession = SparkContext._active_spark_context = None
    else:
        session.stop()


def _write_archive() -> None:
    """Run a little of everything on Spark, and write the classes that were used."""
    from pyspark.sql import SparkSession

    from tidegate.spark import end_java

    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([_SHORT_LIVED, *keeping_classes(ARCHIVE)])
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    numbers = session.range(1000).selectExpr("id % 7 AS k", "id AS v")
    numbers.groupBy("k").count().collect()
    numbers.mapInArrow(lambda batches: batches, "k long, v long").collect()
    pairs = numbers.groupBy("k").cogroup(numbers.groupBy("k"))
    pairs.applyInArrow(lambda left, right: left, "k long, v long").toArrow()
    with tempfile.TemporaryDirectory() as folder:
        numbers.selectExpr("k", "to_json(struct(v)) AS body").write.partitionBy("k").parquet(f"{folder}/rows")
        stream = session.readStream.schema("k long, body string").parquet(f"{folder}/rows").writeStream
        stream = stream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        stream.trigger(availableNow=True).start(f"{folder}/copies").awaitTermination()
        session.read.parquet(f"{folder}/copies").selectExpr("count(*)", "count(DISTINCT body)").collect()
    session.stop()
    # Java writes the archive as it ends.
    end_java(PATIENCE_S)


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nothing listens on.

    The system gives none of them to a program that asks for any port, so they stay free until a server takes them.
    """
    found: list[int] = []
    while len(found) < count:
        port = next(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


# Below those of any system; processes of one run begin far from each other.
_LOWEST, _NUMBER_OF_PORTS = 12_000, 20_000
_PORTS = itertools.cycle(
    _LOWEST + (os.getpid() * 997 + number) % _NUMBER_OF_PORTS for number in range(_NUMBER_OF_PORTS)
)


if __name__ == "__main__":
    _write_archive()
