"""Outputs that keep rows, files and tables, each with a loop over its own client library; see `benchmarks.outputs`."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import obstore
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest
from azure.data.tables import TableServiceClient
from deltalake import write_deltalake
from obstore.store import AzureStore
from pyiceberg.catalog import load_catalog

from benchmarks._output_rows import AVRO_SCHEMA, PARTITIONS, Loop, Rows, opened
from tests.azurite import azurite, azurite_tables, container
from tests.checkpoints.postgres import postgres
from tests.mariadb import mariadb
from tidegate.connectors.outputs import Output

TYPES = {"device": "nvarchar(max)", "n": "bigint", "average": "float", "window_end": "nvarchar(max)", "p": "bigint"}
_INSERT = "INSERT INTO looped VALUES ({})"
_CREATE = "CREATE TABLE looped (n bigint, device text, average double precision, window_end text, p bigint)"


def _json(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _csv(rows: Rows) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _avro(rows: Rows) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(AVRO_SCHEMA), rows, codec="deflate")
    return sink.getvalue()


def _parquet(rows: Rows) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


_ENCODERS: Mapping[str, Callable[[Rows], bytes]] = {"json": _json, "csv": _csv, "avro": _avro, "parquet": _parquet}


def _uploading(format_: str, put: Callable[[str, bytes], None]) -> Loop:
    """Return a loop that writes a file for each partition of a portion."""
    encode, numbers = _ENCODERS[format_], itertools.count()

    def loop(rows: Rows) -> None:
        for place in range(PARTITIONS):
            put(f"p={place}/{next(numbers):06}.{format_}", encode(rows[place::PARTITIONS]))

    return loop


def _durable_file(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _files_settings(format_: str) -> dict[str, Any]:
    typed = {"columns": TYPES} if format_ in ("avro", "parquet") else {}
    return {"format": format_, "minimum_rows": 1_000, **typed}


@contextmanager
def _folder(format_: str) -> Iterator[tuple[Output, Loop]]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as name:
        output = opened("files", path=f"{name}/ours/p={{p}}", **_files_settings(format_))
        yield output, _uploading(format_, partial(_durable_file, Path(name) / "loop"))


@contextmanager
def _azurite(format_: str) -> Iterator[tuple[Output, Loop]]:
    with azurite() as account, pytest.MonkeyPatch.context() as patch:
        container(account, "rows")
        patch.setenv("AZURE_STORAGE_CONNECTION_STRING", account)
        parts = dict(part.partition("=")[::2] for part in account.split(";") if part)
        store = AzureStore(
            container_name="rows",
            account_name=parts["AccountName"],
            account_key=parts["AccountKey"],
            endpoint=parts["BlobEndpoint"],
            client_options={"allow_http": True},
        )

        def put(name: str, content: bytes) -> None:
            obstore.put(store, f"loop/{name}", content)

        output = opened("files", path="az://rows/ours/p={p}", **_files_settings(format_))
        yield output, _uploading(format_, put)


@contextmanager
def _delta() -> Iterator[tuple[Output, Loop]]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as name:

        def loop(rows: Rows) -> None:
            write_deltalake(f"{name}/loop", pa.Table.from_pylist(rows), mode="append", partition_by=["p"])

        yield opened("deltalake", path=f"{name}/ours", partition_by=["p"], columns=TYPES), loop


@contextmanager
def _iceberg() -> Iterator[tuple[Output, Loop]]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as name:
        folder = Path(name).absolute()
        (folder / "loop").mkdir()
        catalog = load_catalog("default", uri=f"sqlite:///{folder}/loop/catalog.db", warehouse=f"file://{folder}/loop")
        catalog.create_namespace("a")
        first = pa.Table.from_pylist([{"n": 1, "device": "", "average": 0.5, "window_end": "", "p": 1}])
        table = catalog.create_table("a.rows", first.schema)
        with table.update_spec() as spec:
            spec.add_identity("p")

        def loop(rows: Rows) -> None:
            table.append(pa.Table.from_pylist(rows))

        output = opened("iceberg", path=f"{folder}/ours", table="a.rows", partition_by=["p"], columns=TYPES)
        yield output, loop


@contextmanager
def _postgresql() -> Iterator[tuple[Output, Loop]]:
    with postgres() as conninfo, psycopg.connect(conninfo) as connection:
        connection.execute(_CREATE)
        connection.commit()

        def loop(rows: Rows) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(_INSERT.format("%s, %s, %s, %s, %s"), [tuple(row.values()) for row in rows])
            connection.commit()

        yield opened("postgresql", connection_string=conninfo, table="rows", columns=TYPES), loop


@contextmanager
def _mysql() -> Iterator[tuple[Output, Loop]]:
    with mariadb() as address:
        socket = address.partition("unix_socket=")[2]
        with pymysql.connect(user="root", unix_socket=socket, database="results") as connection:
            cursor = connection.cursor()
            cursor.execute(_CREATE)

            def loop(rows: Rows) -> None:
                cursor.executemany(_INSERT.format("%s, %s, %s, %s, %s"), [tuple(row.values()) for row in rows])
                connection.commit()

            yield opened("mysql", connection_string=address, table="results.rows", columns=TYPES), loop


@contextmanager
def _sqlite() -> Iterator[tuple[Output, Loop]]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as name:
        connection = sqlite3.connect(f"{name}/loop.db")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(_CREATE)

        def loop(rows: Rows) -> None:
            connection.executemany(_INSERT.format("?, ?, ?, ?, ?"), [tuple(row.values()) for row in rows])
            connection.commit()

        yield opened("sqlite", path=f"{name}/ours.db", table="rows", columns=TYPES), loop
        connection.close()


@contextmanager
def _table_storage() -> Iterator[tuple[Output, Loop]]:
    with azurite_tables() as account:
        client = TableServiceClient.from_connection_string(account).create_table("loop")

        def loop(rows: Rows) -> None:
            for place in range(PARTITIONS):
                own = rows[place::PARTITIONS]
                for first in range(0, len(own), 100):
                    entities = [
                        {**row, "PartitionKey": str(row["p"]), "RowKey": str(row["n"])}
                        for row in own[first : first + 100]
                    ]
                    client.submit_transaction([("upsert", entity, {"mode": "replace"}) for entity in entities])

        yield (
            opened("tablestorage", connection_string=account, table="ours", partition_key="p", row_key="n"),
            loop,
        )


AT_REST: dict[str, Callable[[], Any]] = {
    **{f"files-{format_}": partial(_folder, format_) for format_ in _ENCODERS},
    **{f"azurite-{format_}": partial(_azurite, format_) for format_ in _ENCODERS},
    "deltalake": _delta,
    "iceberg": _iceberg,
    "postgresql": _postgresql,
    "mysql": _mysql,
    "sqlite": _sqlite,
    "tablestorage": _table_storage,
}
