"""The command line's way to a hub's management API."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click

from tidegate.hub.access import sign
from tidegate.hub.access_rules import Right
from tidegate.hub.state import FILE_NAME, read_state
from tidegate.server.endpoint import read_endpoint

PREFIX = "/management/v1"
TIMEOUT_S = 30
TOKEN_LIFETIME_S = 300


class ManagementError(Exception):
    """The hub cannot be reached, or refuses; the message says why."""


class ManagementClient:
    """Calls the API of one hub with one token."""

    def __init__(self, url: str, token: str, ca_file: Path | None, hint: str) -> None:
        """`hint` is what to do when nobody answers. Raises click.UsageError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.UsageError(f"--url: expected https://HOST:PORT or http://HOST:PORT, got {url[:100]!r}")
        try:
            self._port = parts.port
        except ValueError as error:
            raise click.UsageError(f"--url: {error}") from error
        self._host = parts.hostname
        self._tls = parts.scheme == "https"
        self._url, self._token, self._ca_file, self._hint = url, token, ca_file, hint

    @classmethod
    def of_data_directory(cls, data: Path) -> ManagementClient:
        """For a hub on this machine. Raises ManagementError, ConfigError, OSError."""
        endpoint = read_endpoint(data)
        start = f"start it with `tidegate up --data {data}`"
        if endpoint is None:
            raise ManagementError(f"no hub runs on the data directory {data}: {start}, or name another with --data")
        state = read_state(data)
        rule = next((r for r in state.rules if Right.MANAGE in r.rights), None) if state else None
        if rule is None:
            raise ManagementError(f"{data / FILE_NAME} holds no authorization rule that may manage the namespace")
        token = sign(endpoint.url, rule.name, rule.primary_key, int(time.time()) + TOKEN_LIFETIME_S)
        return cls(endpoint.url, token, endpoint.authority_file, start)

    @classmethod
    def with_connection_string(cls, url: str, connection_string: str, ca_file: Path | None) -> ManagementClient:
        """For a hub anywhere. Raises click.UsageError, which never repeats the connection string."""
        parts = {
            name.strip().lower(): value.strip()
            for name, _, value in (part.partition("=") for part in connection_string.split(";"))
        }
        name, key, token = (parts.get(f"sharedaccess{part}") for part in ("keyname", "key", "signature"))
        if name and key:
            resource = f"{parts.get('endpoint', '').rstrip('/')}/{parts.get('entitypath', '')}"
            token = sign(resource, name, key, int(time.time()) + TOKEN_LIFETIME_S)
        if not token:
            raise click.UsageError("the connection string has neither SharedAccessKeyName and -Key nor a -Signature")
        return cls(url, token, ca_file, "is that its HTTP or HTTPS port?")

    def call(
        self, method: str, *path: str, body: dict[str, Any] | None = None, parameters: dict[str, Any] | None = None
    ) -> Any:
        """What the API answers; the segments of the path as they are. Raises ManagementError with the API's reason."""
        for name in path:
            if not name or "/" in name:
                raise click.UsageError(f"{name!r} cannot be a name")
        connection = self._connection()
        try:
            content = None if body is None else json.dumps(body)
            headers = {"Authorization": self._token, "Content-Type": "application/json"}
            target = "/".join([PREFIX, *(quote(segment, safe="$") for segment in path)])
            target += f"?{urlencode(parameters)}" if parameters else ""
            connection.request(method, target, content, headers)
            answer = connection.getresponse()
            text = answer.read()
        except ssl.SSLCertVerificationError as error:
            raise ManagementError(
                f"the certificate of {self._url} is not trusted ({error.verify_message}); name its CA with --ca-file"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise ManagementError(f"no hub answers at {self._url} ({error}); {self._hint}") from error
        finally:
            connection.close()
        try:
            document = json.loads(text) if text else None
        except ValueError as error:
            raise ManagementError(f"what answers at {self._url} is no hub; {self._hint}") from error
        if answer.status >= 400:
            reason = document.get("detail") if isinstance(document, dict) else None
            raise ManagementError(str(reason or f"the hub answered with status {answer.status}"))
        return document

    def _connection(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)
