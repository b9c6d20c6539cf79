"""Starting processes of jobs in the way that suits this machine, and understanding what they say and how they exit.

On Linux a fork server starts them (`tidegate.service.worker.fork_server` is the server's side), elsewhere a new
interpreter. One thread reads the channels of all forks.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tidegate.service import channel
from tidegate.service.errors import JobsUnavailable
from tidegate.service.processes import Launcher, LaunchOrder, Process, ProcessEvents
from tidegate.service.supervision import Exit, ExitKind


class ProcessListener(Protocol):
    """What to do with what a process says."""

    def received(self, message: dict[str, Any]) -> None:
        """Take a message."""

    def launched(self, pid: int) -> None:
        """Note that the process exists."""

    def ended(self, status: int | None) -> None:
        """Note that it has ended; nothing follows.

        Args:
            status: its exit code, negative for a signal; None: unknown.
        """


class JobConversation:
    """The conversation with a process that runs a job."""

    def __init__(self, events: ProcessEvents) -> None:
        self._events = events
        self._end: Exit | None = None

    def received(self, message: dict[str, Any]) -> None:
        ((kind, content),) = message.items()
        if kind == channel.BEGUN:
            self._events.begun()
        elif kind == channel.READY:
            self._events.ready()
        elif kind == channel.TROUBLE:
            self._events.trouble(content)
        elif kind == channel.MEASURED:
            self._events.measured(content)
        elif kind == channel.SPARK and content == channel.ATTACH:
            self._events.spark_wanted()
        elif kind == channel.SPARK and content == channel.RELEASE:
            self._events.spark_released()
        elif kind == channel.ENDED:
            self._end = Exit(ExitKind[content["kind"]], content["message"])
        else:
            raise ValueError(f"a process of a job said {kind!r}, which nothing here understands")

    def launched(self, pid: int) -> None:
        self._events.launched(pid)

    def ended(self, status: int | None) -> None:
        self._events.ended(self._end or Exit(ExitKind.CRASHED, f"its process {_how(status)}"))


class CheckConversation:
    """The conversation with a process that checks a definition."""

    def __init__(self, done: Callable[[Sequence[str]], None]) -> None:
        self._done = done
        self._problems: list[str] | None = None

    def received(self, message: dict[str, Any]) -> None:
        self._problems = message[channel.PROBLEMS]

    def launched(self, pid: int) -> None:
        """A check has nothing to do with its process."""

    def ended(self, status: int | None) -> None:
        self._done([f"the check's process {_how(status)}"] if self._problems is None else self._problems)


def order_line(order: LaunchOrder) -> bytes:
    """Return the first line to a process that is to run a job."""
    return channel.line_of(
        {
            channel.ORDER: {
                "name": order.name,
                "folder": str(order.folder),
                "content": order.content,
                "start": order.start,
                "start_asked": order.start_asked,
                "memory_bytes": order.memory_bytes,
                "nice": order.nice,
                "max_events_per_step": order.max_events_per_step,
                "parallelism": order.parallelism,
                "traces": order.traces,
            }
        }
    )


def _how(status: int | None) -> str:
    if status is None:
        return "ended without a word"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit code {status}"


_logger = logging.getLogger(__name__)
_READ_BYTES = 1 << 16
_END_WITHIN_S = 5.0
# One thread each: the work of a job is one thread's, and a fork must not happen beside others.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


class ForkingLauncher:
    """A `Launcher` whose processes are forks of a server, which is started with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: _Server | None = None

    def launch(self, order: LaunchOrder, events: ProcessEvents) -> Process:
        return self._running_server().fork(order_line(order), JobConversation(events))

    def check(self, content: Mapping[str, Any], done: Callable[[Sequence[str]], None]) -> None:
        self._running_server().fork(channel.line_of({channel.CHECK: content}), CheckConversation(done))

    def close(self) -> None:
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def _running_server(self) -> _Server:
        with self._lock:
            if self._server is None or not self._server.is_running:
                self._server = _Server()
            return self._server


class _Fork:
    """A process that was asked for."""

    def __init__(self, server: _Server, number: int, stream: socket.socket, conversation: ProcessListener) -> None:
        self.number = number
        self.stream = stream
        self.conversation = conversation
        self.lines = channel.MessageSplitter()
        self.is_open = True
        self._server = server

    def ask_to_stop(self) -> None:
        self._server.write(self, channel.line_of({channel.STOP: True}))

    def answer_spark(self, answer: Mapping[str, Any]) -> None:
        self._server.write(self, channel.line_of({channel.SPARK: dict(answer)}))

    def kill(self) -> None:
        self._server.request({"kill": self.number})


class _Server:
    """One server process, and the thread that listens to it and to its forks."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.worker.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )
        self._lock = threading.Lock()
        self._forks: dict[int, _Fork] = {}
        self._unsent: dict[_Fork, bytes] = {}
        self._numbers = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._control, selectors.EVENT_READ)
        self.is_running = True
        self._thread = threading.Thread(target=self._listen, name="tidegate-processes", daemon=True)
        self._thread.start()

    def fork(self, first_line: bytes, conversation: ProcessListener) -> _Fork:
        """Ask for a process."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with self._lock:
            if not self.is_running:
                ours.close()
                theirs.close()
                raise ConnectionError("the process that forks has ended")
            self._numbers += 1
            fork = _Fork(self, self._numbers, ours, conversation)
            self._forks[fork.number] = fork
        with theirs:
            self.request({"fork": fork.number}, theirs.fileno())
        with self._lock:
            self._selector.register(ours, selectors.EVENT_READ, fork)
        self.write(fork, first_line)
        return fork

    def request(self, message: dict[str, Any], *descriptors: int) -> None:
        """Send the server a request; one to a server that is gone is lost, as its end is noticed anyway."""
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))
        except OSError:
            _logger.debug("the fork server is gone", exc_info=True)

    def write(self, fork: _Fork, data: bytes) -> None:
        """Send a process some bytes, the rest of them when it has read the first."""
        with self._lock:
            if not fork.is_open:
                return
            self._unsent[fork] = self._unsent.get(fork, b"") + data
            self._flush(fork)

    def close(self) -> None:
        """End the server and whatever it has forked."""
        self._control.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(_END_WITHIN_S)

    def _flush(self, fork: _Fork) -> None:
        data = self._unsent[fork]
        try:
            data = data[fork.stream.send(data) :]
        except BlockingIOError:
            pass
        except OSError:
            data = b""  # The process is gone; the server will say so.
        if data:
            self._unsent[fork] = data
        else:
            del self._unsent[fork]
        if fork.is_open:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if data else 0)
            self._selector.modify(fork.stream, wanted, fork)

    def _listen(self) -> None:
        while self.is_running:
            for key, events in self._selector.select():
                if key.data is None:
                    self._hear_server()
                elif events & selectors.EVENT_WRITE:
                    with self._lock:
                        if key.data in self._unsent:
                            self._flush(key.data)
                else:
                    self._hear(key.data)
        self._selector.close()

    def _hear_server(self) -> None:
        try:
            data = self._control.recv(_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._server_ended()
            return
        message = json.loads(data)
        if "forked" in message:
            self._forks[message["forked"]].conversation.launched(message["pid"])
        else:
            with self._lock:
                fork = self._forks.pop(message["gone"])
            while self._hear(fork):
                pass
            fork.stream.close()
            fork.conversation.ended(os.waitstatus_to_exitcode(message["status"]))

    def _hear(self, fork: _Fork) -> bool:
        """Take what a process said; return whether there may be more at once."""
        if not fork.is_open:
            return False
        try:
            data = fork.stream.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            with self._lock:
                fork.is_open = False
                self._unsent.pop(fork, None)
                self._selector.unregister(fork.stream)
            return False
        for message in fork.lines.feed(data):
            fork.conversation.received(message)
        return True

    def _server_ended(self) -> None:
        """The server was killed, and with it its processes."""
        with self._lock:
            self.is_running = False
            forks = list(self._forks.values())
        self._process.wait()
        self._control.close()
        for fork in forks:
            while self._hear(fork):
                pass
            fork.stream.close()
            fork.conversation.ended(None)


class SpawningLauncher:
    """A `Launcher` whose processes are interpreters of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spawned: set[_Spawned] = set()

    def launch(self, order: LaunchOrder, events: ProcessEvents) -> Process:
        return self._spawn(order_line(order), JobConversation(events))

    def check(self, content: Mapping[str, Any], done: Callable[[Sequence[str]], None]) -> None:
        self._spawn(channel.line_of({channel.CHECK: content}), CheckConversation(done))

    def close(self) -> None:
        with self._lock:
            spawned = list(self._spawned)
        for one in spawned:
            one.kill()
        for one in spawned:
            one.thread.join()

    def _spawn(self, first_line: bytes, conversation: ProcessListener) -> _Spawned:
        spawned = _Spawned(first_line, conversation, self._forget)
        with self._lock:
            self._spawned.add(spawned)
        spawned.thread.start()
        return spawned

    def _forget(self, spawned: _Spawned) -> None:
        with self._lock:
            self._spawned.discard(spawned)


class _Spawned:
    """One process, and the thread that reads what it says."""

    def __init__(self, first_line: bytes, conversation: ProcessListener, forget: Callable[[_Spawned], None]) -> None:
        self._conversation = conversation
        self._forget = forget
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.thread = threading.Thread(target=self._listen, args=(first_line,), name="tidegate-process", daemon=True)

    def ask_to_stop(self) -> None:
        self._write(channel.line_of({channel.STOP: True}))

    def answer_spark(self, answer: Mapping[str, Any]) -> None:
        self._write(channel.line_of({channel.SPARK: dict(answer)}))

    def kill(self) -> None:
        self._process.kill()

    def _listen(self, first_line: bytes) -> None:
        self._conversation.launched(self._process.pid)
        self._write(first_line)
        lines = channel.MessageSplitter()
        assert self._process.stdout is not None
        with self._process.stdout as said:
            while data := said.read(1 << 16):
                for message in lines.feed(data):
                    self._conversation.received(message)
        status = self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._forget(self)
        self._conversation.ended(status)

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
        except (BrokenPipeError, ValueError):
            return  # It has ended, which the reading thread notices.


_NEEDED = ("fastavro", "msgspec", "numpy", "pyarrow", "regex")


def launcher_of_this_machine() -> Launcher:
    """Return what starts processes: forks of a server on Linux, new interpreters elsewhere.

    Raises:
        JobsUnavailable: the packages that jobs need are not installed.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise JobsUnavailable(
            f'jobs need packages that are not installed ({", ".join(missing)}): pip install "tidegate[spark]"'
        )
    return ForkingLauncher() if sys.platform == "linux" else SpawningLauncher()
