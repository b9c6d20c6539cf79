"""Shared access authorization rules: named rights with two keys, of the namespace or of one event hub.

https://learn.microsoft.com/azure/event-hubs/authorize-access-shared-access-signature
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from tidegate.hub.errors import ArgumentError, NotFound, QuotaExceeded

MAX_RULES = 12
ROOT_RULE = "RootManageSharedAccessKey"
EMULATOR_KEY = "SAS_KEY_VALUE"
NAMESPACE_LEVEL = ""
"""The level of the namespace's own rules. All other levels are event hubs' names in lower case."""


class Right(Enum):
    """What a rule may allow. MANAGE includes the others."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


@dataclass(frozen=True, slots=True)
class AccessRule:
    """A shared access rule. Either key is valid, so that one can be changed while the other is in use."""

    name: str
    rights: frozenset[Right]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)

    @classmethod
    def create(cls, name: str, rights: Iterable[Right]) -> AccessRule:
        """Return a rule with new keys."""
        return cls(name, frozenset(rights), _new_key(), _new_key())

    @property
    def keys(self) -> tuple[str, str]:
        """Both keys."""
        return self.primary_key, self.secondary_key

    def with_new_key(self, which: str) -> AccessRule:
        """Return the rule with a new "primary" or "secondary" key. Raises ArgumentError."""
        if which == "primary":
            return AccessRule(self.name, self.rights, _new_key(), self.secondary_key)
        if which == "secondary":
            return AccessRule(self.name, self.rights, self.primary_key, _new_key())
        raise ArgumentError(f"a rule has a primary and a secondary key, not a {which!r} one")


def _new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode("ascii")


def emulator_rule() -> AccessRule:
    """Return the rule that the official emulator has, with its published key."""
    return AccessRule(ROOT_RULE, frozenset(Right), EMULATOR_KEY, EMULATOR_KEY)


_Level = Mapping[str, AccessRule]


def is_root_rule(name: str, level: str = NAMESPACE_LEVEL) -> bool:
    """Return whether this is the name of the namespace's root rule, whose keys alone are an owner's credentials."""
    return level == NAMESPACE_LEVEL and name.lower() == ROOT_RULE.lower()


class RuleTable:
    """The rules of a namespace and its hubs. Immutable: a change is another table, so that checks need no lock."""

    def __init__(self, levels: Mapping[str, _Level] | None = None) -> None:
        self._levels: Mapping[str, _Level] = MappingProxyType(dict(levels or {}))

    @classmethod
    def of_namespace(cls, rules: Iterable[AccessRule]) -> RuleTable:
        """Return a table of the namespace's own rules."""
        return cls({NAMESPACE_LEVEL: {rule.name.lower(): rule for rule in rules}})

    @property
    def root_rule(self) -> AccessRule:
        """The emulator's rule if it exists, else the first that may manage the namespace."""
        rules = self._levels[NAMESPACE_LEVEL]
        manage = [rule for rule in rules.values() if Right.MANAGE in rule.rights]
        return rules.get(ROOT_RULE.lower()) or manage[0]

    def rules(self, hub: str = NAMESPACE_LEVEL) -> list[AccessRule]:
        """Return the rules of the namespace, or of one hub."""
        return list(self._levels.get(hub.lower(), {}).values())

    def find(self, name: str, hub: str = NAMESPACE_LEVEL) -> AccessRule | None:
        """Return one rule, None if there is no such rule."""
        return self._levels.get(hub.lower(), {}).get(name.lower())

    def rule(self, name: str, hub: str = NAMESPACE_LEVEL) -> AccessRule:
        """Return one rule. Raises NotFound."""
        rule = self.find(name, hub)
        if rule is None:
            raise NotFound(f"there is no access rule {name!r}")
        return rule

    def levels_with(self, name: str) -> list[str]:
        """Return the levels that have a rule of this name."""
        return [level for level, rules in self._levels.items() if name.lower() in rules]

    def with_rule(self, rule: AccessRule, hub: str = NAMESPACE_LEVEL) -> RuleTable:
        """Return the table with the rule added, replacing any rule of that name.

        Raises QuotaExceeded, ArgumentError.
        """
        if not rule.name or len(rule.name) > 256 or not rule.rights or not all(rule.keys):
            raise ArgumentError("an access rule needs a name of at most 256 characters, rights, and two keys")
        level = self._levels.get(hub.lower(), {})
        if rule.name.lower() not in level and len(level) >= MAX_RULES:
            raise QuotaExceeded(f"there can be at most {MAX_RULES} access rules at one level")
        return self._with_level(hub, {**level, rule.name.lower(): rule})

    def without_rule(self, name: str, hub: str = NAMESPACE_LEVEL) -> RuleTable:
        """Return the table without a rule.

        Raises NotFound, ArgumentError for the namespace's last rule that may manage.
        """
        self.rule(name, hub)
        level = self._levels[hub.lower()]
        return self._with_level(hub, {key: rule for key, rule in level.items() if key != name.lower()})

    def without_hub(self, hub: str) -> RuleTable:
        """Return the table without any rule of a hub."""
        return RuleTable({level: rules for level, rules in self._levels.items() if level != hub.lower()})

    def _with_level(self, hub: str, rules: _Level) -> RuleTable:
        if hub == NAMESPACE_LEVEL and not any(Right.MANAGE in rule.rights for rule in rules.values()):
            raise ArgumentError("the namespace must keep at least one rule with the right to manage it")
        return RuleTable({**self._levels, hub.lower(): rules})
