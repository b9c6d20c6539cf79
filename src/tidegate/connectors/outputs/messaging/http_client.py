"""Requests to one HTTP server, over connections that stay open, from several threads at a time."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from queue import Empty, LifoQueue
from urllib.parse import urlsplit

from tidegate import outbound
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.output import OutputUnavailableError

_SHOWN_CHARACTERS = 300
_LONGEST_RETRY_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The beginning of the body, for people."""
        return " ".join(self.body.decode(errors="replace").split())[:_SHOWN_CHARACTERS]

    @property
    def is_success(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300

    def retry_after_s(self) -> float:
        """Return how long the server asks to wait, at most a minute; 0 if it does not say."""
        given = self.headers.get("x-ms-retry-after-ms")
        try:
            if given is not None:
                seconds = float(given) / 1000
            else:
                after = self.headers.get("retry-after", "0")
                is_number = after.replace(".", "", 1).isdecimal()
                seconds = float(after) if is_number else parsedate_to_datetime(after).timestamp() - time.time()
        except ValueError:
            return 0.0
        return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_S)


class HttpClient:
    """One server; `post` may be called by several threads."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        """
        Args:
            url: of the requests, or of the server. Its query may hold a key, so it is never shown.
            headers: of every request.

        Raises:
            OutputError: it is no such URL.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if host is None or parts.scheme not in ("http", "https"):
            raise OutputError("expected a URL such as https://host/path")
        self._host, self._port = host, port
        self._is_secure = parts.scheme == "https"
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.place = f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"
        self._headers = {"Content-Type": "application/json", **headers}
        self._timeout_s = timeout_s
        self._idle: LifoQueue[http.client.HTTPConnection] = LifoQueue()

    def post(self, body: bytes, headers: Mapping[str, str] | None = None, target: str | None = None) -> Reply:
        """Send a request, and return the answer.

        Args:
            target: the path, if it is not that of the URL.

        Raises:
            OutputUnavailableError: the server cannot be reached, or gives no answer in time.
        """
        return self.request("POST", target or self.target, body, headers or {})

    def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Send any request; see `post`."""
        try:
            connection = self._idle.get_nowait()
        except Empty:
            return self._on(self._connected(), method, target, body, headers)
        try:
            return self._on(connection, method, target, body, headers)
        except _ServerClosedError:
            # A server may close an idle connection at any time; that says nothing about the server.
            return self._on(self._connected(), method, target, body, headers)

    def _connected(self) -> http.client.HTTPConnection:
        scheme = "https" if self._is_secure else "http"
        connection = outbound.http_connection(scheme, self._host, self._port, self._timeout_s)
        try:
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except outbound.AddressRefused as error:
            raise OutputError(f"cannot reach {self.place}: {error}") from None
        except OSError as error:
            raise OutputUnavailableError(f"cannot reach {self.place}: {error.strerror or error}") from error
        return connection

    def _on(
        self, connection: http.client.HTTPConnection, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> Reply:
        try:
            connection.request(method, target, body, {**self._headers, **headers})
            answer = connection.getresponse()
            content = answer.read()
        except TimeoutError as error:
            connection.close()
            raise OutputUnavailableError(f"{self.place} gave no answer within {self._timeout_s:g} s") from error
        except (ConnectionError, http.client.BadStatusLine) as error:
            connection.close()
            raise _ServerClosedError(f"{self.place} broke the connection") from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise OutputUnavailableError(f"{self.place} did not answer: {type(error).__name__}") from error
        if answer.will_close:
            connection.close()
        else:
            self._idle.put(connection)
        return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, content)

    def close(self) -> None:
        """Close the connections that are open."""
        while True:
            try:
                self._idle.get_nowait().close()
            except Empty:
                return


class _ServerClosedError(OutputUnavailableError):
    """The server closed the connection without an answer."""
