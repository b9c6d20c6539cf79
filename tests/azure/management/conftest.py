"""A hub with the management API on both ports, and a caller that speaks plain HTTP to it."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.patience import PATIENCE_S
from tests.service.launchers import FakeLauncher
from tidegate import outbound
from tidegate.azure.management import ArmSettings, PrincipalRole, Principals, arm_routes
from tidegate.azure.management.access import principals
from tidegate.azure.management.stream_analytics import engine_questions
from tidegate.hub import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer, Server
from tidegate.service import Jobs
from tidegate.service.questions import Workbench

GROUP = "/subscriptions/s1/resourceGroups/g1"
NAMESPACE = f"{GROUP}/providers/Microsoft.EventHub/namespaces/emulatorNs1"
KEY = "SAS_KEY_VALUE"
SECRETS = {role: f"the-secret-of-the-{role.value}" for role in PrincipalRole}


@pytest.fixture(scope="session", autouse=True)
def cheap_secrets() -> Iterator[None]:
    """Let a login take no processor time to speak of; the time is there against those who guess."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(principals, "_COST", 1 << 4)
        yield


class KeptWorkbench(Workbench):
    """Stays for the next question of its kind."""

    def close(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        super().close()


@pytest.fixture(scope="session", autouse=True)
def kept_workbenches() -> Iterator[None]:
    """Ask one process where each question has its own: a process loads the engine, which is most of its work.

    One has the policy for addresses with which it was started, so there is one for each.
    """
    kept: dict[tuple[object, ...], KeptWorkbench] = {}
    lock = threading.Lock()

    def workbench(timeout_s: float) -> KeptWorkbench:
        with lock:
            kind = (timeout_s, *sorted(outbound.current().environment.items()))
            return kept.setdefault(kind, KeptWorkbench(timeout_s))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_questions, "Workbench", workbench)
        yield
    for one in kept.values():
        one.end()


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: http.client.HTTPMessage, content: bytes) -> None:
        self.status = status
        self.headers = headers
        self.content = content

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


class Api:
    """A caller over HTTPS; `token` is what its Authorization header bears."""

    def __init__(self, server: Server, token: str = KEY) -> None:
        self.server = server
        self.token = token
        assert server.certificate is not None
        self.ca_file = str(server.certificate.authority_file)
        self.base_url = f"https://localhost:{server.https_port}"
        self._context = ssl.create_default_context(cafile=self.ca_file)

    def send(self, method: str, target: str, content: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPSConnection(
            "localhost", self.server.https_port or 0, timeout=PATIENCE_S, context=self._context
        )
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, target, content, named)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def call(self, method: str, path: str, body: Any = None, *, version: str = "2024-01-01", **headers: str) -> Answer:
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        target = quote(path, safe="/%$?&=',()") + ("&" if "?" in path else "?") + f"api-version={version}"
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        return self.send(method, target, content, Content_Type="application/json", **headers)

    def ok(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        answer = self.call(method, path, body, **options)
        assert answer.status < 300, answer.content
        return answer.json if answer.content else None

    def log_in(self, name: str, secret: str, tenant: str = "adfs", **fields: str) -> Answer:
        form = {
            "grant_type": "client_credentials",
            "client_id": name,
            "client_secret": secret,
            "scope": f"{self.base_url}/.default",
        }
        content = urlencode({name: value for name, value in {**form, **fields}.items() if value})
        return self.send("POST", f"/{tenant}/oauth2/v2.0/token", content.encode())


@pytest.fixture(scope="session")
def arm_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("arm") / "data"


@pytest.fixture(scope="session")
def arm_jobs(arm_data: Path, launcher: FakeLauncher) -> Iterator[Jobs]:
    with Jobs(arm_data / "service", launcher=lambda: launcher) as jobs:
        yield jobs


@pytest.fixture(scope="session")
def arm_server(arm_data: Path, arm_jobs: Jobs) -> Iterator[Server]:
    data = arm_data
    principals = Principals(data)
    for role, secret in SECRETS.items():
        principals.create(f"the-{role.value}", role, secret)
    config = NamespaceConfig(name="emulatorNs1", event_hubs=(EventHubConfig(name="eh1", partition_count=2),))
    routes = [arm_routes(ArmSettings(data, arm_jobs))]
    with BackgroundServer(config, data, None, routes, http_port=0, https_port=0) as running:
        yield running.server


@pytest.fixture(scope="session")
def launcher() -> FakeLauncher:
    return FakeLauncher()


@pytest.fixture(scope="session")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A hub whose jobs run in processes."""
    data = tmp_path_factory.mktemp("arm-running") / "data"
    hubs = tuple(EventHubConfig(name=name, partition_count=1) for name in ("events", "results"))
    config = NamespaceConfig(name="emulatorNs1", event_hubs=hubs)
    jobs = Jobs(data / "service")
    routes = [arm_routes(ArmSettings(data, jobs))]
    with BackgroundServer(config, data, None, routes, http_port=0, https_port=0) as running, jobs:
        yield running.server


@pytest.fixture
def api(arm_server: Server) -> Api:
    return Api(arm_server)


@pytest.fixture
def api_of(arm_server: Server) -> Callable[[PrincipalRole], Api]:
    """A role to a caller that has logged in as a principal of it."""

    def log_in(role: PrincipalRole) -> Api:
        api = Api(arm_server)
        answer = api.log_in(f"the-{role.value}", SECRETS[role])
        assert answer.status == 200, answer.content
        return Api(arm_server, answer.json["access_token"])

    return log_in
