"""A job whose results executors write to tables, a hub and a file, and whose driver is killed, gives each row once.

This is for `make soak`. `make test` kills the driver of `test_cluster_crash.py` while executors write to a table.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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
EVENTS_A_STEP = 200
EVENTS = (KILLS + 1) * 4 * EVENTS_A_STEP
QUERY = "SELECT System.Timestamp() AS ts, k, v INTO {name} FROM i TIMESTAMP BY t WHERE v >= 0\n"
COLUMNS = 'columns = { k = "nvarchar(max)", v = "float" }\n'
OUTPUTS = {
    "stored": f'type = "postgresql"\nconnection_string = "{{database}}"\ntable = "{{schema}}.stored"\n{COLUMNS}',
    "lines": 'type = "file"\npath = "lines.csv"\nformat = "csv"\n',
    "mysql": f'type = "mysql"\nconnection_string = "{{mysql}}"\ntable = "{{schema}}.stored"\n{COLUMNS}',
    "sent": 'type = "eventhub"\nconnection_string = "{hub}"\nevent_hub = "{schema}"\n',
    "delta": f'type = "deltalake"\npath = "delta"\npartition_by = ["k"]\n{COLUMNS}',
    "iceberg": f'type = "iceberg"\npath = "iceberg"\ntable = "a.t"\n{COLUMNS}',
}
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


def sections(names: Sequence[str], schema: str, places: Mapping[str, str]) -> str:
    """Return the outputs of a job that writes to a schema."""
    text = "".join(f"[outputs.{name}]\n{OUTPUTS[name]}" for name in names)
    for placeholder, value in {"schema": schema, **places}.items():
        text = text.replace(f"{{{placeholder}}}", value)
    return text


def rows_of(name: str, schema: str, folder: Path, places: Mapping[str, str]) -> list[Any]:
    """Return the rows that readers of an output see."""
    match name:
        case "stored" | "mysql":
            kind, where = ("postgresql", places["database"]) if name == "stored" else (name, places["mysql"])
            return Place(kind, where).run(f"SELECT * FROM {schema}.stored ORDER BY 1, 2, 3")
        case "lines":
            _, *lines = (folder / "lines.csv").read_bytes().splitlines()
            return lines
        case "sent":
            return [event for partition in "012" for event in events_of(places["hub"], schema, partition)]
    table = Lake("deltalake" if name == "delta" else name, str(folder / name)).table()
    rows: list[Any] = table.sort_by([(column, "ascending") for column in ("ts", "k", "v")]).to_pylist()
    return rows


@pytest.mark.soak
@pytest.mark.parametrize("names", [("stored", "lines"), tuple(OUTPUTS)])
def test_a_driver_killed_while_executors_write_gives_each_row_once(tmp_path: Path, names: Sequence[str]) -> None:
    dice = random.Random(5)
    hubs = tuple(EventHubConfig(name=name, partition_count=3) for name in ("whole", "killed"))
    with ExitStack() as stack:
        places = {"database": stack.enter_context(postgres())}
        databases = [Place("postgresql", places["database"])]
        if "mysql" in names:
            places["mysql"] = stack.enter_context(mariadb())
            databases.append(Place("mysql", places["mysql"]))
        if "sent" in names:
            config = NamespaceConfig(name="kills", event_hubs=hubs)
            places["hub"] = stack.enter_context(BackgroundServer(config, tmp_path / "hub")).connection_string
        jobs = {}
        for schema in ("whole", "killed"):
            for database in databases:
                database.run(f"CREATE SCHEMA {schema}")
            query = "".join(QUERY.format(name=name) for name in names)
            outputs = sections(names, schema, places)
            jobs[schema] = write_job(tmp_path / schema, EVENTS, query, ordering=ORDERING, outputs=outputs)
        run_here(jobs["whole"])

        def is_staged() -> bool:
            return any(database.run(STAGED) != [(0,)] for database in databases)

        for number in range(KILLS):
            driver = Driver(jobs["killed"])
            if number % 2 == 0:
                # Between what executors have written and the transaction of the driver, or in that.
                driver.kill_once(is_staged)
            else:
                until = time.monotonic() + dice.random() * 2
                driver.kill_once(lambda until=until: time.monotonic() >= until)
        Driver(jobs["killed"]).finish()
        assert not is_staged()
        for name in names:
            whole, killed = (rows_of(name, schema, path.parent, places) for schema, path in jobs.items())
            assert killed == whole
            assert EVENTS * 0.9 < len(whole) <= EVENTS
