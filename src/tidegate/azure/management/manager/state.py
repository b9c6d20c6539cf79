"""What the management API keeps beside the hub and the jobs: resource groups, tags, locations and deployments.

One checked file in the data directory, replaced with each change. What it does not name has defaults, so that a data
directory without it is served as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tidegate.azure.management.access.principals import FOLDER
from tidegate.azure.management.access.requests import PrincipalRole
from tidegate.durable_files import FileDamaged, make_folders, read_checked, write_checked

FILE_NAME = "resources.json"
DEFAULT_LOCATION = "local"
MOST_DEPLOYMENTS = 100
"""Kept for each resource group; the oldest are dropped, as they are after 800 in Azure."""
_ADVICE = "restore it from a backup, or move it away: resource groups, tags and past deployments are forgotten then"


class GroupRecord(BaseModel):
    """A resource group that was created explicitly."""

    model_config = ConfigDict(frozen=True)

    name: str
    location: str
    tags: dict[str, str] = {}
    managed_by: str | None = None


class ResourceRecord(BaseModel):
    """What is kept of a resource that is served elsewhere.

    Attributes:
        group: The explicit resource group that it was created in, in lower case; empty for all others.
        more: Settings that are returned as they were given.
    """

    model_config = ConfigDict(frozen=True)

    group: str = ""
    location: str = DEFAULT_LOCATION
    tags: dict[str, str] = {}
    created_at: datetime | None = None
    more: dict[str, Any] = {}


class DeploymentRecord(BaseModel):
    """A deployment and what came of it. Values of secure parameters are not in it.

    `shown_to` is the least role that sees its parameters, its outputs and why it failed, as they may hold keys.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    group: str
    resource: dict[str, Any]
    operations: tuple[dict[str, Any], ...] = ()
    shown_to: PrincipalRole = PrincipalRole.READER


class ArmState(BaseModel):
    """The whole file. All keys are in lower case."""

    model_config = ConfigDict(frozen=True)

    created_at: datetime
    groups: dict[str, GroupRecord] = {}
    resources: dict[str, ResourceRecord] = {}
    deployments: dict[str, DeploymentRecord] = {}


class StateFile:
    """Holds the state; a change is durable when it returns. Safe to call from any thread."""

    def __init__(self, data_dir: Path) -> None:
        """Raises FileDamaged, OSError."""
        self._path = data_dir / FOLDER / FILE_NAME
        self._lock = threading.RLock()
        self._state = self._read()

    @property
    def current(self) -> ArmState:
        """The state, which never changes in place."""
        return self._state

    def change(self, next_state: Callable[[ArmState], ArmState]) -> ArmState:
        """Replace the state by what a function makes of it. Raises OSError, and then nothing has changed."""
        with self._lock:
            state = next_state(self._state)
            if state != self._state:
                make_folders(self._path.parent)
                write_checked(self._path, state.model_dump(mode="json"), indented=True, mode=0o600)
                self._state = state
            return state

    def _read(self) -> ArmState:
        content = read_checked(self._path, advice=_ADVICE)
        if content is None:
            return ArmState(created_at=datetime.now(UTC).replace(microsecond=0))
        try:
            return ArmState.model_validate(content)
        except ValidationError:
            raise FileDamaged(self._path, "it is not a state of the management API", _ADVICE) from None
