"""A server in a background thread, for tests, demonstrations and notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from tidegate.hub.config import NamespaceConfig
from tidegate.server.context.settings import ServerSettings
from tidegate.server.http.routing import RouteGroup
from tidegate.server.server import Server


class BackgroundServer:
    """Starts a Server on an event loop in a daemon thread; a context manager that stops it on exit.

    Settings can be given as an object or one by one: `BackgroundServer(config, path, http_port=0)`. The system chooses
    the AMQP port unless the settings name one. `start` raises whatever Server.start() raises.
    """

    def __init__(
        self,
        config: NamespaceConfig,
        data_dir: Path,
        settings: ServerSettings | None = None,
        further_routes: Sequence[RouteGroup] = (),
        **changes: Any,
    ) -> None:
        settings = replace(settings or ServerSettings(amqp_port=0), **changes)
        self.server = Server(config, data_dir, settings, further_routes)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tidegate-server", daemon=True)
        self._started = threading.Event()
        self._failure: BaseException | None = None

    @property
    def connection_string(self) -> str:
        """The connection string for SDKs, over plain TCP."""
        return self.server.connection_string()

    def start(self) -> None:
        """Start the server, and return when clients can connect."""
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Stop the server, and return when everything is flushed and closed."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> BackgroundServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self.server.start())
        except BaseException as error:
            self._failure = error
            self._started.set()
            self._loop.close()
            return
        self._started.set()
        self._loop.run_forever()
        self._loop.close()
