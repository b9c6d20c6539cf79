"""A query whose driver is killed writes each row once, to whatever sink.

The Spark that a driver uses survives, with its half of the query, and may be busy with the last batch when the next
driver comes. `make test` does so with JDBC, whose transactions are ours; `make soak` does it more often, with the sinks
of Spark and of users too, and kills Spark as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from tests.checkpoints.postgres import postgres
from tests.jars import class_path, free_ports
from tests.patience import PATIENCE_S
from tests.profiles import scaled
from tests.source import ROOT
from tests.spark.stream_child import COLUMNS, EVENTS_PER_STEP, QUERY, SCHEMA
from tidegate.connectors.outputs import OutputUnavailableError
from tidegate.spark import end_java, events, sql
from tidegate.spark.streaming.jdbc import JdbcSink

pytestmark = [pytest.mark.spark, pytest.mark.crash]

KILLS = scaled(1)
STEPS_OF_A_LIFE = 4
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

Row = tuple[datetime, str, int, int]


@pytest.fixture(scope="module")
def spark(no_spark: None) -> Iterator[SparkSession]:
    """A session that lends its Java process to drivers that are killed."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # The Java process of earlier tests would not look for the database's driver.
    end_java()
    with pytest.MonkeyPatch.context() as patch:
        # Behind Spark's own classes, or Java would not find those in their archive.
        patch.setenv("SPARK_DIST_CLASSPATH", class_path(ROOT / "tests" / "spark"))
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def lent(spark: SparkSession) -> dict[str, str]:
    """The environment of a process that uses the session's Java process."""
    parameters = spark.sparkContext._gateway.gateway_parameters
    gateway = {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}
    return {**os.environ, **gateway, "PYSPARK_PYTHON": sys.executable}


def recorded(path: Path, kills: int) -> list[Row]:
    """Write a log of an event a second by each of three devices, and return the counts that belong to it."""
    events = max(1, kills) * STEPS_OF_A_LIFE * EVENTS_PER_STEP
    counts: dict[tuple[datetime, str], list[int]] = {}
    with path.open("w") as file:
        for n in range(events):
            second, device = divmod(n, 3)
            time = BEGIN + timedelta(seconds=second)
            text = time.strftime("%Y-%m-%dT%H:%M:%SZ")
            body = {"t": text, "device": f"d{device}", "x": n}
            file.write(json.dumps({"partition": device % 2, "arrival": text, "body": body}) + "\n")
            # A window has its end, and not its beginning.
            end = BEGIN + timedelta(seconds=-(-second // 10) * 10)
            counts.setdefault((end, f"d{device}"), []).append(n)
    return sorted((end, device, len(found), sum(found)) for (end, device), found in counts.items())


def run_with_kills(tmp_path: Path, sink: str, target: str, kills: int, environment: dict[str, str]) -> list[Row]:
    """Run the query, kill it now and then, and return the rows that it should have written."""
    expected = recorded(tmp_path / "log.jsonl", kills)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    arguments = (sink, target, str(tmp_path / "log.jsonl"), str(tmp_path / "checkpoint"))
    for life in range(kills + 1):
        with (tmp_path / "errors").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.stream_child", *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env=environment,
            )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"running\n", (tmp_path / "errors").read_text()
            if life == kills:
                assert process.wait(3 * PATIENCE_S) == 0, (tmp_path / "errors").read_text()
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.random() * 2)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return expected


def write_files(folder: Path, count: int) -> None:
    """Write files of 30 events each, some late and some out of order.

    A timeline's last results wait for its clock, so the last file has a row of a later time.
    """
    folder.mkdir()
    for number in range(count):
        rows = []
        for n in range(30 * number, 30 * number + 30):
            arrival = BEGIN + timedelta(seconds=n)
            lateness = timedelta(seconds=(n * 7) % 5 + (60 if n % 40 == 0 else 0))
            rows.append({"t": arrival - lateness, "device": f"d{n % 3}", "x": n, "arrival": arrival})
        if number == count - 1:
            end = BEGIN + timedelta(days=1)
            rows.append({"t": end, "device": "end", "x": 0, "arrival": end})
        path = folder / f"{number:04}.parquet"
        parquet.write_table(pa.Table.from_pylist(rows), path)
        # Spark takes files by their times, which those of a moment share.
        os.utime(path, (number, number))


@pytest.mark.soak
@pytest.mark.parametrize("with_spark", [False, True], ids=["the driver", "the driver and Spark"])
def test_a_query_that_reads_a_stream_writes_each_row_once(
    tmp_path: Path, spark: SparkSession, lent: dict[str, str], with_spark: bool
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    deaths = ["within", "between", *chance.choices(["never", "within", "between"], k=KILLS)]
    # A life that is ended from outside takes a batch in some tenths of a second.
    write_files(tmp_path / "files", 2 * len(deaths) + 20 * deaths.count("never") + 3)
    given = {"i": events(spark.read.schema(COLUMNS).parquet(str(tmp_path / "files")), arrival="arrival")}
    rows = sql(spark, QUERY, inputs=given, schema=SCHEMA).where("device <> 'end'").toArrow().to_pylist()
    expected = sorted(map(as_row, rows))
    assert len(expected) > 20
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable} if with_spark else lent
    arguments = ("parquet", str(tmp_path / "out"), str(tmp_path / "files"), str(tmp_path / "checkpoint"))
    for death in (*deaths, None):
        command = [sys.executable, "-m", "tests.spark.stream_child", *arguments, *([] if death is None else [death])]
        with (tmp_path / "errors").open("wb") as errors:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, start_new_session=True, env=environment
            )
        try:
            if death == "never":
                assert process.stdout is not None
                assert process.stdout.readline() == b"running\n", (tmp_path / "errors").read_text()
                time.sleep(chance.random() * 3)
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait(3 * PATIENCE_S)
            assert status == (0 if death is None else -signal.SIGKILL), (tmp_path / "errors").read_text()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert rows_of(spark, tmp_path / "out") == expected


def as_row(values: dict[str, Any]) -> Row:
    """A row as a reader of files sees it."""
    time: datetime = values["window_end"]
    return time.replace(tzinfo=UTC), values["device"], values["n"], values["total"]


def rows_of(spark: SparkSession, folder: Path) -> list[Row]:
    """The rows of a folder as Spark reads it: files that its log of batches does not have are none of it."""
    return sorted(map(as_row, spark.read.parquet(str(folder)).toArrow().to_pylist()))


@pytest.mark.soak
def test_parquet_has_each_row_once(tmp_path: Path, spark: SparkSession, lent: dict[str, str]) -> None:
    expected = run_with_kills(tmp_path, "parquet", str(tmp_path / "out"), KILLS, lent)
    assert rows_of(spark, tmp_path / "out") == expected


@pytest.mark.soak
def test_delta_has_each_row_once_and_batches_in_order(tmp_path: Path, lent: dict[str, str]) -> None:
    expected = run_with_kills(tmp_path, "foreachBatch", str(tmp_path / "table"), KILLS, lent)
    table = deltalake.DeltaTable(tmp_path / "table")
    found = sorted((as_row(row), row["step"]) for row in table.to_pyarrow_table().to_pylist())
    assert [row for row, _ in found] == expected
    steps = [step for _, step in found]
    assert steps == sorted(steps)
    assert set(steps) == set(range(max(steps) + 1))
    assert table.transaction_version("counts") == max(steps)


def test_a_table_of_jdbc_has_each_row_once(tmp_path: Path, lent: dict[str, str]) -> None:
    (port,) = free_ports(1)
    with postgres(port) as conninfo:
        owner = conninfo.partition("//")[2].partition("@")[0]
        url = f"jdbc:postgresql://127.0.0.1:{port}/postgres?user={owner}"
        expected = run_with_kills(tmp_path, "jdbc", url, KILLS, lent)
        with psycopg.connect(conninfo) as connection:
            rows = connection.execute("SELECT window_end, device, n, total FROM counts").fetchall()
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert sorted((row[0].replace(tzinfo=UTC), *row[1:]) for row in rows) == expected
    assert sorted(tables) == [("counts",), ("tidegate_steps",)]


@pytest.mark.soak
def test_the_end_of_driver_and_spark_together_loses_and_repeats_nothing(tmp_path: Path, spark: SparkSession) -> None:
    kills = 1 if KILLS else 0
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    expected = run_with_kills(tmp_path, "parquet", str(tmp_path / "out"), kills, environment)
    assert rows_of(spark, tmp_path / "out") == expected


def test_a_lock_that_another_run_holds_is_named_instead_of_waited_for_in_silence(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.spark.streaming.jdbc._LONGEST_LOCK_S", 1)
    (port,) = free_ports(1)
    with postgres(port) as conninfo:
        owner = conninfo.partition("//")[2].partition("@")[0]
        url = f"jdbc:postgresql://127.0.0.1:{port}/postgres?user={owner}"
        sink = JdbcSink(spark, {"url": url, "dbtable": "counts"}, "a query")
        sink.write(spark.range(3), 0)
        with psycopg.connect(conninfo) as other:
            other.execute("UPDATE tidegate_steps SET step = step")
            with pytest.raises(OutputUnavailableError, match="tidegate_steps has been locked for 1 s"):
                sink.write(spark.range(3, 5), 1)
        sink.write(spark.range(3, 5), 1)
        with psycopg.connect(conninfo) as connection:
            rows = connection.execute("SELECT id FROM counts ORDER BY id").fetchall()
    assert [row[0] for row in rows] == [0, 1, 2, 3, 4]
