"""A job whose results executors write to tables, a hub and a file, and whose driver is killed, gives each row once.

`make soak` kills it more often.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.checkpoints.postgres import postgres
from tests.connectors.outputs.test_lake_output import Lake
from tests.connectors.outputs.test_table_output import Place
from tests.job.run.test_run import run_here, write_job
from tests.job.test_kills import events_of
from tests.mariadb import mariadb
from tests.patience import PATIENCE_S, eventually
from tests.profiles import scaled
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.job.run.journal import Journal
from tidegate.server import BackgroundServer

pytestmark = [pytest.mark.spark, pytest.mark.crash]

KILLS = scaled(1)
EVENTS_A_STEP = 300
EVENTS = max(3000, (KILLS + 1) * 4 * EVENTS_A_STEP)
QUERY = """
SELECT System.Timestamp() AS ts, k, v INTO stored FROM i TIMESTAMP BY t WHERE v >= 0
SELECT System.Timestamp() AS ts, k, v INTO mysql FROM i TIMESTAMP BY t WHERE v >= 0
SELECT System.Timestamp() AS ts, k, v INTO sent FROM i TIMESTAMP BY t WHERE v >= 0
SELECT System.Timestamp() AS ts, k, v INTO lines FROM i TIMESTAMP BY t WHERE v >= 0
SELECT System.Timestamp() AS ts, k, v INTO delta FROM i TIMESTAMP BY t WHERE v >= 0
SELECT System.Timestamp() AS ts, k, v INTO iceberg FROM i TIMESTAMP BY t WHERE v >= 0
"""
OUTPUTS = """
[outputs.stored]
type = "postgresql"
connection_string = "{database}"
table = "{schema}.stored"
columns = { k = "nvarchar(max)", v = "float" }
[outputs.mysql]
type = "mysql"
connection_string = "{mysql}"
table = "{schema}.stored"
columns = { k = "nvarchar(max)", v = "float" }
[outputs.sent]
type = "eventhub"
connection_string = "{hub}"
event_hub = "{schema}"
[outputs.lines]
type = "file"
path = "lines.csv"
format = "csv"
[outputs.delta]
type = "deltalake"
path = "delta"
partition_by = ["k"]
columns = { k = "nvarchar(max)", v = "float" }
[outputs.iceberg]
type = "iceberg"
path = "iceberg"
table = "a.t"
columns = { k = "nvarchar(max)", v = "float" }
"""
ORDERING = "late_arrival_tolerance_s = 4\nearly_arrival_tolerance_s = 5"
STAGED = "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'tidegate_staged%'"


class Driver:
    """A process that runs the job on Spark."""

    def __init__(self, job: Path) -> None:
        self._journal = Journal(job.parent / "crash.state")
        self._log = job.parent / "log.txt"
        command = [sys.executable, "-m", "tests.spark.cluster_child", "job", "run", str(job), "--master", "local[2]"]
        command += ["--placement", "spark", "--max-events-per-step", str(EVENTS_A_STEP)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill_once(self, is_time: Callable[[], Any]) -> None:
        """Kill the driver, and with it Spark, when it is time after its first commit."""
        begin = self._steps()
        eventually(lambda: self._steps() > begin or self._process.poll() is not None, 4 * PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while not is_time():
            assert self._process.poll() is None, self._log.read_text()[-5000:]
            assert time.monotonic() < deadline, "it does not come to what it is to be killed in"
            time.sleep(0.002)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def finish(self) -> None:
        """Wait for the end of the job."""
        assert self._process.wait(8 * PATIENCE_S) == 0, self._log.read_text()[-5000:]

    def _steps(self) -> int:
        commit = self._journal.read_commit()
        return 0 if commit is None else commit.steps


def test_a_driver_killed_while_executors_write_gives_each_row_once(tmp_path: Path) -> None:
    dice = random.Random(5)
    hubs = tuple(EventHubConfig(name=name, partition_count=3) for name in ("whole", "killed"))
    with (
        postgres() as database,
        mariadb() as mysql,
        psycopg.connect(database, autocommit=True) as connection,
        BackgroundServer(NamespaceConfig(name="kills", event_hubs=hubs), tmp_path / "hub") as server,
    ):
        place = Place("mysql", mysql)
        jobs = {}
        for schema in ("whole", "killed"):
            connection.execute(f"CREATE SCHEMA {schema}".encode())
            place.run(f"CREATE DATABASE {schema}")
            sections = OUTPUTS.replace("{database}", database).replace("{schema}", schema)
            sections = sections.replace("{hub}", server.connection_string).replace("{mysql}", mysql)
            jobs[schema] = write_job(tmp_path / schema, EVENTS, QUERY, ordering=ORDERING, outputs=sections)
        run_here(jobs["whole"])

        def is_staged() -> bool:
            return connection.execute(STAGED).fetchone() != (0,) or place.run(STAGED) != [(0,)]

        for number in range(KILLS):
            driver = Driver(jobs["killed"])
            if number % 2 == 0:
                # Between what executors have written and the transaction of the driver, or in that.
                driver.kill_once(is_staged)
            else:
                until = time.monotonic() + dice.random() * 2
                driver.kill_once(lambda until=until: time.monotonic() >= until)
        Driver(jobs["killed"]).finish()
        assert connection.execute(STAGED).fetchone() == (0,)
        assert place.run(STAGED) == [(0,)]
        rows = {
            schema: connection.execute(f"SELECT * FROM {schema}.stored ORDER BY 1, 2, 3".encode()).fetchall()
            for schema in jobs
        }
        in_mysql = {schema: place.run(f"SELECT * FROM {schema}.stored ORDER BY 1, 2, 3") for schema in jobs}
        sent = {
            schema: [events_of(server.connection_string, schema, partition) for partition in "012"] for schema in jobs
        }
    assert len(rows["whole"]) > EVENTS * 0.9
    assert rows["killed"] == rows["whole"]
    assert len(in_mysql["whole"]) == len(rows["whole"])
    assert in_mysql["killed"] == in_mysql["whole"]
    assert sent["killed"] == sent["whole"]
    assert sum(map(len, sent["whole"])) == len(rows["whole"])
    for kind in ("deltalake", "iceberg"):
        tables = [Lake(kind, str(tmp_path / name / kind.removesuffix("lake"))).table() for name in jobs]
        whole, killed = (table.sort_by([(name, "ascending") for name in ("ts", "k", "v")]) for table in tables)
        assert killed.to_pylist() == whole.to_pylist()
        assert len(whole) == len(rows["whole"])
    assert (tmp_path / "killed" / "lines.csv").read_bytes() == (tmp_path / "whole" / "lines.csv").read_bytes()
