"""The life of a process of a job, from the first line of its channel to its exit.

`python -m tidegate.service.worker.process` is such a process where a fork server is not to be had. Its channel is its
standard input and output.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tidegate.log_format import JsonFormatter
from tidegate.service import channel
from tidegate.service.job_files import CONSOLE, LOG
from tidegate.service.worker.sharing import SparkRequests
from tidegate.service.worker.work import Send, Stop, problems_of, work

_PR_SET_NAME, _PR_SET_PDEATHSIG = 15, 1
_FIRST_TO_KILL = "800"
_HEADROOM_BYTES = 256 << 20


def end_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent ends, however that happens. Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def name_process(name: str) -> None:
    """Show a name in lists of processes, 15 bytes of it. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def yield_to_others(nice: int) -> None:
    """Lower this process's claim to the processor, and make it the first to go when the machine is out of memory."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(nice)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_KILL)


def limit_memory(memory_bytes: int) -> None:
    """Refuse this process more memory than twice its limit: the service, which looks once a second, may be too late."""
    if sys.platform != "linux":
        return
    import resource

    used = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            used = int(line.split()[1]) << 10
    most = used + 2 * memory_bytes + _HEADROOM_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


_READ_BYTES = 1 << 16

Receive = Callable[[int], bytes]
"""Returns some bytes, as many as given at most; none when the service is gone."""


def live(receive: Receive, send_bytes: Callable[[bytes], None]) -> None:
    """Read the order, carry it out, and return when it is done; end the process at once if the service is gone."""
    send = _sender(send_bytes)
    messages = _messages(receive)
    first = next(messages)
    if channel.CHECK in first:
        send({channel.PROBLEMS: problems_of(first[channel.CHECK])})
        return
    order = first[channel.ORDER]
    folder = Path(order["folder"])
    _redirect(folder)
    name_process(f"job {order['name']}")
    yield_to_others(order["nice"])
    limit_memory(order["memory_bytes"])
    stop, requests = Stop(), SparkRequests(send)
    threading.Thread(target=_listen, args=(messages, stop, requests), name="tidegate-orders", daemon=True).start()
    work(order, send, stop, requests)


def _sender(send_bytes: Callable[[bytes], None]) -> Send:
    lock = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        with lock:
            send_bytes(channel.line_of(message))

    return send


def _messages(receive: Receive) -> Iterator[dict[str, Any]]:
    """Yield what the service says; without it nobody would notice how this process fares, so the process ends."""
    lines = channel.MessageSplitter()
    while data := receive(_READ_BYTES):
        yield from lines.feed(data)
    os._exit(0)


def _listen(messages: Iterator[dict[str, Any]], stop: Stop, requests: SparkRequests) -> None:
    """Wait for the request to stop, and for answers."""
    for message in messages:
        if channel.STOP in message:
            stop.ask()
        elif channel.SPARK in message:
            requests.answered(message[channel.SPARK])


def _redirect(folder: Path) -> None:
    """Let the log go to the job's log file, and what its console output prints to a file beside it."""
    for name, descriptor in ((CONSOLE, 1), (LOG, 2)):
        fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        os.dup2(fd, descriptor)
        os.close(fd)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("tidegate").setLevel(logging.INFO)


def main() -> None:
    """Carry out the order on standard input."""
    outgoing = os.dup(1)

    def send(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(outgoing, view) :]

    live(lambda size: os.read(0, size), send)


if __name__ == "__main__":
    main()
