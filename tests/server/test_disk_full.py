"""A disk that is full, end to end: publishers are told, nothing acknowledged is lost, and service resumes with space.

The hub's process may write files up to a size only (RLIMIT_FSIZE), which the test lowers and raises while it runs: to
the hub it is a write that fails, as on a full disk.
"""

from __future__ import annotations

import errno
import http.client
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.server.conftest import RawClient
from tests.server.process import Hub
from tidegate.amqp import ACCEPTED, Rejected
from tidegate.durable_files import Files
from tidegate.hub.access import sign
from tidegate.hub.config import NamespaceConfig
from tidegate.server import BackgroundServer

pytestmark = pytest.mark.crash


def limit_files(hub: Hub, size: int) -> None:
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


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
    """Started on a full disk."""

    def nothing() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    command = [sys.executable, "-B", "-m", "tidegate", "up", "--data", str(tmp_path / "data"), "--amqp-port", "0"]
    process = subprocess.run(command, preexec_fn=nothing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
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
