"""Where a namespace lives: its definitions and its partitions, in a data directory or in a cluster of Kafka."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tidegate.durable_files import DirectoryLock, FileDamaged
from tidegate.hub.cluster_groups import ClusterGroups
from tidegate.hub.event_hub import EventHub, LogSettings, open_partitions
from tidegate.hub.group_offsets import GroupOffsets
from tidegate.hub.partition import Partition
from tidegate.hub.schema_registry import LoggedSchemas, SchemaLog
from tidegate.hub.snapshot import FILE_NAME, HubDefinition, NamespaceState, read_state, write_state
from tidegate.hub.throughput import Throughput

_logger = logging.getLogger(__name__)
HUBS_FOLDER = "hubs"
GROUPS_FOLDER = "groups"
"""Where the data directory has the positions of Kafka's groups."""
SCHEMAS_FOLDER = "schemas"
"""Where the data directory has the schema registry."""


class Backend(Protocol):
    """What `Registry` needs of the place where a namespace lives. Safe to call from any thread."""

    def read_state(self) -> NamespaceState | None:
        """Return what was kept, None if nothing was. Raises FileDamaged, ConfigError, LogError, OSError."""

    def write_state(self, state: NamespaceState) -> None:
        """Keep the state, durably. Raises LogError, OSError; nothing has changed then."""

    def open_partitions(self, definition: HubDefinition, *, is_new: bool, first: int = 0) -> tuple[Partition, ...]:
        """Open the partitions of a hub from one on, or create them. Raises FileDamaged, LogError, OSError."""

    def discard(self, directory: str) -> None:
        """Undo the creation of a hub."""

    def remove(self, directory: str) -> bool:
        """Remove what a deleted hub had stored, and return False if that must be tried again later."""

    def apply_retention(self, hub: EventHub, now_ms: int) -> int:
        """Delete what a hub's retention no longer keeps, and return how many events that were. Raises LogError."""

    def open_groups(self) -> GroupOffsets | ClusterGroups:
        """Open what groups of Kafka's clients have committed. Raises FileDamaged, LogError, OSError."""

    def open_schemas(self) -> SchemaLog:
        """Open the entries of the schema registry. Raises FileDamaged, LogError, OSError."""

    def share_throughput(self, throughput: Throughput) -> None:
        """Share the units out among all that serve the namespace, from now on."""

    def submit(self, work: Callable[[], None]) -> None:
        """Do something soon, in a thread that may wait."""

    def close(self) -> None:
        """Release the place, once everything in it is closed."""


class DataDirectory:
    """A directory of this machine that one process serves."""

    def __init__(self, path: Path, logs: LogSettings) -> None:
        """Lock the directory. Raises DirectoryLocked, OSError."""
        self._path = path
        self._logs = logs
        self._lock = DirectoryLock(path)
        self._had_hubs = False

    def read_state(self) -> NamespaceState | None:
        state = read_state(self._path)
        self._had_hubs = state is not None and bool(state.event_hubs)
        hubs = self._path / HUBS_FOLDER
        if state is None and hubs.is_dir() and any(hubs.iterdir()):
            raise FileDamaged(
                self._path / FILE_NAME,
                f"it is missing, though there are event hubs in {hubs}",
                f"restore it from a backup, or move {hubs} away to begin anew",
            )
        return state

    def write_state(self, state: NamespaceState) -> None:
        write_state(self._path, state)

    def open_partitions(self, definition: HubDefinition, *, is_new: bool, first: int = 0) -> tuple[Partition, ...]:
        folder = self._folder(definition.directory)
        return open_partitions(definition.config, folder, self._logs, is_new=is_new, first=first)

    def discard(self, directory: str) -> None:
        shutil.rmtree(self._folder(directory), ignore_errors=True)

    def remove(self, directory: str) -> bool:
        folder = self._folder(directory)
        try:
            if folder.exists():
                shutil.rmtree(folder)
        except OSError as error:
            _logger.warning("the folder %s of a deleted hub cannot be removed yet: %s", folder, error)
            return False
        return True

    def apply_retention(self, hub: EventHub, now_ms: int) -> int:
        return hub.apply_retention(now_ms)

    def open_groups(self) -> GroupOffsets:
        self._check_folder(GROUPS_FOLDER, "so that groups begin where their clients' settings say")
        logs = self._logs
        return GroupOffsets(self._path / GROUPS_FOLDER, logs.clock, logs.committer, durable=logs.durable)

    def open_schemas(self) -> SchemaLog:
        self._check_folder(SCHEMAS_FOLDER, "to begin with an empty registry, which gives its ids anew")
        logs = self._logs
        return LoggedSchemas(self._path / SCHEMAS_FOLDER, logs.clock, logs.committer, durable=logs.durable)

    def share_throughput(self, throughput: Throughput) -> None:
        """Do nothing: one process serves a data directory, and gives out all units."""

    def submit(self, work: Callable[[], None]) -> None:
        self._logs.committer.submit(work)

    def close(self) -> None:
        self._lock.release()

    def _check_folder(self, name: str, purpose: str) -> None:
        """Refuse to begin a log anew that was there before any event hub was kept. Raises FileDamaged."""
        folder = self._path / name
        if self._had_hubs and not folder.exists():
            raise FileDamaged(
                folder, "the folder is missing", f"restore it from a backup, or create an empty folder {purpose}"
            )

    def _folder(self, directory: str) -> Path:
        return self._path / HUBS_FOLDER / directory
