"""Network links that tests can cut: a small TCP proxy for each, all in one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

_CHUNK_BYTES = 1 << 16


class Link:
    """A port of loopback that leads to another one.

    Attributes:
        port: Where the near side connects.
        delay_s: How long what is sent takes, each way.
    """

    def __init__(self, links: Links, port: int, target: int) -> None:
        """Use `Links.link`."""
        self.port = port
        self.delay_s = 0.0
        self._links = links
        self._target = target
        self._open = {"there": asyncio.Event(), "back": asyncio.Event()}
        self._writers: set[asyncio.StreamWriter] = set()
        self._far_writers: set[asyncio.StreamWriter] = set()
        for event in self._open.values():
            event.set()

    def cut(self, *, there: bool = True, back: bool = True) -> None:
        """Hold what is sent in these directions; connections stay, and are accepted, as if packets were lost."""
        self._links.call(self._set(there, back, is_open=False))

    def mend(self) -> None:
        """Carry everything again, what was held too."""
        self.delay_s = 0.0
        self._links.call(self._set(True, True, is_open=True))

    def reset(self) -> None:
        """End the connections."""
        self._links.call(self._reset())

    async def _set(self, there: bool, back: bool, *, is_open: bool) -> None:
        for name, chosen in (("there", there), ("back", back)):
            if chosen:
                event = self._open[name]
                if is_open:
                    event.set()
                else:
                    event.clear()

    def half_open(self) -> None:
        """End the connections for the far side alone: the near side hears nothing more, until the link is mended."""
        self._links.call(self._half_open())

    async def _half_open(self) -> None:
        await self._set(True, True, is_open=False)
        for writer in self._far_writers:
            writer.transport.abort()

    async def _reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            self._writers.discard(writer)
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        self._far_writers.add(far_writer)
        with suppress(asyncio.CancelledError):  # the end of the test
            await asyncio.gather(
                self._carry(reader, far_writer, self._open["there"]),
                self._carry(far_reader, writer, self._open["back"]),
            )
        self._writers -= {writer, far_writer}
        self._far_writers.discard(far_writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await is_open.wait()
                writer.write(data)
                await writer.drain()
        await is_open.wait()
        writer.close()


class Links:
    """The thread of some links."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run something in the thread of the links."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def link(self, port: int, target: int) -> Link:
        """Return a link from one port to another."""

        async def start() -> Link:
            link = Link(self, port, target)
            await asyncio.start_server(link.serve, "127.0.0.1", port)
            return link

        found = self.call(start())
        assert isinstance(found, Link)
        return found

    def close(self) -> None:
        """End everything."""

        async def end() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Balancer:
    """A TCP balancer: each connection goes to the next target that is ready, as its `/ready` says.

    A target that does not answer at all loses its connections; one that says that it is not ready keeps them.

    Attributes:
        ports: Where clients connect, one port for each port of a target.
    """

    def __init__(self, links: Links, ports: Sequence[int], targets: Sequence[Sequence[int]], ready: Sequence[int]):
        """Balance `ports` over targets, each with as many ports, and with a port that answers `/ready`."""
        self.ports = tuple(ports)
        self._targets = targets
        self._ready = ready
        self._is_ready = [False] * len(targets)
        self._writers: list[set[asyncio.StreamWriter]] = [set() for _ in targets]
        self._turn = 0
        self._links = links
        self.checks: list[asyncio.Task[None]] = []
        links.call(self._start())

    async def _start(self) -> None:
        for index, port in enumerate(self.ports):
            await asyncio.start_server(partial(self._serve, index), "127.0.0.1", port)
        self.checks = [asyncio.ensure_future(self._check(number)) for number in range(len(self._targets))]

    def is_ready(self, number: int) -> bool:
        """Whether a target is sent connections."""
        return self._is_ready[number]

    async def _check(self, number: int) -> None:
        while True:
            answer = None
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    reader, writer = await asyncio.open_connection("127.0.0.1", self._ready[number])
                    writer.write(b"GET /ready HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")
                    answer = await reader.readline()
                    writer.close()
            self._is_ready[number] = answer is not None and b" 200 " in answer
            if answer is None:
                for one in list(self._writers[number]):
                    one.transport.abort()
            await asyncio.sleep(0.2)

    async def _serve(self, index: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self._targets:
            self._turn += 1
            number = self._turn % len(self._targets)
            if not self._is_ready[number]:
                continue
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._targets[number][index])
                break
            except OSError:
                continue
        else:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers[number] |= both
        with suppress(asyncio.CancelledError):  # the end of the test
            await asyncio.gather(_carry(reader, far_writer), _carry(far_reader, writer))
        self._writers[number] -= both


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()
