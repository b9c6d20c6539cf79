"""A database gets each step once, wherever the process ends; here the database is SQLite, without Java."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.connectors.model.errors import OutputError
from tidegate.spark.streaming.jdbc import STEPS, create_steps_table, write_step


class Killed(Exception):
    """Stands for the end of the process."""


class SQLite:
    """A connection that ends with the process at its n-th statement."""

    def __init__(self, path: Path, dies_at: int = 0) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.left = dies_at

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, parameters).fetchall()

    def execute(self, sql: str, *parameters: Any) -> int:
        self.left -= 1
        if self.left == 0:
            self.connection.close()
            raise Killed
        return self.connection.execute(sql, parameters).rowcount

    def transaction(self, work: Callable[[], None]) -> None:
        self.connection.execute("BEGIN")
        work()
        self.execute("COMMIT")

    def quoted(self, name: str) -> str:
        return f'"{name}"'

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    database = SQLite(tmp_path / "results.db")
    create_steps_table(database, STEPS)
    database.execute('CREATE TABLE results ("n" BIGINT, "order" TEXT)')
    database.close()
    return tmp_path / "results.db"


def write(path: Path, step: int, *rows: int, dies_at: int = 0, owner: str = "query") -> None:
    database = SQLite(path, dies_at)

    def stage(table: str) -> None:
        database.execute(f'CREATE TABLE {table} ("n" BIGINT, "order" TEXT)')
        for n in rows:
            database.execute(f"INSERT INTO {table} VALUES (?, ?)", n, str(n))

    write_step(database, "results", owner, step, ["n", "order"], stage)
    database.close()


def content(path: Path) -> list[int]:
    database = SQLite(path)
    tables = [name for (name,) in database.query("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert sorted(tables) == ["results", STEPS]
    return [n for (n,) in database.query("SELECT n FROM results ORDER BY n")]


def test_steps_are_written_one_after_the_other(path: Path) -> None:
    write(path, 0, 1, 2)
    write(path, 1, 3)
    assert content(path) == [1, 2, 3]


def test_a_step_that_is_there_is_not_written_again(path: Path) -> None:
    write(path, 0, 1, 2)
    write(path, 0, 1, 2)
    assert content(path) == [1, 2]


def test_queries_share_a_table(path: Path) -> None:
    write(path, 0, 1)
    write(path, 0, 2, owner="another")
    assert content(path) == [1, 2]


def test_an_older_checkpoint_is_refused(path: Path) -> None:
    for step in range(3):
        write(path, step, step)
    with pytest.raises(OutputError, match="has step 2 of this query, and its checkpoint resumes with step 1"):
        write(path, 1, 1)


@pytest.mark.parametrize("dies_at", range(1, 10))
def test_each_row_is_there_once_wherever_the_process_ends(path: Path, dies_at: int) -> None:
    write(path, 0, 1)
    with pytest.raises(Killed):
        write(path, 1, 2, 3, dies_at=dies_at)
    write(path, 1, 2, 3)
    write(path, 2, 4)
    assert content(path) == [1, 2, 3, 4]


def test_the_slower_of_two_runs_of_a_query_is_refused(path: Path) -> None:
    database = SQLite(path)

    def another_is_faster(table: str) -> None:
        database.execute(f'CREATE TABLE {table} ("n" BIGINT, "order" TEXT)')
        write(path, 0, 1)

    with pytest.raises(OutputError, match="another run of this query writes to results"):
        write_step(database, "results", "query", 0, ["n", "order"], another_is_faster)
