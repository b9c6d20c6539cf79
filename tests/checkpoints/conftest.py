"""Stores to be tested, each over nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.checkpoints.postgres import postgres
from tidegate.checkpoints.database import CHECKPOINT_TABLE, OWNERSHIP_TABLE, CheckpointDatabase
from tidegate.checkpoints.store import PostgresCheckpointStore, open_store
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with postgres() as conninfo:
        yield conninfo


@pytest.fixture
def fresh_location(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """A kind of store to a place of that kind in which there are no checkpoints yet."""

    def fresh(kind: str) -> str:
        if kind == "sqlite":
            return str(tmp_path / "checkpoints.db")
        conninfo: str = request.getfixturevalue("postgres_server")
        store = PostgresCheckpointStore(conninfo)
        store.execute([(f"DROP TABLE {table}", ()) for table in (OWNERSHIP_TABLE, CHECKPOINT_TABLE)])
        store.close()
        return conninfo

    return fresh


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.sdk)])
def location(request: pytest.FixtureRequest, fresh_location: Callable[[str], str]) -> str:
    """Where checkpoints are kept; there are none yet."""
    return fresh_location(request.param)


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


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[str]:
    """The connection string of a hub with nothing in it: `tolls` and `dead`, of four partitions and one."""
    hubs = (EventHubConfig(name="tolls", partition_count=4), EventHubConfig(name="dead", partition_count=1))
    with BackgroundServer(NamespaceConfig(name="ns1", event_hubs=hubs), tmp_path / "data") as running:
        yield running.connection_string
