"""Wakes readers when a partition has grown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidegate.hub.namespace import Partition
from tidegate.server.context.completions import Completions


class Arrivals:
    """Wakes the links of a partition when it has grown, with one subscription per partition for all its readers."""

    def __init__(self, completions: Completions) -> None:
        self._completions = completions
        self._waiting: dict[Partition, dict[Callable[[], None], None]] = {}
        self._unsubscribe: dict[Partition, Callable[[], None]] = {}

    def watch(self, partition: Partition, action: Callable[[], None]) -> None:
        """Call `action` on the event loop after every growth, until unwatch()."""
        actions = self._waiting.setdefault(partition, {})
        actions[action] = None
        if partition not in self._unsubscribe:
            self._unsubscribe[partition] = partition.log.on_grow(
                partial(self._completions.report, self._grown, partition)
            )

    def unwatch(self, partition: Partition, action: Callable[[], None]) -> None:
        """Undo watch()."""
        actions = self._waiting.get(partition, {})
        actions.pop(action, None)
        if not actions and partition in self._unsubscribe:
            self._unsubscribe.pop(partition)()
            del self._waiting[partition]

    def _grown(self, partition: Partition) -> None:
        for action in list(self._waiting.get(partition, ())):
            self._completions.afterwards(action)
