"""Access tokens: JSON web tokens that this server signs and only this server reads (RFC 7519, HS256 of RFC 7518).

A token names who it was given to and is bound to the credential that was shown for it. It is worth nothing once that
secret or key has been changed, whatever its expiry. Roles are not part of it: they are looked up with each request.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.arm.access.principals import FOLDER, object_id
from tidegate.durable_files import make_folders, replace_file

KEY_FILE = "token.key"
LIFETIME_S = 3600
CLOCK_SKEW_S = 300
MAX_TOKEN_CHARACTERS = 4096
DEFAULT_TENANT = "00000000-0000-0000-0000-000000000000"
_HEADER = {"typ": "JWT", "alg": "HS256"}


class TokenRejected(Exception):
    """A token that is not accepted, with the reason for the client."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says: who it was given to, and the credential it is bound to."""

    client_id: str
    binding: str


def signing_key(data_dir: Path) -> bytes:
    """Return the key of a data directory, made with the first call. Raises OSError."""
    path = data_dir / FOLDER / KEY_FILE
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = b""
    if len(key) != 32:
        key = secrets.token_bytes(32)
        make_folders(path.parent)
        replace_file(path, key, mode=0o600)
    return key


class TokenIssuer:
    """Issues and verifies the tokens of one data directory."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._issuer = f"urn:tidegate:{hashlib.sha256(b'issuer' + key).hexdigest()[:32]}"

    def binding(self, credential: str) -> str:
        """Return what stands for a credential in a token; nobody without the key can test a guess against it."""
        data = credential.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, b"credential:" + data, "sha256").hex()[:32]

    def issue(self, client_id: str, credential: str, audience: str, tenant: str, now_s: float) -> str:
        """Return a token for a client, bound to the credential it showed."""
        now = int(now_s)
        claims = {
            "aud": audience,
            "iss": self._issuer,
            "iat": now,
            "nbf": now,
            "exp": now + LIFETIME_S,
            "appid": client_id,
            "oid": object_id(client_id),
            "sub": object_id(client_id),
            "tid": tenant if _is_guid(tenant) else DEFAULT_TENANT,
            "uti": secrets.token_urlsafe(12),
            "ver": "1.0",
            "cred": self.binding(credential),
        }
        signed = f"{_encode(_HEADER)}.{_encode(claims)}"
        return f"{signed}.{_base64(self._signature(signed))}"

    def verify(self, token: str, audiences: Collection[str], now_s: float) -> Claims:
        """Return the claims of a token that this issuer has signed for one of the audiences. Raises TokenRejected."""
        if len(token) > MAX_TOKEN_CHARACTERS or token.count(".") != 2 or not token.isascii():
            raise TokenRejected("the token is neither one of this server's nor the namespace's root key")
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(_base64(self._signature(signed)), signature):
            raise TokenRejected("the token was not signed by this server")
        header, claims = map(_decode, signed.split("."))
        if header != _HEADER or claims.get("iss") != self._issuer:
            raise TokenRejected("the token was not issued by this server")
        if claims["exp"] <= now_s:
            raise TokenRejected("The access token has expired.")
        if claims["nbf"] > now_s + CLOCK_SKEW_S:
            raise TokenRejected("the token is not valid yet")
        if _audience(claims["aud"]) not in {_audience(audience) for audience in audiences}:
            raise TokenRejected(f"the token is for the audience {claims['aud']!r}, not for the management API")
        return Claims(claims["appid"], claims["cred"])

    def _signature(self, signed: str) -> bytes:
        return hmac.digest(self._key, signed.encode("ascii"), "sha256")


def _audience(text: str) -> str:
    return text.rstrip("/").lower()


def _is_guid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _encode(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode("ascii"))


def _decode(part: str) -> dict[str, Any]:
    """Return a part of a token whose signature is right, so it is what was encoded."""
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return decoded
