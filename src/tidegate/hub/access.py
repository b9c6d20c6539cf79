"""Who may do what: shared access rules, the tokens signed with their keys, and what a token covers.

A token is `SharedAccessSignature sr=…&sig=…&se=…&skn=…`: the resource it is for, base64 of HMAC-SHA256 over the
resource exactly as it stands in the token, a line feed and the expiry (seconds since 1970), and the name of the rule
whose key signed it. https://learn.microsoft.com/azure/event-hubs/authenticate-shared-access-signature

A rule stands at the namespace or at one hub. A token covers what lies at or under its resource, segment by segment, so
`hub1` covers neither `hub10` nor `hub1` of a path that merely passes through it. Whatever fails, the refusal says the
same.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import quote_plus, unquote, unquote_plus

from tidegate.hub.addresses import Path, path_of
from tidegate.hub.errors import ArgumentError, NotFound, QuotaExceeded, Unauthorized

MAX_TOKEN_CHARACTERS = 4096
MAX_RULES = 12
ROOT_RULE = "RootManageSharedAccessKey"
EMULATOR_KEY = "SAS_KEY_VALUE"
_PREFIX = "sharedaccesssignature "
_REFUSAL = "the token's signature, key name or form is not valid"


class Right(Enum):
    """What a rule may allow. MANAGE includes the others."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


@dataclass(frozen=True, slots=True)
class AccessRule:
    """A shared access rule. Its two keys are of equal worth, so that one can be changed while the other is in use."""

    name: str
    rights: frozenset[Right]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)

    @classmethod
    def create(cls, name: str, rights: Iterable[Right]) -> AccessRule:
        """A rule with keys of its own."""
        return cls(name, frozenset(rights), _new_key(), _new_key())

    @property
    def keys(self) -> tuple[str, str]:
        """Both keys."""
        return self.primary_key, self.secondary_key

    def with_new_key(self, which: str) -> AccessRule:
        """The rule with a new primary or secondary key. Raises ArgumentError."""
        if which == "primary":
            return AccessRule(self.name, self.rights, _new_key(), self.secondary_key)
        if which == "secondary":
            return AccessRule(self.name, self.rights, self.primary_key, _new_key())
        raise ArgumentError(f"a rule has a primary and a secondary key, not a {which!r} one")


def _new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode("ascii")


def emulator_rule() -> AccessRule:
    """The rule that the official emulator has, with its published key."""
    return AccessRule(ROOT_RULE, frozenset(Right), EMULATOR_KEY, EMULATOR_KEY)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a verified token (or key) allows: the rights of a rule, at and under a path, until a time.

    It rests on the key that signed it, and ends when that key is changed or its rule deleted.
    """

    rule_name: str
    rule_level: str  # the lower-case hub the rule belongs to, "" for the namespace
    scope: Path
    expires_at_s: int | None
    key_digest: bytes = field(repr=False)


def sign(resource: str, rule_name: str, key: str, expires_at_s: int) -> str:
    """A token for the resource (a URL)."""
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
    """The shared access rules of a namespace and its hubs. All refusals raise Unauthorized and hold no secret.

    `is_hub` says whether there is an event hub of a name.
    """

    def __init__(self, rules: Iterable[AccessRule] = (), is_hub: Callable[[str], bool] = lambda name: False) -> None:
        self._is_hub = is_hub
        self._rules: dict[str, dict[str, AccessRule]] = {"": {rule.name.lower(): rule for rule in rules}}

    @property
    def root_rule(self) -> AccessRule:
        """The rule to hand out to whoever starts the hub: the emulator's if it is there, else the first that may
        manage.
        """
        rules = self._rules[""]
        manage = [rule for rule in rules.values() if Right.MANAGE in rule.rights]
        return rules.get(ROOT_RULE.lower()) or manage[0]

    # -- rules

    def rules(self, hub: str = "") -> list[AccessRule]:
        """The rules of the namespace, or of one hub."""
        return list(self._rules.get(hub.lower(), {}).values())

    def rule(self, name: str, hub: str = "") -> AccessRule:
        """One rule. Raises NotFound."""
        rule = self._rules.get(hub.lower(), {}).get(name.lower())
        if rule is None:
            raise NotFound(f"there is no access rule {name!r}")
        return rule

    def set_rule(self, rule: AccessRule, hub: str = "") -> None:
        """Add a rule or put another in its place; grants of keys that it no longer has end.

        Raises QuotaExceeded, ArgumentError.
        """
        if not rule.name or len(rule.name) > 256 or not rule.rights or not all(rule.keys):
            raise ArgumentError("an access rule needs a name of at most 256 characters, rights, and two keys")
        level = self._rules.get(hub.lower(), {})
        if rule.name.lower() not in level and len(level) >= MAX_RULES:
            raise QuotaExceeded(f"there can be at most {MAX_RULES} access rules at one level")
        self._set_level(hub, {**level, rule.name.lower(): rule})

    def delete_rule(self, name: str, hub: str = "") -> None:
        """Remove a rule. Raises NotFound, ArgumentError for the namespace's last rule that may manage."""
        rule = self.rule(name, hub)
        self._set_level(hub, {key: other for key, other in self._rules[hub.lower()].items() if other is not rule})

    def delete_hub(self, hub: str) -> None:
        """Remove all rules of a hub."""
        self._rules = {level: rules for level, rules in self._rules.items() if level != hub.lower()}

    def _set_level(self, hub: str, rules: dict[str, AccessRule]) -> None:
        """Tokens are checked meanwhile in other threads, so the tables are replaced and never changed."""
        if not hub and not any(Right.MANAGE in rule.rights for rule in rules.values()):
            raise ArgumentError("the last rule that may manage the namespace has to stay, and to stay so")
        self._rules = {**self._rules, hub.lower(): rules}

    def all_rules(self) -> dict[str, dict[str, AccessRule]]:
        """The rules of all levels, to be put back by restore_rules."""
        return self._rules

    def restore_rules(self, rules: dict[str, dict[str, AccessRule]]) -> None:
        """Undo what was done since all_rules."""
        self._rules = rules

    # -- tokens and keys

    def check_token(self, token: str, now_s: float) -> Grant:
        """Verify a shared access signature: form, signature, key name, expiry. Raises Unauthorized."""
        parsed = _parse_token(token)
        try:
            scope = self._scope(unquote_plus(parsed.resource))
        except ArgumentError:
            raise Unauthorized(_REFUSAL) from None
        levels = ([scope[0]] if scope else []) + [""]
        found: Grant | None = None
        for level, rule in self._candidates(levels, parsed.rule_names):
            for key in rule.keys:
                if hmac.compare_digest(_signature(key, parsed.resource, parsed.expiry), parsed.signature):
                    found = found or Grant(rule.name, level, scope, int(parsed.expiry), _digest(key))
        if found is None:
            raise Unauthorized(_REFUSAL)
        if int(parsed.expiry) <= now_s:
            raise Unauthorized("the token has expired")
        return found

    def _scope(self, resource: str) -> Path:
        """What a token's resource covers: what follows the host in it. Raises ArgumentError.

        The REST reference writes resources without a scheme too (`host` or `host/hub`); a host is then known by its dot
        or its port, and by there being no hub of that name, so that a bare `hub` or `my.hub` is not taken for a host
        and the token for one of the whole namespace.
        """
        if "://" not in resource:
            host = resource.partition("/")[0]
            if self._is_hub(host) or (host.lower() != "localhost" and not set(".:") & set(host)):
                raise ArgumentError("the resource of a token names no host")
            resource = f"sb://{resource}"
        return path_of(resource)

    def check_key(self, rule_name: str, key: str) -> Grant:
        """SASL PLAIN: the name of a rule and one of its keys. Raises Unauthorized."""
        found: Grant | None = None
        levels = [level for level, rules in self._rules.items() if rule_name.lower() in rules]
        for level, rule in self._candidates(levels or [""], (rule_name,)):
            for rule_key in rule.keys:
                if _same(rule_key, key):
                    found = found or Grant(rule.name, level, (level,) if level else (), None, _digest(rule_key))
        if found is None:
            raise Unauthorized("the key or its name is not valid")
        return found

    def _candidates(self, levels: Sequence[str], names: Sequence[str]) -> list[tuple[str, AccessRule]]:
        """The rules of those names; one that nobody knows the keys of if there is none, so that both take the same
        time.
        """
        found = [
            (level, self._rules[level][name.lower()])
            for level in levels
            for name in names
            if name.lower() in self._rules.get(level, {})
        ]
        return found or [("", _UNKNOWN_RULE)]

    # -- what a grant allows

    def authorize(self, grants: Sequence[Grant], right: Right, path: Path, now_s: float) -> Grant:
        """The grant that allows `right` on `path` and does so longest. Raises Unauthorized."""
        allowing = [
            grant
            for grant in grants
            if path[: len(grant.scope)] == grant.scope and self._has_right(grant, right) and _is_valid(grant, now_s)
        ]
        if not allowing:
            raise Unauthorized(f"{right.value} on {'/'.join(path) or 'the namespace'} needs a token that covers it")
        return max(allowing, key=_expiry)

    def authorize_any(self, grants: Sequence[Grant], hub: str, now_s: float) -> Grant:
        """A grant that may know of a hub: of any right, for the namespace, the hub, or reading it.

        Raises Unauthorized.
        """
        hub = hub.lower()
        for grant in grants:
            known = grant.scope in ((), (hub,), (hub, "$management")) or grant.scope[:2] == (hub, "consumergroups")
            if known and _is_valid(grant, now_s) and any(self._has_right(grant, right) for right in Right):
                return grant
        raise Unauthorized(f"properties of {hub} need a token that covers it")

    def _has_right(self, grant: Grant, right: Right) -> bool:
        rule = self._rules.get(grant.rule_level, {}).get(grant.rule_name.lower())
        if rule is None or grant.key_digest not in map(_digest, rule.keys):
            return False
        return right in rule.rights or Right.MANAGE in rule.rights


def _is_valid(grant: Grant, now_s: float) -> bool:
    return grant.expires_at_s is None or grant.expires_at_s > now_s


def _expiry(grant: Grant) -> float:
    return float("inf") if grant.expires_at_s is None else grant.expires_at_s


_UNKNOWN_RULE = AccessRule.create("", ())
