"""Validate tokens and keys, and decide what they allow.

A token is `SharedAccessSignature sr=…&sig=…&se=…&skn=…`: the resource it is for, base64 of HMAC-SHA256 over the
resource exactly as the token spells it, a line feed and the expiry (seconds since 1970), and the name of the rule
whose key signed it. https://learn.microsoft.com/azure/event-hubs/authenticate-shared-access-signature

A rule belongs to the namespace or to one hub. A token covers its resource and everything under it, segment by segment,
so `hub1` does not cover `hub10`. All invalid tokens are refused with the same words.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote_plus, unquote, unquote_plus

from tidegate.hub.access_rules import NAMESPACE_LEVEL, AccessRule, Right, RuleTable
from tidegate.hub.addresses import Path, path_of
from tidegate.hub.errors import ArgumentError, Unauthorized

MAX_TOKEN_CHARACTERS = 4096
_PREFIX = "sharedaccesssignature "
_RESOURCE = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?P<host>(?:[\w-]+\.)*\w[\w-]*|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>/(?!/).*)?",
    re.DOTALL | re.ASCII,
)
"""A URL, or one without its scheme; a host without user information, and a port that is a number."""
_SCHEMES = frozenset({"sb", "http", "https", "amqp", "amqps", "ws", "wss"})
"""What is no host in `http:80`, where the slashes of a URL are missing."""
_REFUSAL = "the token's signature, key name or form is not valid"


def _time(since_1970_s: float) -> str:
    return datetime.fromtimestamp(since_1970_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a verified token (or key) allows: the rights of a rule, at and under a path, until a time.

    It depends on the key that signed it, and ends when that key is changed or its rule deleted.
    """

    rule_name: str
    rule_level: str  # the lower-case hub the rule belongs to, "" for the namespace
    scope: Path
    expires_at_s: int | None
    key_digest: bytes = field(repr=False)


def sign(resource: str, rule_name: str, key: str, expires_at_s: int) -> str:
    """Return a token for the resource (a URL)."""
    quoted = quote_plus(resource)
    signature = quote_plus(_signature(key, quoted, str(expires_at_s)))
    return f"SharedAccessSignature sr={quoted}&sig={signature}&se={expires_at_s}&skn={quote_plus(rule_name)}"


def _signature(key: str, resource: str, expiry: str) -> bytes:
    message = f"{resource}\n{expiry}".encode("utf-8", "surrogatepass")
    return base64.b64encode(hmac.digest(key.encode("utf-8", "surrogatepass"), message, "sha256"))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class _Token:
    resource: str
    signature: bytes = field(repr=False)
    expiry: str
    rule_names: tuple[str, ...]


def _parse_token(token: str) -> _Token:
    if len(token) > MAX_TOKEN_CHARACTERS or token[: len(_PREFIX)].lower() != _PREFIX:
        raise Unauthorized(_REFUSAL)
    fields: dict[str, str] = {}
    for part in token[len(_PREFIX) :].strip().split("&"):
        name, _, value = part.partition("=")
        if name in fields or not value:
            raise Unauthorized(_REFUSAL)
        fields[name] = value
    if set(fields) != {"sr", "sig", "se", "skn"}:
        raise Unauthorized(_REFUSAL)
    expiry = fields["se"]
    if not (expiry.isascii() and expiry.isdecimal() and len(expiry) <= 15):
        raise Unauthorized(_REFUSAL)
    name = unquote_plus(fields["skn"])
    signature = unquote(fields["sig"]).encode("utf-8", "surrogatepass")
    # Microsoft's Python client encodes the name twice
    return _Token(fields["sr"], signature, expiry, tuple(dict.fromkeys((name, unquote_plus(name)))))


class Access:
    """Checks tokens and keys against `rule_table`. All refusals raise Unauthorized and hold no secret.

    `rule_table` may be replaced while tokens are checked. `is_hub` tells whether there is an event hub of a name.
    """

    def __init__(self, rule_table: RuleTable, is_hub: Callable[[str], bool] = lambda name: False) -> None:
        self.rule_table = rule_table
        self._is_hub = is_hub

    # -- tokens and keys

    def check_token(self, token: str, now_s: float) -> Grant:
        """Verify a shared access signature: form, signature, key name, expiry. Raises Unauthorized."""
        parsed = _parse_token(token)
        try:
            scope = self._scope(unquote_plus(parsed.resource))
        except ArgumentError:
            raise Unauthorized(_REFUSAL) from None
        levels = [*scope[:1], NAMESPACE_LEVEL]
        found: Grant | None = None
        for level, rule in self._candidates(levels, parsed.rule_names):
            for key in rule.keys:
                if hmac.compare_digest(_signature(key, parsed.resource, parsed.expiry), parsed.signature):
                    found = found or Grant(rule.name, level, scope, int(parsed.expiry), _digest(key))
        if found is None:
            raise Unauthorized(_REFUSAL)
        if int(parsed.expiry) <= now_s:
            raise Unauthorized(
                f"the token has expired: it was valid until {_time(int(parsed.expiry))}, and the hub's clock has"
                f" {_time(now_s)}"
            )
        return found

    def _scope(self, resource: str) -> Path:
        """Return what a token's resource covers: the path after the host. Raises ArgumentError.

        The REST reference also writes resources without a scheme (`host` or `host/hub`). The first segment is then a
        host if it has a dot or a port and no hub has that name: a token for a hub `my.hub` must not cover the whole
        namespace.
        """
        found = _RESOURCE.fullmatch(resource)
        if found is None or int(found["port"] or 1) not in range(1, 65536):
            raise ArgumentError("the resource of a token names no host")
        host = found["host"].lower()
        if found["scheme"] is None:
            is_host = host == "localhost" or "." in host or found["port"] is not None
            if self._is_hub(host) or host in _SCHEMES or not is_host:
                raise ArgumentError("the resource of a token names no host")
        return path_of(f"sb://{host}{found['path'] or ''}")

    def check_key(self, rule_name: str, key: str) -> Grant:
        """Verify a rule's name and one of its keys, as SASL PLAIN sends them. Raises Unauthorized."""
        found: Grant | None = None
        for level, rule in self._candidates(self.rule_table.levels_with(rule_name), (rule_name,)):
            for rule_key in rule.keys:
                if _same(rule_key, key):
                    found = found or Grant(rule.name, level, (level,) if level else (), None, _digest(rule_key))
        if found is None:
            raise Unauthorized("the key or its name is not valid")
        return found

    def check_connection_string(self, text: str, now_s: float) -> Grant:
        """Verify a connection string with a key or a shared access signature. Raises Unauthorized."""
        fields = {}
        for part in text.split(";"):
            field_name, _, value = part.partition("=")
            fields[field_name.strip().lower()] = value.strip()
        if "sharedaccesssignature" in fields:
            return self.check_token(fields["sharedaccesssignature"], now_s)
        name, key = fields.get("sharedaccesskeyname"), fields.get("sharedaccesskey")
        if not name or not key:
            raise Unauthorized("the password must be a connection string with SharedAccessKeyName and SharedAccessKey")
        return self.check_key(name, key)

    def _candidates(self, levels: Sequence[str], names: Sequence[str]) -> list[tuple[str, AccessRule]]:
        """Return the rules of those names, or one with unknown keys if none exist, so that both take the same time."""
        table = self.rule_table
        found = [(level, rule) for level in levels for name in names if (rule := table.find(name, level)) is not None]
        return found or [(NAMESPACE_LEVEL, _UNKNOWN_RULE)]

    # -- what a grant allows

    def authorize(self, grants: Sequence[Grant], right: Right, path: Path, now_s: float) -> Grant:
        """Return the grant that allows `right` on `path` for longest. Raises Unauthorized."""
        allowing = [
            grant
            for grant in grants
            if path[: len(grant.scope)] == grant.scope and self._has_right(grant, right) and _is_valid(grant, now_s)
        ]
        if not allowing:
            raise Unauthorized(f"{right.value} on {'/'.join(path) or 'the namespace'} needs a token that covers it")
        return max(allowing, key=_expiry)

    def authorize_any(self, grants: Sequence[Grant], hub: str, now_s: float) -> Grant:
        """Return a grant of any right on the namespace, the hub, or a consumer group of it. Raises Unauthorized."""
        hub = hub.lower()
        for grant in grants:
            known = grant.scope in ((), (hub,), (hub, "$management")) or grant.scope[:2] == (hub, "consumergroups")
            if known and _is_valid(grant, now_s) and any(self._has_right(grant, right) for right in Right):
                return grant
        raise Unauthorized(f"properties of {hub} need a token that covers it")

    def may_listen(self, grants: Sequence[Grant], hub: str, partition: str, now_s: float) -> bool:
        """Return whether a grant lets the events of a partition be read, in whatever consumer group."""
        hub = hub.lower()
        for grant in grants:
            group, rest = grant.scope[:2], grant.scope[3:]
            covers = grant.scope in ((), (hub,)) or (
                group == (hub, "consumergroups") and rest in ((), ("partitions",), ("partitions", partition))
            )
            if covers and _is_valid(grant, now_s) and self._has_right(grant, Right.LISTEN):
                return True
        return False

    def key_of(self, grant: Grant) -> str | None:
        """Return the key that a grant depends on, None once it is no longer valid."""
        rule = self.rule_table.find(grant.rule_name, grant.rule_level)
        return next((key for key in rule.keys if _digest(key) == grant.key_digest), None) if rule else None

    def _has_right(self, grant: Grant, right: Right) -> bool:
        rule = self.rule_table.find(grant.rule_name, grant.rule_level)
        if rule is None or grant.key_digest not in map(_digest, rule.keys):
            return False
        return right in rule.rights or Right.MANAGE in rule.rights


def _is_valid(grant: Grant, now_s: float) -> bool:
    return grant.expires_at_s is None or grant.expires_at_s > now_s


def _expiry(grant: Grant) -> float:
    return float("inf") if grant.expires_at_s is None else grant.expires_at_s


_UNKNOWN_RULE = AccessRule.create("", ())


def claimed_rule(token: object) -> str | None:
    """The rule whose key a token claims to be signed with, for the log; nothing else of a token is for people."""
    match = re.search(r"(?:^|[ &])skn=([^&]{1,256})", token) if isinstance(token, str) else None
    return unquote_plus(match[1]) if match else None
