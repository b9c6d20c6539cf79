"""What a namespace must remember of itself, in one file of its data directory.

The file is written whole, synced, and put in the place of the former by one rename, so that a crash leaves the one or
the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidegate.durable_files import replace_file
from tidegate.hub.access import AccessRule, Right
from tidegate.hub.config import ConfigError, EventHubConfig, Limits

FILE_NAME = "namespace.json"


class RuleState(BaseModel):
    """An access rule with its keys; the file is for its owner's eyes only."""

    model_config = ConfigDict(extra="forbid")

    name: str
    rights: tuple[Right, ...]
    primary_key: str = Field(repr=False)
    secondary_key: str = Field(repr=False)

    @classmethod
    def of(cls, rule: AccessRule) -> RuleState:
        """To be kept."""
        rights = tuple(right for right in Right if right in rule.rights)
        return cls(name=rule.name, rights=rights, primary_key=rule.primary_key, secondary_key=rule.secondary_key)

    def rule(self) -> AccessRule:
        """As it was."""
        return AccessRule(self.name, frozenset(self.rights), self.primary_key, self.secondary_key)


class EventHubState(BaseModel):
    """An event hub."""

    model_config = ConfigDict(extra="forbid")

    config: EventHubConfig
    configured: EventHubConfig | None = None
    """What the configuration said last, so that what it says again does not undo a change made since."""
    created_at_ms: int
    directory: str
    rules: tuple[RuleState, ...] = ()
    revoked_publishers: tuple[str, ...] = ()


class LimitsState(BaseModel):
    """The limits there are, and those that were configured last."""

    model_config = ConfigDict(extra="forbid")

    now: Limits
    configured: Limits


class NamespaceState(BaseModel):
    """All of it."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    name: str
    limits: LimitsState | None = None
    rules: tuple[RuleState, ...]
    event_hubs: tuple[EventHubState, ...] = ()
    deleted_directories: tuple[str, ...] = ()
    """Of deleted hubs, whose events were perhaps not all removed before the end."""


def read_state(directory: Path) -> NamespaceState | None:
    """What was kept in the directory, None if nothing was. Raises ConfigError, OSError."""
    path = directory / FILE_NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return NamespaceState.model_validate_json(text)
    except ValidationError as error:
        places = ", ".join(".".join(map(str, item["loc"])) or item["msg"] for item in error.errors(include_url=False))
        raise ConfigError(f"{path} cannot be used as it is (look at: {places}); restore it from a backup") from None


def write_state(directory: Path, state: NamespaceState) -> None:
    """Keep it, durably. Raises OSError."""
    replace_file(directory / FILE_NAME, state.model_dump_json(indent=2).encode("utf-8"), mode=0o600)
