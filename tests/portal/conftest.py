"""A hub with its portal on loopback, and requests to it as a browser or a script would send them."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.portal import portal
from tidegate.server import BackgroundServer, Server

KEY = "SAS_KEY_VALUE"


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def data(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """One visitor: its cookie, and the token of the last page that it saw."""

    port: int
    host: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    cookie: str = ""
    token: str = ""

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        sent = {"Host": self.host or f"127.0.0.1:{self.port}", **self.headers}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent["Cookie"] = self.cookie
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        found = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        connection.close()
        if "set-cookie" in found.headers:
            self.cookie = found.headers["set-cookie"].partition(";")[0]
        return found

    def page(self, path: str) -> Answer:
        """Open a page as a browser does."""
        answer = self.request("GET", path, Accept="text/html")
        found = re.search(r'name="csrf-token" content="(\w+)"', answer.text)
        self.token = found[1] if found else self.token
        return answer

    def get(self, path: str) -> Any:
        """Return a page's data."""
        answer = self.request("GET", path)
        assert answer.status == 200, answer.text
        return answer.data

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """Ask for a change as a page of the portal does."""
        if not self.token:
            self.page("/")
        return self.request("POST", path, json.dumps(body or {}).encode(), **{"X-CSRF-Token": self.token, **headers})

    def sign_in(self, key: str = KEY, rule: str = "RootManageSharedAccessKey") -> Answer:
        self.page("/sign-in")
        form = f"csrf_token={self.token}&key={key.replace('+', '%2B').replace('=', '%3D')}&rule={rule}&next=/"
        answer = self.request("POST", "/sign-in", form.encode())
        self.token = ""
        return answer


CONFIG = NamespaceConfig(
    name="emulatorNs1",
    event_hubs=(
        EventHubConfig(name="eh1", partition_count=2, consumer_groups=("cg1",)),
        EventHubConfig(name="telemetry", partition_count=4),
    ),
)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a server that all tests of the portal share; each sends to a hub of its own."""
    with BackgroundServer(CONFIG, tmp_path_factory.mktemp("portal"), http_port=0, further_routes=[portal()]) as running:
        yield running.server


@pytest.fixture
def client(server: Server) -> Client:
    """Return a visitor on this machine."""
    return Client(server.http_port)


@pytest.fixture
def away(server: Server) -> Client:
    """Return a visitor that knows the portal by a name that is not loopback's."""
    return Client(server.http_port, host="hub.example:5300")


@pytest.fixture
def make_hub(client: Client, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Return what creates an event hub of its own for a test."""

    def make(partitions: int = 2) -> str:
        name = re.sub(r"\W", "-", request.node.name)[:50]
        answer = client.post("/eventhubs", {"name": name, "partitionCount": partitions})
        assert answer.status == 200, answer.text
        return name

    return make


@pytest.fixture
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures")
