"""Requests to the management API of one service, with its refusals as errors for people."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click

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
class Answer:
    """What came back; `body` is None for no content."""

    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class Place:
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

    def __init__(self, place: Place, token: Callable[[ManagementClient], str]) -> None:
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
    ) -> Answer:
        """Return what the API answers. Raises ManagementError with the API's message and code."""
        self._token = self._token or self._make_token(self)
        target = f"{path}?{urlencode({**(parameters or {}), 'api-version': API_VERSION})}"
        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **(headers or {})}
        status, document = self._exchange(method, target, None if body is None else json.dumps(body), sent)
        if status >= 400:
            raise self._refusal(status, document)
        return Answer(status, document)

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
