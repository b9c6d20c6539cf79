"""Call the management API of a running hub, and the options that say where it is."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import click

from tidegate.hub.access_rules import ROOT_RULE
from tidegate.hub.snapshot import FILE_NAME, read_state
from tidegate.server.endpoint import read_endpoint

API_VERSION = "2024-01-01"
SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000000"
GROUP = f"{SUBSCRIPTION}/resourceGroups/tidegate"
"""Any name refers to the same place, unless somebody created a group of that name."""
TIMEOUT_S = 90
"""The first check of a job loads the engine."""
_HERE = ("localhost", "127.0.0.1", "::1")
_LOGIN_PATH = "/adfs/oauth2/v2.0/token"


class ManagementError(Exception):
    """The service cannot be reached, or refuses; the message says why.

    Attributes:
        status: of the answer; 0 if there was none.
        code: the API's name for the reason, such as AuthorizationFailed.
    """

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class ManagementResponse:
    """What came back; `body` is None for no content."""

    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where a service is.

    Attributes:
        url: of its HTTP or HTTPS port.
        ca_file: the CA that its certificate is of, None for the system's.
        hint: what to do if nothing answers there.
        is_here: whether it runs on this machine; elsewhere secrets are sent over TLS only.
    """

    url: str
    ca_file: Path | None
    hint: str
    is_here: bool = False


class ManagementClient:
    """Calls the management API of one service. The first call asks for the token."""

    def __init__(self, place: ServiceAddress, token: Callable[[ManagementClient], str]) -> None:
        """`token` returns the bearer token. Raises click.UsageError."""
        parts = urlsplit(place.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.UsageError(f"--url: expected https://HOST:PORT or http://HOST:PORT, got {place.url[:100]!r}")
        try:
            self._port = parts.port
        except ValueError as error:
            raise click.UsageError(f"--url: {error}") from error
        self._host = parts.hostname
        self._tls = parts.scheme == "https"
        if not self._tls and not place.is_here and self._host not in _HERE:
            raise click.UsageError(
                f"--url: {place.url[:100]} would carry the key unencrypted: use https://, or a tunnel to localhost"
            )
        self._place = place
        self._make_token = token
        self._token = ""

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        parameters: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ManagementResponse:
        """Return what the API answers. Raises ManagementError with the API's message and code."""
        self._token = self._token or self._make_token(self)
        target = f"{path}?{urlencode({**(parameters or {}), 'api-version': API_VERSION})}"
        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **(headers or {})}
        status, document = self._exchange(method, target, None if body is None else json.dumps(body), sent)
        if status >= 400:
            raise self._refusal(status, document)
        return ManagementResponse(status, document)

    def log_in(self, name: str, secret: str) -> str:
        """Return a token for a service principal. Raises ManagementError, which never repeats the secret."""
        form = {
            "grant_type": "client_credentials",
            "client_id": name,
            "client_secret": secret,
            "scope": f"{self._origin()}/.default",
        }
        sent = {"Content-Type": "application/x-www-form-urlencoded"}
        status, document = self._exchange("POST", _LOGIN_PATH, urlencode(form), sent)
        if status >= 400 and "error_description" in document:
            reason = str(document["error_description"]).splitlines()[0]
            raise ManagementError(f"cannot log in as '{name}': {reason}", status)
        if status >= 400 or "access_token" not in document:
            raise self._refusal(status, document)
        return str(document["access_token"])

    def _exchange(self, method: str, target: str, content: str | None, headers: Mapping[str, str]) -> tuple[int, Any]:
        """Send a request, and return the status and the JSON of its answer. Raises ManagementError."""
        url, hint = self._place.url, self._place.hint
        connection = self._connection()
        try:
            connection.request(method, target, content, dict(headers))
            answer = connection.getresponse()
            text = answer.read()
        except ssl.SSLCertVerificationError as error:
            raise ManagementError(
                f"the certificate of {url} is not trusted ({error.verify_message}); name its CA with --ca-file"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise ManagementError(f"no hub answers at {url} ({error}); {hint}") from error
        finally:
            connection.close()
        try:
            document = json.loads(text) if text else None
        except ValueError as error:
            raise ManagementError(f"the server at {url} is not a hub with the management API; {hint}") from error
        return answer.status, document

    def _refusal(self, status: int, document: Any) -> ManagementError:
        """Return the error of an answer: the API's message in one line, with its code."""
        error = document.get("error") if isinstance(document, dict) else None
        if not isinstance(error, dict) or not error.get("message"):
            return ManagementError(f"the hub at {self._place.url} answered with status {status}", status)
        message, code = "; ".join(str(error["message"]).splitlines()), str(error.get("code", ""))
        return ManagementError(f"{message} ({code})" if code else message, status, code)

    def _origin(self) -> str:
        """Return scheme, host and port as the Host header of a request has them."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        port = "" if self._port in (None, 443 if self._tls else 80) else f":{self._port}"
        return f"{'https' if self._tls else 'http'}://{host}{port}"

    def _connection(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        context = ssl.create_default_context(cafile=self._place.ca_file)
        return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)


def path_of(*names: str) -> str:
    """Return names as a part of a path: `eventhubs/orders`. Raises click.UsageError for what cannot be a name."""
    for name in names:
        if not name.strip(".") or "/" in name or "\\" in name:
            raise click.UsageError(f"{name!r} cannot be a name")
    return "/".join(quote(name, safe="$") for name in names)


_PLAIN = re.compile("[!-~]+")
Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("data"),
        show_default=True,
        help="The data directory of `tidegate up`, when it runs on this machine.",
    ),
    click.option("--url", help="Where its HTTPS port is, when it runs elsewhere: https://HOST:PORT."),
    click.option(
        "--connection-string",
        envvar="TIDEGATE_CONNECTION_STRING",
        help=f"With --url: one with the key of {ROOT_RULE}; also as TIDEGATE_CONNECTION_STRING.",
    ),
    click.option(
        "--ca-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="With --url: the CA that its certificate is of.",
    ),
    click.option("--principal", metavar="NAME", help="Log in as this service principal, instead of by the key."),
    click.option(
        "--principal-secret",
        metavar="SECRET",
        envvar="TIDEGATE_PRINCIPAL_SECRET",
        help="With --principal: its secret; better given as TIDEGATE_PRINCIPAL_SECRET.",
    ),
)


def connection_options(command: Function) -> Function:
    """Add the options to a command, which passes what it gets for them to `ServiceConnection`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class ServiceConnection:
    """What the options say."""

    data: Path
    url: str | None = None
    connection_string: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    principal: str | None = None
    principal_secret: str | None = field(default=None, repr=False)

    def open(self) -> ManagementClient:
        """Return a client of the service. Raises click.UsageError, ManagementError, ConfigError, OSError."""
        place = (
            self._here()
            if self.url is None
            else ServiceAddress(self.url, self.ca_file, "is that its HTTP or HTTPS port?")
        )
        if self.principal is not None:
            name, secret = self.principal, self.principal_secret
            if not secret:
                raise click.UsageError("--principal needs its secret: set TIDEGATE_PRINCIPAL_SECRET")
            return ManagementClient(place, lambda client: client.log_in(name, secret))
        if self.url is None:
            key = _key_of_data_directory(self.data)
        elif self.connection_string:
            key = key_of(self.connection_string)
        else:
            raise click.UsageError(
                "--url needs --connection-string (or TIDEGATE_CONNECTION_STRING), or --principal with its secret"
            )
        # a header cannot carry every key that somebody may have chosen
        return ManagementClient(place, lambda client: key if _PLAIN.fullmatch(key) else client.log_in(ROOT_RULE, key))

    def _here(self) -> ServiceAddress:
        endpoint = read_endpoint(self.data)
        start = f"start it with `tidegate up --data {self.data}`"
        if endpoint is None:
            raise ManagementError(
                f"no hub runs on the data directory {self.data}: {start}, or name another with --data"
            )
        return ServiceAddress(endpoint.url, self.ca_file or endpoint.authority_file, start, is_here=True)


def key_of(connection_string: str) -> str:
    """Return the key of the root rule, which the API accepts. Raises click.UsageError, which never repeats it."""
    parts = {
        name.strip().lower(): value.strip()
        for name, _, value in (part.partition("=") for part in connection_string.split(";"))
    }
    name, key = parts.get("sharedaccesskeyname"), parts.get("sharedaccesskey")
    if not name or not key:
        raise click.UsageError("the connection string has no SharedAccessKeyName and SharedAccessKey")
    if name.lower() != ROOT_RULE.lower():
        raise click.UsageError(
            f"the connection string is of the rule {name!r}: the management API accepts the key of {ROOT_RULE} only; "
            "use that, or a service principal (--principal)"
        )
    return key


def _key_of_data_directory(data: Path) -> str:
    state = read_state(data)
    rule = next((rule for rule in state.rules if rule.name.lower() == ROOT_RULE.lower()), None) if state else None
    if rule is None:
        raise ManagementError(
            f"{data / FILE_NAME} has no rule {ROOT_RULE}: log in with --principal ('tidegate principal create')"
        )
    return rule.primary_key


NAMESPACES = f"{GROUP}/providers/Microsoft.EventHub/namespaces"
_MUST_BE_NEW = {"If-None-Match": "*"}
_MUST_EXIST = {"If-Match": "*"}
_PRECONDITION_FAILED = 412
_NOTHING_TO_DELETE = 204


class NamespaceClient:
    """Calls the management API for the one namespace that a hub serves. `path` always is below the namespace."""

    def __init__(self, client: Callable[[], ManagementClient]) -> None:
        """`client` opens the client when the first request is sent."""
        self._open = client

    @cached_property
    def _client(self) -> ManagementClient:
        return self._open()

    @cached_property
    def _base(self) -> str:
        return f"{NAMESPACES}/{self._client.call('GET', NAMESPACES).body['value'][0]['name']}"

    def list(self, *path: str) -> list[Any]:
        """Return the resources of a kind. Raises ManagementError."""
        found: list[Any] = self._client.call("GET", self._url(path)).body["value"]
        return found

    def show(self, *path: str) -> Any:
        """Return a resource. Raises ManagementError."""
        return self._client.call("GET", self._url(path)).body

    def create(self, *path: str, properties: Mapping[str, Any]) -> Any:
        """Create a resource. Raises ManagementError, also if it exists."""
        try:
            body = {"properties": dict(properties)}
            return self._client.call("PUT", self._url(path), body, headers=_MUST_BE_NEW).body
        except ManagementError as error:
            if error.status != _PRECONDITION_FAILED:
                raise
            raise ManagementError(f"'{path[-1]}' exists already: update or delete it, or choose another name") from None

    def put(self, *path: str, properties: Mapping[str, Any]) -> Any:
        """Create a resource, or leave it as it is described. Raises ManagementError."""
        return self._client.call("PUT", self._url(path), {"properties": dict(properties)}).body

    def update(self, *path: str, properties: Mapping[str, Any]) -> Any:
        """Change a resource. Raises ManagementError, also if it does not exist."""
        try:
            return self._client.call("PUT", self._url(path), {"properties": dict(properties)}, headers=_MUST_EXIST).body
        except ManagementError as error:
            if error.status == _PRECONDITION_FAILED:
                self.show(*path)  # which says what is missing
            raise

    def delete(self, *path: str) -> None:
        """Delete a resource. Raises ManagementError, also if it does not exist."""
        if self._client.call("DELETE", self._url(path)).status == _NOTHING_TO_DELETE:
            self.show(*path)

    def act(self, *path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return what an action (POST) answers. Raises ManagementError."""
        return self._client.call("POST", self._url(path), body).body

    def change_namespace(self, body: Mapping[str, Any]) -> Any:
        """Change the namespace itself, and return it. Raises ManagementError."""
        return self._client.call("PATCH", self._base, body).body

    def _url(self, path: tuple[str, ...]) -> str:
        below = path_of(*path)  # before any request: a name may be wrong
        return f"{self._base}/{below}" if below else self._base
