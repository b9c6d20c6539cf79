"""A web server on loopback that answers as a test says, and remembers what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    """A request; names of headers in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What to answer. Status 0: close the connection without an answer."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


Behaviour = Callable[[Request], Answer]


class Receiver:
    """What arrived, in order, and where to send it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Request] = []
        self.behaviour: Behaviour = lambda request: Answer()
        self.lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        with self.lock:
            self.requests.append(request)
            return self.behaviour(request)


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A server that answers 200 unless a test gives it another behaviour."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            length = int(self.headers.get("Content-Length", 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(length)
            if len(body) < length:
                # The sender was killed while it sent: no server takes that for a request.
                self.close_connection = True
                return
            answer = there.answer(Request(self.command, self.path, headers, body))
            if not answer.status:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    there = Receiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield there
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
