"""Checkpoints in an SQLite file: for consumers on one machine, in one process or several."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tidegate.checkpoints.database import (
    CHECKPOINT_TABLE,
    OWNERSHIP_TABLE,
    SCHEMA,
    CheckpointDatabase,
    CheckpointError,
    Parameters,
)

_BUSY_TIMEOUT_S = 30.0


class SqliteCheckpoints(CheckpointDatabase):
    """The file is created if needed; its folder must exist, on a local disk (not a network file system).

    Without `create` nothing is made, and nothing changed in a file that is no checkpoint store.
    """

    now = "((julianday('now') - 2440587.5) * 86400.0)"

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        """Raises CheckpointError."""
        self._path = Path(path)
        self._lock = threading.Lock()
        if not create and not self._path.is_file():  # opening would make it
            raise CheckpointError(f"there is no checkpoint file {self._path}")
        try:
            self._connection = sqlite3.connect(
                self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            if not create and not self._has_tables():
                raise CheckpointError(f"{self._path} is no checkpoint store")
            # The write-ahead log lets readers and a writer work at once and costs a commit one sync, not three.
            self._use_write_ahead_log()
            self._connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise self._failure(error) from error
        self.execute((statement, ()) for statement in SCHEMA)

    def query(self, statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._connection.execute(statement, tuple(parameters)).fetchall()
            except sqlite3.Error as error:
                raise self._failure(error) from error

    def execute(self, statements: Iterable[tuple[str, Parameters]]) -> list[int]:
        # Other writers wait, up to half a minute.
        with self._lock:
            connection = self._connection
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    changed = [connection.execute(text, tuple(values)).rowcount for text, values in statements]
                    connection.execute("COMMIT")
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._failure(error) from error
            return changed

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _has_tables(self) -> bool:
        tables = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN (?, ?)"
        return bool(self.query(tables, (OWNERSHIP_TABLE, CHECKPOINT_TABLE)) == [(2,)])

    def _use_write_ahead_log(self) -> None:
        # The switch needs the file alone and does not wait for it by itself.
        deadline = time.monotonic() + _BUSY_TIMEOUT_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _failure(self, error: sqlite3.Error) -> CheckpointError:
        return CheckpointError(f"{self._path}: {error}")
