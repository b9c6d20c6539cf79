"""Who sends a request: the service principal of its token, or whoever holds the namespace's root key."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tidegate.arm.access.principals import PrincipalError, Principals
from tidegate.arm.access.tokens import MAX_TOKEN_CHARACTERS, TokenIssuer, TokenRejected
from tidegate.arm.model.errors import ArmError
from tidegate.arm.model.roles import Role
from tidegate.hub.access import Access
from tidegate.hub.access_rules import ROOT_RULE, Right

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


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, and the caller's role."""

    name: str
    role: Role


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
            return Caller(ROOT_RULE, Role.OWNER)
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
            return Caller(ROOT_RULE, Role.OWNER) if known else None
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
