"""A disk that is full, end to end: publishers get an error, nothing acknowledged is lost, and service resumes later.

The hub's process may write files up to a size only (RLIMIT_FSIZE), which the test lowers and raises while it runs: to
the hub it is a write that fails, as on a full disk.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import RawClient
from tests.server.process import Hub, free_port
from tidegate.amqp import ACCEPTED, Rejected
from tidegate.client import ConnectionString, HubClient
from tidegate.durable_files import Files
from tidegate.hub.access import sign
from tidegate.hub.config import NamespaceConfig
from tidegate.server import BackgroundServer

pytestmark = pytest.mark.crash


def limit_files(hub: Hub, size: int) -> None:
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def may_write_nothing() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def asked(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("localhost", port, timeout=PATIENCE_S)
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def health(port: int) -> tuple[int, dict[str, Any]]:
    status, text = asked(port, "/health")
    return status, json.loads(text)


def test_a_hub_starts_and_serves_readers_on_a_disk_that_takes_no_byte(
    data: Path, tmp_path: Path, sign_in: Callable[..., RawClient]
) -> None:
    hub, http_port = Hub(data), free_port()
    hub.start()
    client = sign_in(SimpleNamespace(amqp_port=hub.port), "eh1")
    link = client.publisher("eh1/Partitions/0")
    acknowledged = [f"{number}".encode() for number in range(20)]
    for body in acknowledged:
        assert [answer.state for answer in client.publish(link, body)] == [ACCEPTED]
    hub.kill()
    entities: list[dict[str, Any]] = [
        {"Name": name, "PartitionCount": 4, "ConsumerGroups": []} for name in ("eh1", "more")
    ]
    namespace = {"Type": "EventHub", "Name": "emulatorNs1", "Entities": entities}
    config = {"UserConfig": {"NamespaceConfig": [namespace], "LoggingConfig": {"Type": "File"}}}
    (tmp_path / "Config.json").write_text(json.dumps(config), encoding="utf-8")
    options = ("--config", str(tmp_path / "Config.json"), "--http-port", str(http_port))
    hub.start(*options, preexec_fn=may_write_nothing, stderr=subprocess.PIPE)
    client = sign_in(SimpleNamespace(amqp_port=hub.port), "eh1")
    reader = client.reader("eh1/ConsumerGroups/$Default/Partitions/0", credit=100)
    assert [b"".join(message.body) for message in client.receive(reader, 20)] == acknowledged
    properties = HubClient(ConnectionString.parse(hub.connection, "eh1")).partition_properties("0")
    assert (properties.end, properties.log_directory) == (20, None), "it is answered, and read over AMQP"
    link = client.publisher("eh1/Partitions/0")
    for _ in range(30):
        (answer,) = client.publish(link, b"refused")
        assert answer.state.error.condition == "com.microsoft:server-busy"
    status, told = health(http_port)
    assert (status, told["status"], told["storage"]["writable"]) == (503, "unhealthy", False)
    assert "File too large" in told["storage"]["reason"]
    assert told["storage"]["refusedPublications"] == 30
    metrics = asked(http_port, "/metrics")[1]
    assert "tidegate_storage_writable 0.0" in metrics
    assert "tidegate_storage_free_bytes " in metrics
    limit_files(hub, resource.RLIM_INFINITY)
    eventually(lambda: health(http_port)[0] == 200)
    (answer,) = client.publish(link, b"after")
    assert answer.state == ACCEPTED
    assert b"".join(client.receive(reader, 1)[0].body) == b"after"
    eventually(lambda: 'event_hub="more"' in asked(http_port, "/metrics")[1])  # what was configured, too
    hub.stop()
    assert hub.process.stderr is not None
    said = hub.process.stderr.read()
    assert "Traceback" not in said
    # the first attempt to serve also what is newly configured is given up, and its logs are opened once more
    told_again = (" refused 127.0.0.1", ".index cannot be written")
    lines = [line for line in said.splitlines() if not any(text in line for text in told_again)]
    texts = Counter(line.partition(" ")[2] for line in lines)
    assert max(texts.values()) == 1, "a thing is said once"


def test_publishers_are_told_and_service_resumes_when_space_returns(
    data: Path, sign_in: Callable[..., RawClient]
) -> None:
    hub = Hub(data)
    hub.start()
    client = sign_in(SimpleNamespace(amqp_port=hub.port), "eh1")
    link = client.publisher("eh1/Partitions/0")
    acknowledged = publish_until_refused(client, link, hub)
    assert len(acknowledged) >= 10
    for _ in range(3):
        (answer,) = client.publish(link, b"x" * 2000)
        assert isinstance(answer.state, Rejected)
        assert answer.state.condition == "com.microsoft:server-busy"
    # what is there can be read all the while
    reader = client.reader("eh1/ConsumerGroups/$Default/Partitions/0", credit=10_000)
    assert [b"".join(message.body) for message in client.receive(reader, len(acknowledged))] == acknowledged
    # what was refused is not there
    limit_files(hub, resource.RLIM_INFINITY)
    for number in range(20):
        body = f"after {number}".encode()
        assert [answer.state for answer in client.publish(link, body)] == [ACCEPTED]
        acknowledged.append(body)
    assert [b"".join(message.body) for message in client.receive(reader, 20)] == acknowledged[-20:]
    hub.kill()
    hub.start()
    late = sign_in(SimpleNamespace(amqp_port=hub.port), "eh1")
    reader = late.reader("eh1/ConsumerGroups/$Default/Partitions/0", credit=10_000)
    assert [b"".join(message.body) for message in late.receive(reader, len(acknowledged))] == acknowledged
    hub.stop()


def publish_until_refused(client: Any, link: Any, hub: Hub) -> list[bytes]:
    limit_files(hub, 64 << 10)
    acknowledged: list[Any] = []
    for number in range(1000):
        body = f"{number}:".encode() + b"x" * 1000
        (answer,) = client.publish(link, body)
        if answer.state != ACCEPTED:
            return acknowledged
        acknowledged.append(body)
    pytest.fail("the limit was never reached")


def test_a_hub_that_can_write_nothing_says_so_and_ends(tmp_path: Path) -> None:
    """Started on a full disk, without data to serve."""
    command = [sys.executable, "-B", "-m", "tidegate", "up", "--data", str(tmp_path / "data"), "--amqp-port", "0"]
    process = subprocess.run(
        command, preexec_fn=may_write_nothing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S
    )
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert "File too large" in process.stderr


def test_after_a_sync_that_failed_publishers_are_told_and_nothing_is_taken_for_granted(
    make_config: Callable[..., NamespaceConfig],
    data: Path,
    sign_in: Callable[..., RawClient],
    key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk says once that it could not write; a second sync of the same pages would say that all is well."""
    sync = Files.sync
    failures = iter(())

    def failing(self: Files, fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".log") and next(failures, False):
            raise OSError(errno.EIO, "as the test wants")
        sync(self, fd)

    monkeypatch.setattr(Files, "sync", failing)
    config = make_config({"Name": "eh1", "PartitionCount": 1})
    with BackgroundServer(config, data, http_port=0) as running:
        client = sign_in(running.server, "eh1")
        link = client.publisher("eh1/Partitions/0")
        (answer,) = client.publish(link, b"0")
        assert answer.state == ACCEPTED
        failures = iter((True,))
        (answer,) = client.publish(link, b"never acknowledged")
        assert isinstance(answer.state, Rejected)
        assert answer.state.condition == "com.microsoft:server-busy"
        (answer,) = client.publish(link, b"1")
        assert answer.state == ACCEPTED
        failures = iter((True,))
        token = sign("http://localhost/eh1", "RootManageSharedAccessKey", key, int(time.time()) + 60)
        connection = http.client.HTTPConnection("localhost", running.server.http_port or 0, timeout=PATIENCE_S)
        connection.request("POST", "/eh1/messages", b"never acknowledged", {"Authorization": token})
        response = connection.getresponse()
        assert (response.status, b"<Code>503</Code>" in response.read()) == (503, True)
        connection.request("POST", "/eh1/messages", b"2", {"Authorization": token})
        assert connection.getresponse().status == 201
        connection.close()
    with BackgroundServer(config, data) as running:
        client = sign_in(running.server, "eh1")
        found = client.receive(client.reader("eh1/ConsumerGroups/$Default/Partitions/0", credit=10), 3)
        assert [b"".join(message.body) for message in found] == [b"0", b"1", b"2"]
        assert running.server.namespace.event_hub("eh1").partition("0").log.next_sequence_number == 3
