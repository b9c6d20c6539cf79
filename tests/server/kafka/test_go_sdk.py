"""franz-go and sarama, unmodified."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.server.conftest import receive_events
from tidegate.server import Server

pytestmark = pytest.mark.sdk

SOURCES = Path(__file__).parent / "go"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert shutil.which("go"), "Go is needed for this test: `scripts/need go` installs it"
    built = tmp_path_factory.mktemp("go") / "kafka"
    subprocess.run(["go", "build", "-o", str(built), "."], cwd=SOURCES, check=True)
    return built


@pytest.mark.parametrize("client", ["franz-go", "sarama"])
def test_go(program: Path, server: Server, connection: str, hub: str, client: str) -> None:
    command = [str(program), client, f"127.0.0.1:{server.kafka_port}", server.connection_string(), hub]
    result = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == {
        "First": [f"0 {offset} key body colour=red" for offset in range(5)],
        "Again": ["0 5  later "],
        "ByTime": 5,
        "Partitions": 3,
    }
    events = receive_events(connection, hub, 6, partition="0")
    read_by_amqp = [(event.partition_key, event.body_as_str(), event.properties) for event in events]
    assert read_by_amqp == [*[(b"key", "body", {b"colour": b"red"})] * 5, (None, "later", {})]
