"""A job that is killed again and again gives each row once, whatever output it goes to.

`make soak` kills each more often.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from azure.data.tables import TableServiceClient
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from redis import Redis

from tests.artemis import artemis
from tests.artemis import messages_of as messages_of_queue
from tests.azurite import azurite, azurite_tables, container
from tests.checkpoints.postgres import postgres
from tests.cosmos_account import account
from tests.http_receiver import Request, receiver
from tests.job.run.test_run import run_here, write_job
from tests.kafka import kafka, messages_of
from tests.mariadb import mariadb
from tests.patience import PATIENCE_S
from tests.profiles import scaled
from tests.redis_server import redis_server
from tests.s3_server import s3_server
from tidegate.client import ConnectionString, HubClient
from tidegate.client.event import decode
from tidegate.connectors.outputs.files.file_location import open_location
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.job import load_job
from tidegate.job.run.journal import Journal
from tidegate.server import BackgroundServer

KILLS = scaled(1)
STEPS_OF_A_LIFE = 15
"""At most, however late the kill comes: with the pauses between them they last for more than one commit."""
EVENTS = max(1000, 2 * KILLS * (STEPS_OF_A_LIFE + 1))
# A start that looks back for five minutes would read the whole log again after each kill.
ORDERING = "late_arrival_tolerance_s = 4\nearly_arrival_tolerance_s = 5"

Rows = dict[str, list[Any]]


@contextmanager
def _files(folder: Path, settings: str, suffix: str) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    sections = "".join(
        f'[outputs.{name}]\ntype = "file"\npath = "{name}.{suffix}"\n{settings}\n' for name in ("counted", "large")
    )
    yield sections, lambda where: {path.stem: [path.read_bytes()] for path in where.glob(f"*.{suffix}")}


@contextmanager
def _folders(folder: Path, settings: str, read: Callable[[bytes], list[Any]]) -> Iterator[tuple[str, Any]]:
    sections = (
        f'[outputs.counted]\ntype = "files"\npath = "counted/{{datetime:HH-mm-s}}"\nminimum_rows = 50\n{settings}\n'
        f'[outputs.large]\ntype = "files"\npath = "large/k={{k}}"\nmaximum_time_s = 0.02\n{settings}\n'
    )

    def rows(where: Path) -> Rows:
        """The rows of each folder that readers see, in the order of the names of its files."""
        found: Rows = {}
        for path in sorted((where / name for name in _visible_files(where)), key=str):
            found.setdefault(str(path.parent.relative_to(where)), []).extend(read(path.read_bytes()))
        return found

    yield sections, rows


def _visible_files(where: Path) -> Iterator[Path]:
    for path in where.glob("*/**/*"):
        name = path.relative_to(where)
        if path.is_file() and name.parts[0] in ("counted", "large") and "_tidegate" not in name.parts:
            yield name


@contextmanager
def _azurite(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    with azurite() as account, pytest.MonkeyPatch.context() as patch:
        container(account, "results")
        patch.setenv("AZURE_STORAGE_CONNECTION_STRING", account)
        root = "az://results"
        sections = (
            f'[outputs.counted]\ntype = "files"\npath = "{root}/{{schema}}/counted"\nminimum_rows = 200\n'
            f'[outputs.large]\ntype = "files"\npath = "{root}/{{schema}}/large/{{datetime:HH-mm}}"\n'
        )

        def rows(where: Path) -> Rows:
            place = open_location(f"{root}/{where.name}")
            found: Rows = {}
            for name in sorted(one for one in place.names("") if "_tidegate" not in one):
                found.setdefault(name.rpartition("/")[0], []).extend((place.read(name) or b"").splitlines())
            return found

        yield sections, rows


@contextmanager
def _s3(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        root = server.create_bucket("results")
        for name, value in server.environment.items():
            patch.setenv(name, value)
        columns = 'columns = { k = "nvarchar(max)", v = "float" }'
        sections = (
            f'[outputs.counted]\ntype = "files"\npath = "{root}/{{schema}}/counted"\nminimum_rows = 200\n'
            f'[outputs.large]\ntype = "files"\npath = "{root}/{{schema}}/large/{{datetime:HH-mm}}"\n'
            f'format = "parquet"\n{columns}\n'
        )

        def rows(where: Path) -> Rows:
            place = open_location(f"{root}/{where.name}")
            found: Rows = {}
            for name in sorted(one for one in place.names("") if "_tidegate" not in one):
                content = place.read(name) or b""
                is_parquet = name.endswith(".parquet")
                lines = pq.read_table(io.BytesIO(content)).to_pylist() if is_parquet else content.splitlines()
                found.setdefault(name.rpartition("/")[0], []).extend(lines)
            return found

        yield sections, rows


@contextmanager
def _lake_in_s3(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        root = server.create_bucket("lake")
        for name, value in {**server.environment, "AWS_ALLOW_HTTP": "true"}.items():
            patch.setenv(name, value)
        sections = "".join(
            f'[outputs.{name}]\ntype = "deltalake"\npath = "{root}/{{schema}}/{name}"\n'
            'columns = { k = "nvarchar(max)", v = "float" }\n'
            for name in ("counted", "large")
        )

        def rows(where: Path) -> Rows:
            tables = {
                name: DeltaTable(f"{root}/{where.name}/{name}").to_pyarrow_table() for name in ("counted", "large")
            }
            return {name: sorted(map(repr, table.to_pylist())) for name, table in tables.items()}

        yield sections, rows


@contextmanager
def _lake(folder: Path, kind: str) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    columns = 'columns = { k = "nvarchar(max)", v = "float" }\n'
    place = {"deltalake": 'path = "%s"\n', "iceberg": 'path = "lake"\ntable = "a.%s"\n'}[kind]
    sections = "".join(f'[outputs.{name}]\ntype = "{kind}"\n{place % name}{columns}' for name in ("counted", "large"))

    def rows(where: Path) -> Rows:
        if kind == "deltalake":
            tables = {name: DeltaTable(str(where / name)).to_pyarrow_table() for name in ("counted", "large")}
        else:
            uri = f"sqlite:///{where}/lake/catalog.db"
            catalog = load_catalog("default", type="sql", uri=uri, warehouse=f"file://{where}/lake")
            tables = {name: catalog.load_table(f"a.{name}").scan().to_arrow() for name in ("counted", "large")}
        return {name: sorted(map(repr, table.to_pylist())) for name, table in tables.items()}

    yield sections, rows


@contextmanager
def _sqlite(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    sections = "".join(
        f'[outputs.{name}]\ntype = "sqlite"\npath = "results.db"\ntable = "{name}"\n' for name in ("counted", "large")
    )

    def rows(where: Path) -> Rows:
        with sqlite3.connect(where / "results.db") as connection:
            return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in ("counted", "large")}

    yield sections, rows


@contextmanager
def _postgresql(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    import psycopg

    with postgres() as conninfo:
        sections = (
            '[outputs.counted]\ntype = "postgresql"\nconnection_string = "{conninfo}"\ntable = "{schema}.counted"\n'
            'columns = { k = "nvarchar(max)" }\n'
            '[outputs.large]\ntype = "postgresql"\nconnection_string = "{conninfo}"\ntable = "{schema}.large"\n'
            'columns = { k = "nvarchar(max)", v = "float" }\nkey = ["ts", "k"]\n'
        ).replace("{conninfo}", conninfo)
        with psycopg.connect(conninfo, autocommit=True) as connection:
            for schema in ("whole", "killed"):
                connection.execute(f"CREATE SCHEMA {schema}")

            def rows(where: Path) -> Rows:
                return {
                    name: connection.execute(f"SELECT * FROM {where.name}.{name} ORDER BY 1, 2, 3").fetchall()
                    for name in ("counted", "large")
                }

            yield sections, rows


@contextmanager
def _mysql(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    import pymysql

    with mariadb() as address:
        sections = (
            f'[outputs.counted]\ntype = "mysql"\nconnection_string = "{address}"\ntable = "{{schema}}.counted"\n'
            'columns = { k = "nvarchar(max)" }\n'
            f'[outputs.large]\ntype = "mysql"\nconnection_string = "{address}"\ntable = "{{schema}}.large"\n'
            'columns = { k = "nvarchar(max)", v = "float" }\nkey = ["ts", "k"]\n'
        )
        socket = address.partition("unix_socket=")[2]
        with pymysql.connect(user="root", unix_socket=socket, autocommit=True) as connection:
            cursor = connection.cursor()
            for schema in ("whole", "killed"):
                cursor.execute(f"CREATE DATABASE {schema}")

            def rows(where: Path) -> Rows:
                found: Rows = {}
                for name in ("counted", "large"):
                    cursor.execute(f"SELECT * FROM {where.name}.{name} ORDER BY 1, 2, 3")
                    found[name] = list(cursor.fetchall())
                return found

            yield sections, rows


@contextmanager
def _hub(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    names = [f"{schema}-{name}" for schema in ("whole", "killed") for name in ("counted", "large")]
    hubs = tuple(EventHubConfig(name=name, partition_count=3) for name in names)
    with BackgroundServer(NamespaceConfig(name="kills", event_hubs=hubs), folder / "hub") as server:
        sections = (
            '[outputs.counted]\ntype = "eventhub"\nconnection_string = "{conninfo}"\nevent_hub = "{schema}-counted"\n'
            '[outputs.large]\ntype = "eventhub"\nconnection_string = "{conninfo}"\nevent_hub = "{schema}-large"\n'
            'partition_key = "k"\nproperty_columns = ["v"]\n'
        ).replace("{conninfo}", server.connection_string)

        def rows(where: Path) -> Rows:
            return {
                name: [events_of(server.connection_string, f"{where.name}-{name}", partition) for partition in "012"]
                for name in ("counted", "large")
            }

        yield sections, rows


@contextmanager
def _kafka(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    with kafka() as address:
        sections = (
            '[outputs.counted]\ntype = "kafka"\nbootstrap_servers = "{address}"\ntopic = "{schema}-counted"\n'
            '[outputs.large]\ntype = "kafka"\nbootstrap_servers = "{address}"\ntopic = "{schema}-large"\n'
            'partition_key = "k"\nproperty_columns = ["v"]\n'
        ).replace("{address}", address)

        def rows(where: Path) -> Rows:
            return {
                name: [
                    [(one.key(), one.value(), one.headers()) for one in partition]
                    for partition in messages_of(address, f"{where.name}-{name}")
                ]
                for name in ("counted", "large")
            }

        yield sections, rows


@contextmanager
def _service_bus(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    with artemis() as url:
        sections = "".join(
            f'[outputs.{name}]\ntype = "servicebus"\nconnection_string = "{url}"\nqueue = "{{schema}}-{name}"\n'
            'duplicate_id_property = "_AMQ_DUPL_ID"\n'
            for name in ("counted", "large")
        )

        @cache
        def taken(where: Path) -> Rows:
            return {
                name: [b"".join(one.body) for one in messages_of_queue(url, f"{where.name}-{name}")]
                for name in ("counted", "large")
            }

        yield sections, taken


@contextmanager
def _redis(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    with redis_server() as url, Redis.from_url(url) as client:
        sections = (
            '[outputs.counted]\ntype = "redis"\nconnection_string = "{url}"\nstream = "{schema}-counted"\n'
            '[outputs.large]\ntype = "redis"\nconnection_string = "{url}"\nkey_column = "k"\nvalue = "hash"\n'
            'key_prefix = "{schema}-large:"\n'
        ).replace("{url}", url)

        def rows(where: Path) -> Rows:
            keys = sorted(client.scan_iter(f"{where.name}-large:*"))
            counted = [fields for _, fields in client.xrange(f"{where.name}-counted")]
            return {"counted": counted, "large": [client.hgetall(key) for key in keys]}

        yield sections, rows


@contextmanager
def _webhook(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    with receiver() as there:
        sections = "".join(
            f'[outputs.{name}]\ntype = "webhook"\nurl = "{there.url}/{{schema}}/{name}"\nmax_batch_count = 20\n'
            for name in ("counted", "large")
        )

        def rows(where: Path) -> Rows:
            """What a receiver has that leaves out the rows whose numbers it knows."""
            return {name: _numbered(there.requests, f"/{where.name}/{name}") for name in ("counted", "large")}

        yield sections, rows


@contextmanager
def _power_bi(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    with receiver() as there:
        sections = "".join(
            f'[outputs.{name}]\ntype = "powerbi"\npush_url = "{there.url}/{{schema}}/{name}"\n'
            "requests_per_minute = 1_000_000\n"
            for name in ("counted", "large")
        )

        def rows(where: Path) -> Rows:
            """What a dataset would have without the rows that were pushed twice, which it cannot recognize."""
            return {name: _numbered(there.requests, f"/{where.name}/{name}") for name in ("counted", "large")}

        yield sections, rows


def _numbered(requests: list[Request], path: str) -> list[Any]:
    known: dict[int, Any] = {}
    for request in requests:
        if request.path == path:
            (ends,) = (one.split("-") for one in request.headers["tidegate-rows"].split(","))
            for number, row in zip(range(int(ends[0]), int(ends[-1]) + 1), request.json, strict=True):
                assert known.setdefault(number, row) == row
    assert list(known) == list(range(len(known)))
    return list(known.values())


@contextmanager
def _cosmos_db(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    names = [f"/dbs/{schema}/colls/{name}" for schema in ("whole", "killed") for name in ("counted", "large")]
    with account(names) as one:
        sections = "".join(
            f'[outputs.{name}]\ntype = "cosmosdb"\nconnection_string = "{one.connection_string}"\n'
            f'database = "{{schema}}"\ncontainer = "{name}"\n'
            for name in ("counted", "large")
        )

        def rows(where: Path) -> Rows:
            return {
                name: sorted(
                    [{**document, "id": int(document["id"].rpartition("-")[2])} for document in documents.values()],
                    key=lambda document: document["id"],
                )
                for name in ("counted", "large")
                if (documents := one.containers[f"/dbs/{where.name}/colls/{name}"])
            }

        yield sections, rows


@contextmanager
def _table_storage(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    with azurite_tables() as account:
        sections = "".join(
            f'[outputs.{name}]\ntype = "tablestorage"\nconnection_string = "{account}"\ntable = "{{schema}}{name}"\n'
            'partition_key = "k"\nrow_key = "ts"\n'
            for name in ("counted", "large")
        )
        service = TableServiceClient.from_connection_string(account)

        def rows(where: Path) -> Rows:
            return {
                name: [dict(one) for one in service.get_table_client(f"{where.name}{name}").list_entities()]
                for name in ("counted", "large")
            }

        yield sections, rows


def events_of(connection_string: str, hub: str, partition: str) -> list[tuple[bytes, dict[str, str], str | None]]:
    """All events of a partition: body, properties, partition key."""
    client = HubClient(ConnectionString.parse(connection_string, hub))
    try:
        end = client.partition_properties(partition).end
        decoded = [
            decode(delivery.payload)
            for deliveries in client.read("$Default", partition, 0, end, 1000)
            for delivery in deliveries
        ]
    finally:
        client.close()
    return [(body, details.properties, details.partition_key) for body, details in decoded]


@contextmanager
def _early_results(folder: Path) -> Iterator[tuple[str, Callable[[Path], Rows]]]:
    with _files(folder, "", "jsonl") as (files, rows), _sqlite(folder) as (tables, _):
        more = tables.replace("[outputs.large]", "[outputs.early]").replace('table = "large"', 'table = "early"')
        early = '[early_results]\nperiod_s = 3\noutputs = { counted = "early" }\n'

        def rows_and_early(where: Path) -> Rows:
            with sqlite3.connect(where / "results.db") as connection:
                return {**rows(where), "early": connection.execute("SELECT * FROM early").fetchall()}

        yield files + more[more.index("[outputs.early]") :] + early, rows_and_early


OUTPUTS: dict[str, Callable[[Path], Any]] = {
    "json lines": lambda folder: _files(folder, "", "jsonl"),
    "json array": lambda folder: _files(folder, 'json_format = "array"', "json"),
    "csv": lambda folder: _files(folder, 'format = "csv"', "csv"),
    "files of json": lambda folder: _folders(folder, "", bytes.splitlines),
    "files of parquet": lambda folder: _folders(
        folder,
        'format = "parquet"\ncolumns = { k = "nvarchar(max)", v = "float" }',
        lambda content: pq.read_table(io.BytesIO(content)).to_pylist(),
    ),
    "files in azurite": _azurite,
    "files in s3": _s3,
    "deltalake": lambda folder: _lake(folder, "deltalake"),
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "mysql": _mysql,
    "eventhub": _hub,
    "kafka": _kafka,
    "servicebus": _service_bus,
    "redis": _redis,
    "webhook": _webhook,
    "powerbi": _power_bi,
    "cosmosdb": _cosmos_db,
    "tablestorage": _table_storage,
    "early results": _early_results,
    "iceberg": lambda folder: _lake(folder, "iceberg"),
    "deltalake in s3": _lake_in_s3,
}

# Left to the soak: an output that differs from a tested one only in its encoding or its location; one that avoids
# duplicates in the same way (by a transaction, a key, or a number in a header); and pyiceberg, whose commits are slow.
ONLY_IN_SOAK = {"json array", "csv", "files of json", "files in s3", "iceberg", "deltalake in s3"}
ONLY_IN_SOAK |= {"mysql", "postgresql", "tablestorage", "powerbi", "cosmosdb"}
ONLY_IN_SOAK |= {"kafka", "servicebus", "redis", "files in azurite"}


@pytest.mark.crash
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.soak] * (kind in ONLY_IN_SOAK)) for kind in OUTPUTS]
)
def test_a_job_killed_at_random_gives_each_row_once(tmp_path: Path, kind: str) -> None:
    with OUTPUTS[kind](tmp_path) as (sections, rows):
        expected = write_job(
            tmp_path / "whole", EVENTS, ordering=ORDERING, outputs=sections.replace("{schema}", "whole")
        )
        summary = run_here(expected)
        killed = write_job(
            tmp_path / "killed", EVENTS, ordering=ORDERING, outputs=sections.replace("{schema}", "killed")
        )
        assert kill_often(killed) == KILLS
        assert rows(killed.parent) == rows(expected.parent)
        assert sum(map(len, rows(expected.parent).values()))
        commit = Journal(killed.parent / "crash.state").read_commit()
        assert commit is not None
        assert commit.counters == summary.totals


def kill_often(path: Path) -> int:
    """Run a job to its end in processes that are killed, and say how often."""
    dice = random.Random(11)
    # So many steps that every kill finds work.
    events_a_step = EVENTS // (KILLS * (STEPS_OF_A_LIFE + 1))
    command = [sys.executable, "-m", "tests.job.crash_child", str(path), str(events_a_step)]
    kills = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        fate = ""
        while fate != "complete":
            assert fate != "failed"
            journal = path.parent / "crash.state" / "journal.json"
            before = journal.stat().st_mtime_ns if journal.exists() else 0
            is_killed = kills < KILLS
            print(STEPS_OF_A_LIFE if is_killed else "", file=nursery.stdin, flush=True)
            child = int(nursery.stdout.readline())
            if is_killed:
                _wait_for_progress(journal, before)
                time.sleep(dice.random() * 0.03)
                # Its parent waits for it only after having said its number, so this is that very process.
                os.kill(child, signal.SIGKILL)
                kills += 1
            fate = nursery.stdout.readline().strip()
        nursery.stdin.close()
    return kills


def _wait_for_progress(journal: Path, before: int) -> None:
    """Until the job has committed something of its own, so that kills fall into its work and not into its start."""
    deadline = time.monotonic() + PATIENCE_S
    while not journal.exists() or journal.stat().st_mtime_ns == before:
        assert time.monotonic() < deadline, "it does not get on"
        time.sleep(0.001)


@pytest.mark.slow
def test_a_row_is_taken_by_its_number_and_not_by_what_is_in_it(tmp_path: Path) -> None:
    """Rows that are all alike are as many as there are."""
    query = "SELECT 1 AS one INTO counted FROM i TIMESTAMP BY t"
    sections = '[outputs.counted]\ntype = "sqlite"\npath = "results.db"\ntable = "ones"\n'
    path = write_job(tmp_path, 300, query, outputs=sections)
    journal = tmp_path / "crash.state" / "journal.json"

    kept: list[bytes] = []
    summary = run_here(path, 40, lambda report: kept.append(journal.read_bytes()))
    with sqlite3.connect(tmp_path / "results.db") as connection:
        count = connection.execute("SELECT count(*) FROM ones").fetchone()[0]
        for content in kept[::3]:
            # The database is ahead of the journal, as after a kill between the two.
            journal.write_bytes(content)
            again = run_here(path, 23)
            assert connection.execute("SELECT count(*) FROM ones").fetchone()[0] == count
            assert again.totals == summary.totals
    assert json.loads(journal.read_text())["outputs"]["counted"]["rows"] == count == summary.totals["Output Events"]
    assert load_job(path).definition.outputs["counted"].type == "sqlite"
