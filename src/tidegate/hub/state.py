"""The file in which a namespace keeps what must survive a restart: `namespace.json` in its data directory."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidegate.durable_files import read_checked, write_checked
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.hub.config import ConfigError, EventHubConfig, Limits

FILE_NAME = "namespace.json"
_ADVICE = "restore it from a backup"


class RuleState(BaseModel):
    """An access rule with its keys; only the owner of the file may read it."""

    model_config = ConfigDict(extra="forbid")

    name: str
    rights: tuple[Right, ...]
    primary_key: str = Field(repr=False)
    secondary_key: str = Field(repr=False)

    @classmethod
    def of(cls, rule: AccessRule) -> RuleState:
        """Return the rule in the form in which it is kept."""
        rights = tuple(right for right in Right if right in rule.rights)
        return cls(name=rule.name, rights=rights, primary_key=rule.primary_key, secondary_key=rule.secondary_key)

    def rule(self) -> AccessRule:
        """Return the rule that was kept."""
        return AccessRule(self.name, frozenset(self.rights), self.primary_key, self.secondary_key)


class EventHubState(BaseModel):
    """An event hub.

    `configured` is what the configuration said last, so that repeating it does not undo a change made since.
    """

    model_config = ConfigDict(extra="forbid")

    config: EventHubConfig
    configured: EventHubConfig | None = None
    created_at_ms: int
    directory: str
    rules: tuple[RuleState, ...] = ()
    revoked_publishers: tuple[str, ...] = ()


class LimitsState(BaseModel):
    """The current limits, and those that were configured last."""

    model_config = ConfigDict(extra="forbid")

    now: Limits
    configured: Limits


class NamespaceState(BaseModel):
    """Everything that is kept. `deleted_directories` may still hold events of deleted hubs."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    name: str
    limits: LimitsState | None = None
    rules: tuple[RuleState, ...]
    event_hubs: tuple[EventHubState, ...] = ()
    deleted_directories: tuple[str, ...] = ()


def read_state(directory: Path) -> NamespaceState | None:
    """Return what was kept in the directory, None if nothing was.

    Raises:
        FileDamaged: The file is not as it was written.
        ConfigError: The file holds something else than a namespace.
        OSError: The file cannot be read.
    """
    path = directory / FILE_NAME
    document = read_checked(path, advice=_ADVICE)
    if document is None:
        return None
    try:
        return NamespaceState.model_validate(document)
    except ValidationError as error:
        places = ", ".join(".".join(map(str, item["loc"])) or item["msg"] for item in error.errors(include_url=False))
        raise ConfigError(f"{path} cannot be used (look at: {places}); {_ADVICE}") from None


def write_state(directory: Path, state: NamespaceState) -> None:
    """Keep the state, durably. Raises OSError."""
    write_checked(directory / FILE_NAME, state.model_dump(mode="json"), indented=True, mode=0o600)
