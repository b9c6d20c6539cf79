"""Access tokens: JSON web tokens that this server signs and only this server reads (RFC 7519, HS256 of RFC 7518).

A token names who it was given to and is bound to the credential that was shown for it. It is worth nothing once that
secret or key has been changed, whatever its expiry. Roles are not part of it: they are looked up with each request.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.azure.management.access.principals import FOLDER, PrincipalError, Principals, object_id
from tidegate.azure.management.access.requests import ArmError, PrincipalRole
from tidegate.durable_files import make_folders, replace_file
from tidegate.hub.access import Access
from tidegate.hub.access_rules import ROOT_RULE, Right

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


_BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE)
MANAGEMENT_AUDIENCES = (
    "https://management.azure.com",
    "https://management.core.windows.net",
    "https://management.core.usgovcloudapi.net",
    "https://management.usgovcloudapi.net",
    "https://management.chinacloudapi.cn",
    "https://management.core.chinacloudapi.cn",
)
"""Azure's own management audiences, which clients ask for unless they are configured otherwise."""
DATA_AUDIENCES = ("https://eventhubs.azure.net",)
"""What clients of the data plane ask for, such as those of the schema registry."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, and the caller's role."""

    name: str
    role: PrincipalRole


class Callers:
    """Verifies credentials. The root rule's name and key log in like a service principal that is an owner."""

    def __init__(self, access: Access, principals: Principals, issuer: TokenIssuer, now_s: Callable[[], float]) -> None:
        self._access = access
        self._principals = principals
        self._issuer = issuer
        self._now_s = now_s

    def issue_token(self, client_id: str, secret: str, audience: str, tenant: str) -> str | None:
        """Return a token for a client's id and secret, None if they are not right. Raises ArmError."""
        if client_id.lower() == ROOT_RULE.lower():
            if not self._is_root_key(secret):
                return None
            return self._issuer.issue(ROOT_RULE, secret, audience, tenant, self._now_s())
        principal = self._verified(client_id, secret)
        if principal is None:
            return None
        return self._issuer.issue(principal[0], principal[1], audience, tenant, self._now_s())

    def authenticate(self, authorization: str | None, audiences: Collection[str]) -> Caller:
        """Return who an Authorization header shows. Raises ArmError with 401."""
        match = _BEARER.fullmatch(authorization.strip()) if authorization else None
        if match is None:
            raise _unauthenticated("AuthenticationFailed", "the 'Authorization' header with a bearer token is missing")
        token = match[1]
        if self._is_root_key(token):
            return Caller(ROOT_RULE, PrincipalRole.OWNER)
        try:
            claims = self._issuer.verify(token, {*MANAGEMENT_AUDIENCES, *audiences}, self._now_s())
        except TokenRejected as error:
            code = "ExpiredAuthenticationToken" if "expired" in str(error) else "InvalidAuthenticationToken"
            raise _unauthenticated(code, str(error)) from None
        caller = self._caller(claims.client_id, claims.binding)
        if caller is None:
            raise _unauthenticated(
                "InvalidAuthenticationToken", "the secret or key that the token was issued for is no longer valid"
            )
        return caller

    def _caller(self, client_id: str, binding: str) -> Caller | None:
        if client_id == ROOT_RULE:
            known = any(hmac.compare_digest(self._issuer.binding(key), binding) for key in self._root_keys())
            return Caller(ROOT_RULE, PrincipalRole.OWNER) if known else None
        try:
            principal = self._principals.find(client_id)
        except PrincipalError as error:
            raise _unreadable(error) from None
        if principal is None or not hmac.compare_digest(self._issuer.binding(principal.verifier), binding):
            return None
        return Caller(principal.name, principal.role)

    def _verified(self, client_id: str, secret: str) -> tuple[str, str] | None:
        try:
            principal = self._principals.verify(client_id, secret)
        except PrincipalError as error:
            raise _unreadable(error) from None
        return None if principal is None else (principal.name, principal.verifier)

    def _root_keys(self) -> tuple[str, ...]:
        rule = self._access.rule_table.find(ROOT_RULE)
        return () if rule is None or Right.MANAGE not in rule.rights else rule.keys

    def _is_root_key(self, text: str) -> bool:
        if len(text) > MAX_TOKEN_CHARACTERS:
            return False
        given = text.encode("utf-8", "surrogatepass")
        return any(hmac.compare_digest(key.encode("utf-8", "surrogatepass"), given) for key in self._root_keys())


def _unauthenticated(code: str, message: str) -> ArmError:
    return ArmError(401, code, message)


def _unreadable(error: PrincipalError) -> ArmError:
    return ArmError(500, "InternalError", str(error))
