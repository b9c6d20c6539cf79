"""Starts an interpreter for each process, where there is no fork server."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.service import channel
from tidegate.service.connected_process import CheckConversation, Conversation, JobConversation, order_line
from tidegate.service.processes import LaunchOrder, Process, ProcessEvents


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

    def _spawn(self, first_line: bytes, conversation: Conversation) -> _Spawned:
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

    def __init__(self, first_line: bytes, conversation: Conversation, forget: Callable[[_Spawned], None]) -> None:
        self._conversation = conversation
        self._forget = forget
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker.alone"],
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
        lines = channel.Lines()
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
