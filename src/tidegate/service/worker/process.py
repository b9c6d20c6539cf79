"""The life of a process of a job, from the first line of its channel to its exit."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tidegate.service import channel
from tidegate.service.job_files import CONSOLE, LOG
from tidegate.service.log_format import JsonFormatter
from tidegate.service.worker import system
from tidegate.service.worker.sharing import SparkRequests
from tidegate.service.worker.work import Send, Stop, problems_of, work

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
    system.name_process(f"job {order['name']}")
    system.yield_to_others(order["nice"])
    system.limit_memory(order["memory_bytes"])
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
    lines = channel.Lines()
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
