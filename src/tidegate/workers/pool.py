"""The workers of one server: starts them, restarts those that die, and adds up what they count."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.server import Server, ServerSettings
from tidegate.server.server import ListenError
from tidegate.workers import frames
from tidegate.workers.door import make_door
from tidegate.workers.frames import FrameKind
from tidegate.workers.ring import make_memory, map_memory
from tidegate.workers.store import Store, StoreSession

_logger = logging.getLogger(__name__)
_START_S = 60.0
_STOP_S = 2.2
_CLIENTS_S = 1.0
_RESTART_S = 0.1
_MAX_RESTART_S = 5.0
_SETTLED_S = 10.0
"""A worker that ran so long is restarted at once."""
_TLS_PORTS = ("amqps_port", "https_port", "kafka_tls_port")
PORTS = ("amqp_port", "http_port", "kafka_port", *_TLS_PORTS)
"""The settings of the ports that workers share."""


class Worker:
    """One worker and its process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.session: StoreSession | None = None
        self.started_at_s = 0.0
        self.connections_open = 0
        self.clients: list[dict[str, Any]] = []
        self.has_answered = threading.Event()
        self.ready: asyncio.Future[dict[str, int]] | None = None


class WorkerPool(Collector):
    """N workers that listen on the ports of `settings`, for a server that has started and listens on none."""

    def __init__(
        self,
        server: Server,
        settings: ServerSettings,
        count: int,
        *,
        is_verbose: bool = False,
        log_format: str = "text",
    ) -> None:
        self._server = server
        self._settings = settings
        self._is_verbose = is_verbose
        self._log_format = log_format
        self._workers = [Worker(number) for number in range(count)]
        self._tasks: list[asyncio.Task[None]] = []
        self._reserved: list[socket.socket] = []
        self._ports: dict[str, int | None] = {}
        self._store: Store | None = None
        self._restarts = 0
        self._is_stopping = False

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [one.process.pid for one in self._workers if one.process is not None and one.process.poll() is None]

    def reserve_ports(self) -> None:
        """Find out whether the workers can listen, before the data is opened, which may take long. Raises ListenError.

        The ports stay reserved until `stop`.
        """
        try:
            for name in PORTS:
                self._ports[name] = self._reserve(getattr(self._settings, name))
        except BaseException:
            self._release_ports()
            raise

    def _release_ports(self) -> None:
        for reserved in self._reserved:
            reserved.close()
        self._reserved.clear()

    async def start(self) -> None:
        """Start the workers; on return, clients can connect. Raises ListenError, OSError."""
        settings, server = self._settings, self._server
        if any(self._ports[name] is not None for name in _TLS_PORTS):
            server.prepare_tls()  # so that all workers find the same certificate
        await server.prepare_to_take_over()
        self._store = Store(server)
        server.further_client_rows.append(self._client_rows)
        server.metrics.collectors.append(self)
        try:
            for worker in self._workers:
                self._launch(worker)
            for worker in self._workers:
                await self._until_ready(worker)
        except BaseException:
            await self.stop()
            raise
        server.further_urls += settings.listen
        server.announce(self._ports)
        self._tasks = [asyncio.create_task(self._supervise(worker)) for worker in self._workers]

    def _reserve(self, port: int | None) -> int | None:
        """Return the port that the workers share, reserved as long as this process runs. Raises ListenError."""
        if port is None:
            return None
        host = self._settings.host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            if port:
                socket.create_server((host, port), family=family).close()  # SO_REUSEPORT would share it with anybody
            reserved = socket.socket(family, socket.SOCK_STREAM)
            self._reserved.append(reserved)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind((host, port))
        except OSError as error:
            if port in self._settings.replaceable_ports and error.errno == errno.EADDRINUSE:
                return self._reserve(0)
            raise ListenError(
                f"port {port} cannot be listened on ({error.strerror or error}); stop what uses it or choose another "
                "port (0 = any free one)"
            ) from error
        return int(reserved.getsockname()[1])

    def _launch(self, worker: Worker) -> None:
        assert self._store is not None
        stream, worker_stream = socket.socketpair()
        line, worker_line = socket.socketpair()
        door, worker_door = make_door()
        memory, shared = make_memory(), None
        try:
            with worker_stream, worker_line, worker_door:
                ends = [worker_stream.fileno(), worker_line.fileno(), worker_door.fileno()]
                if memory is not None:
                    shared = memoryview(map_memory(memory))
                    ends.append(memory)
                command = [sys.executable, "-m", "tidegate.workers.process", *map(str, ends)]
                worker.process = subprocess.Popen(command, pass_fds=ends, stdin=subprocess.DEVNULL)
        finally:
            if memory is not None:
                os.close(memory)
        worker.started_at_s = time.monotonic()
        worker.ready = asyncio.get_running_loop().create_future()
        settings = asdict(self._settings) | self._ports
        settings |= {"capture": None, "replaceable_ports": [], "reuse_port": True}
        settings |= {name: value and str(value) for name, value in settings.items() if name.endswith("_file")}
        values = {
            "settings": settings,
            "data_dir": str(self._server.data_dir.absolute()),
            "is_verbose": self._is_verbose,
            "log_format": self._log_format,
        }
        loop = asyncio.get_running_loop()

        def on_frame(kind: int, content: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the server has stopped
                if kind == FrameKind.CLIENTS:
                    worker.clients = content
                    worker.has_answered.set()
                else:
                    loop.call_soon_threadsafe(self._take, worker, kind, content)

        worker.session = StoreSession(self._store, values, on_frame)
        worker.session.memory = shared
        self._store.attach(stream, line, door, worker.session)

    async def _until_ready(self, worker: Worker) -> None:
        """Wait until a worker listens. Raises ListenError."""
        assert worker.process is not None
        assert worker.ready is not None
        deadline_s = time.monotonic() + _START_S
        while not worker.ready.done():
            if worker.process.poll() is not None:
                raise ListenError(f"a worker ended with code {worker.process.returncode} before it listened")
            if time.monotonic() > deadline_s:
                raise ListenError(f"a worker did not listen within {_START_S:.0f} s")
            await asyncio.wait([worker.ready], timeout=0.05)
        worker.ready.result()

    async def _supervise(self, worker: Worker) -> None:
        """Restart a worker whenever it has ended, soon, or later if it ends again and again."""
        pause_s = _RESTART_S
        while True:
            assert worker.process is not None
            code = await asyncio.get_running_loop().run_in_executor(None, worker.process.wait)
            if self._is_stopping:
                return
            self._forget(worker)
            ran_s = time.monotonic() - worker.started_at_s
            pause_s = _RESTART_S if ran_s > _SETTLED_S else min(2 * pause_s, _MAX_RESTART_S)
            _logger.error("worker %d ended with code %d; it is restarted", worker.number, code)
            await asyncio.sleep(pause_s)
            self._restarts += 1
            try:
                self._launch(worker)
            except OSError as error:
                _logger.error("worker %d cannot be started: %s", worker.number, error)

    def _take(self, worker: Worker, kind: int, content: Any) -> None:
        if kind == FrameKind.STATISTICS:
            self._add(worker, content)
        elif worker.ready is not None and not worker.ready.done():
            if kind == FrameKind.READY:
                worker.ready.set_result(content)
            else:
                worker.ready.set_exception(ListenError(str(content)))
                worker.ready.exception()  # it is logged below for a worker that was restarted
                _logger.error("worker %d: %s", worker.number, content)

    def _add(self, worker: Worker, counted: dict[str, Any]) -> None:
        metrics = self._server.metrics
        metrics.connections_open += counted["connections_open"] - worker.connections_open
        worker.connections_open = counted["connections_open"]
        for name in ("connections_opened", "received_bytes", "sent_bytes", "publications", "delivered_events"):
            setattr(metrics, name, getattr(metrics, name) + counted[name])
        metrics.refusals.update(Counter(counted["refusals"]))
        for hub, (events, size) in counted["deliveries"].items():
            metrics.deliveries.count(hub, events, size)
        for what, hub, count in counted["counts"]:
            metrics.counts.add((what, hub), count)

    def _forget(self, worker: Worker) -> None:
        self._server.metrics.close_connection(worker.connections_open)
        worker.connections_open = 0
        worker.clients = []

    def _client_rows(self) -> list[dict[str, Any]]:
        """Return who is connected to the workers, as of now if they answer soon."""
        asked = [one for one in self._workers if one.session is not None and one in self._running()]
        for worker in asked:
            worker.has_answered.clear()
            if worker.session is not None:
                worker.session.write_soon(frames.frame(FrameKind.ASK_CLIENTS))
        deadline_s = time.monotonic() + _CLIENTS_S
        for worker in asked:
            worker.has_answered.wait(max(0.0, deadline_s - time.monotonic()))
        return [row for worker in asked for row in worker.clients]

    def _running(self) -> list[Worker]:
        return [one for one in self._workers if one.process is not None and one.process.poll() is None]

    def collect(self) -> Iterator[Metric]:
        """Return what Prometheus reads about the workers."""
        yield GaugeMetricFamily("tidegate_workers", "Worker processes that run now", value=len(self.pids))
        yield CounterMetricFamily("tidegate_worker_restarts", "Workers that ended unasked", value=self._restarts)

    async def stop(self) -> None:
        """Have the workers finish and end, and kill those that do not soon."""
        self._is_stopping = True
        for worker in self._running():
            if worker.session is not None:
                worker.session.write_soon(frames.frame(FrameKind.STOP))
        await self._server.end_taking_over()
        deadline_s = time.monotonic() + _STOP_S
        while self._running() and time.monotonic() < deadline_s:
            await asyncio.sleep(0.01)
        for worker in self._running():
            assert worker.process is not None
            worker.process.kill()
        for worker in self._workers:
            if worker.process is not None:
                await asyncio.get_running_loop().run_in_executor(None, worker.process.wait)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._store is not None:
            await asyncio.sleep(0)
            self._store.close()
            self._server.further_client_rows.remove(self._client_rows)
            self._server.metrics.collectors.remove(self)
            self._store = None
        self._release_ports()


def without_ports(settings: ServerSettings) -> ServerSettings:
    """Return the settings of a server in whose place workers listen."""
    return replace(
        settings,
        amqp_port=None,
        amqps_port=None,
        http_port=None,
        https_port=None,
        kafka_port=None,
        kafka_tls_port=None,
        listen=(),
    )


def unshareable(urls: tuple[str, ...]) -> str | None:
    """Return the first URL without a port that several processes could share, None if there is none."""
    return next((url for url in urls if not urlsplit(url).port), None)
