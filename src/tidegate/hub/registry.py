"""The hubs that a namespace serves, and the one way to change them.

`snapshot` is an immutable value. A change computes the next snapshot from it and commits that: what must be opened is
opened, the snapshot is written durably, and only then does it take effect. If any of this fails, nothing has happened.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from tidegate.hub.access import Access
from tidegate.hub.backend import Backend
from tidegate.hub.config import NamespaceLimits
from tidegate.hub.event_hub import Admission, EventHub
from tidegate.hub.snapshot import HubDefinition, NamespaceSnapshot
from tidegate.hub.throughput import Throughput
from tidegate.log import LogError

_logger = logging.getLogger(__name__)


class Registry:
    """The served hubs of one namespace. Safe to call from any thread.

    `event_hubs` has the hubs by their names in lower case. It is replaced and never changed, so that other threads can
    iterate over it.
    """

    def __init__(
        self,
        backend: Backend,
        snapshot: NamespaceSnapshot,
        served_before: frozenset[str],
        monotonic_s: Callable[[], float],
    ) -> None:
        """Take over the place where the namespace lives; `commit` begins to serve.

        `served_before` has the folders of the hubs that were created in an earlier run, which must be there.
        """
        self._backend = backend
        self._lock = threading.RLock()
        self._snapshot = snapshot
        self._served_before = served_before
        self._closed = False
        self.event_hubs: Mapping[str, EventHub] = {}
        self.access = Access(snapshot.rules, lambda name: name.lower() in self.event_hubs)
        limits = snapshot.limits
        self.throughput = Throughput(
            limits.throughput_units,
            limits.auto_inflate_to,
            monotonic_s,
            lambda: backend.submit(self._keep_inflated_units),
        )
        backend.share_throughput(self.throughput)
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change, in the thread that made it."""

    @property
    def snapshot(self) -> NamespaceSnapshot:
        """What is served now, with the units that auto-inflate has added."""
        snapshot, throughput = self._snapshot, self.throughput
        limits = NamespaceLimits(
            tier=snapshot.limits.tier,
            throughput_units=throughput.units,
            auto_inflate_to=throughput.auto_inflate_to,
        )
        return snapshot if limits == snapshot.limits else replace(snapshot, limits=limits)

    @contextmanager
    def changing(self) -> Iterator[NamespaceSnapshot]:
        """Give the snapshot that a change begins from, and keep other changes out until the block ends."""
        with self._lock:
            yield self.snapshot

    def commit(
        self, snapshot: NamespaceSnapshot, *, limits: NamespaceLimits | None = None, is_kept: bool = False
    ) -> None:
        """Write a snapshot durably and serve it.

        Args:
            snapshot: What to serve; its limits are ignored.
            limits: New limits. None keeps the current ones, with the units that auto-inflate has added meanwhile.
            is_kept: The snapshot is the one on the disk, and need not be written.

        Raises:
            LogError, FileDamaged, OSError: Nothing has changed.
        """
        with self._lock, ExitStack() as undo:
            snapshot = replace(snapshot, limits=limits or self.snapshot.limits)
            hubs = {key: self._serve(definition, undo) for key, definition in snapshot.hubs.items()}
            if not is_kept:
                self._backend.write_state(snapshot.to_state())
            undo.pop_all()
            former, self.event_hubs = self.event_hubs, hubs
            if limits is not None:
                self.throughput.set(limits.throughput_units, limits.auto_inflate_to)
            self._snapshot = snapshot
            self.access.rule_table = snapshot.rules
            admission = self._admission(snapshot)
            for key, hub in hubs.items():
                hub.definition, hub.admission = snapshot.hubs[key], admission
            for hub in former.values():
                if hubs.get(hub.definition.key) is not hub:
                    hub.is_deleted = True
                    hub.close()
        self.on_change()
        self.remove_deleted_directories()

    def _serve(self, definition: HubDefinition, undo: ExitStack) -> EventHub:
        """Return the hub that is being served, or open it."""
        served = self.event_hubs.get(definition.key)
        if served is not None and served.definition.directory == definition.directory:
            self._add_partitions(served, definition, undo)
            return served
        is_new = definition.directory not in self._served_before
        if is_new:
            undo.callback(self._backend.discard, definition.directory)
        partitions = self._backend.open_partitions(definition, is_new=is_new)
        hub = EventHub(definition, partitions, self._admission(self._snapshot))
        undo.callback(hub.close)
        return hub

    def _add_partitions(self, hub: EventHub, definition: HubDefinition, undo: ExitStack) -> None:
        """Open the partitions that a hub is to have in addition."""
        former = hub.partitions
        if definition.config.partition_count <= len(former):
            return
        added = self._backend.open_partitions(definition, is_new=True, first=len(former))
        for partition in added:
            undo.callback(partition.close)
        undo.callback(hub.set_partitions, former)
        hub.set_partitions((*former, *added))

    def _admission(self, snapshot: NamespaceSnapshot) -> Admission:
        throughput = None if snapshot.limits.throughput_units is None else self.throughput
        return Admission(snapshot.limits.max_message_bytes, throughput)

    def _keep_inflated_units(self) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                self.commit(self.snapshot)
            except (LogError, OSError) as error:
                _logger.warning("the throughput units that auto-inflate added cannot be kept: %s", error)

    def remove_deleted_directories(self) -> None:
        """Remove the folders of deleted hubs; one that is still in use is left for the next call."""
        for name in self._snapshot.deleted_directories:
            if self._backend.remove(name):
                with self._lock:
                    remaining = self._snapshot.deleted_directories - {name}
                    self._snapshot = replace(self._snapshot, deleted_directories=remaining)

    def follow(self) -> None:
        """Serve what another gateway of the namespace has committed.

        It is read while no change is under way here, so that a change is never computed from what was before.

        Raises:
            ConfigError, LogError, OSError: Nothing has changed here.
        """
        with self._lock:
            state = None if self._closed else self._backend.read_state()
            if state is None:
                return
            limits = self.snapshot.limits if state.limits is None else state.limits.configured
            snapshot = NamespaceSnapshot.from_state(state, limits)
            self._served_before |= {hub.directory for hub in snapshot.hubs.values()}
            self.commit(snapshot, limits=snapshot.limits, is_kept=True)

    def apply_retention(self, now_ms: int) -> int:
        """Delete what the hubs' retention no longer keeps, and return how many events that were. Raises LogError."""
        return sum(self._backend.apply_retention(hub, now_ms) for hub in self.event_hubs.values())

    def close(self) -> None:
        """Finish what is under way in all partitions and release the directory."""
        with self._lock:
            self._closed = True
            for hub in self.event_hubs.values():
                hub.close()
            self._backend.close()
