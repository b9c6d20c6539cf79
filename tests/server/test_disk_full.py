"""A disk that is full, end to end: publishers are told, nothing acknowledged is lost, and service resumes with space.

The hub's process may write files up to a size only (RLIMIT_FSIZE), which the test lowers and raises while it runs: to
the hub it is a write that fails, as on a full disk.
"""

import resource
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.server.process import Hub
from tidegate.amqp import ACCEPTED, Rejected

pytestmark = pytest.mark.crash


def limit_files(hub: Hub, size: int) -> None:
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_publishers_are_told_and_service_resumes_when_space_returns(data, sign_in):
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


def publish_until_refused(client, link, hub: Hub) -> list[bytes]:
    limit_files(hub, 64 << 10)
    acknowledged = []
    for number in range(1000):
        body = f"{number}:".encode() + b"x" * 1000
        (answer,) = client.publish(link, body)
        if answer.state != ACCEPTED:
            return acknowledged
        acknowledged.append(body)
    pytest.fail("the limit was never reached")


def test_a_hub_that_can_write_nothing_says_so_and_ends(tmp_path):
    """Started on a full disk."""

    def nothing() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    command = [sys.executable, "-B", "-m", "tidegate", "up", "--data", str(tmp_path / "data"), "--amqp-port", "0"]
    process = subprocess.run(command, preexec_fn=nothing, stderr=subprocess.PIPE, text=True, timeout=20)
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert "File too large" in process.stderr
