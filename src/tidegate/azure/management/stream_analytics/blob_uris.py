"""Addresses of blobs that a request names, each with its shared access signature: read and written over HTTP.

No message holds an address as it was given: its query is a secret.
"""

from __future__ import annotations

import http.client
from urllib.parse import quote, urlsplit, urlunsplit

from tidegate import outbound
from tidegate.azure.management.access.requests import ArmError, bad_request

MAX_BYTES = 64 << 20
_TIMEOUT_S = 30.0
_PORTS = {"http": 80, "https": 443}


def checked_uri(uri: str, name: str) -> str:
    """Return an address that can be used. Raises ArmError."""
    try:
        parts = urlsplit(uri)
        usable = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not uri.isascii() or not uri.isprintable() or " " in uri:
        raise bad_request(f"{name} is the address of a blob with its signature, such as https://…?sig=…", target=name)
    return uri


def within(uri: str, *names: str) -> str:
    """Return the address of a blob in the container or directory of an address."""
    parts = urlsplit(uri)
    path = "/".join([parts.path.rstrip("/"), *(quote(name.strip("/")) for name in names if name.strip("/"))])
    return urlunsplit(parts._replace(path=path))


def read_blob(uri: str) -> bytes:
    """Return the content of a blob. Raises ArmError."""
    return _exchange("GET", uri, None, {})


def write_blob(uri: str, content: bytes) -> None:
    """Write a blob. Raises ArmError."""
    headers = {"x-ms-blob-type": "BlockBlob", "x-ms-version": "2021-08-06", "Content-Type": "application/json"}
    _exchange("PUT", uri, content, headers)


def _exchange(method: str, uri: str, content: bytes | None, headers: dict[str, str]) -> bytes:
    parts = urlsplit(uri)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    where = f"{host}:{port}{parts.path}"[:200]
    connection = outbound.http_connection(parts.scheme, host, port, _TIMEOUT_S)
    try:
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection.request(method, target, content, headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            raise ArmError(400, "BlobRefused", f"{method} {where} was answered with {answer.status} {answer.reason}")
        found = answer.read(MAX_BYTES + 1)
    except outbound.AddressRefused as error:
        raise ArmError(400, "BlobRefused", f"{where} cannot be used: {error}") from None
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise ArmError(400, "BlobUnreachable", f"cannot reach {where}: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if len(found) > MAX_BYTES:
        raise ArmError(400, "BlobTooLarge", f"{where} holds more than {MAX_BYTES >> 20} MiB")
    return found
