"""Stores to be tested, each over nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.checkpoints.postgres import postgres
from tidegate.checkpoints.database import CHECKPOINT_TABLE, OWNERSHIP_TABLE, CheckpointDatabase
from tidegate.checkpoints.store import PostgresCheckpointStore, open_store


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with postgres() as conninfo:
        yield conninfo


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.sdk)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where checkpoints are kept; there are none yet."""
    if request.param == "sqlite":
        return str(tmp_path / "checkpoints.db")
    conninfo: str = request.getfixturevalue("postgres_server")
    store = PostgresCheckpointStore(conninfo)
    store.execute([(f"DROP TABLE {table}", ()) for table in (OWNERSHIP_TABLE, CHECKPOINT_TABLE)])
    store.close()
    return conninfo


@pytest.fixture
def open_another(location: str) -> Iterator[Callable[[], CheckpointDatabase]]:
    """Opens a connection of its own to the place."""
    opened: list[CheckpointDatabase] = []

    def open_one() -> CheckpointDatabase:
        opened.append(open_store(location))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_another: Callable[[], CheckpointDatabase]) -> CheckpointDatabase:
    return open_another()
