"""The capture of a whole namespace: a writer for each partition that is captured, and the thread that runs them.

Hubs and settings may change while the hub runs, so each step determines again what is captured. Destinations are slow,
and clients must not wait for them, hence the thread.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.journal import JournalDamaged
from tidegate.hub.capture.partition_capture import CaptureWriter
from tidegate.hub.capture.store import CaptureStore, StoreError, open_store
from tidegate.log import Clock, LogError

if TYPE_CHECKING:
    from tidegate.hub.event_hub import EventHub
    from tidegate.hub.namespace import Namespace
    from tidegate.hub.partition import Partition

_logger = logging.getLogger(__name__)
_TRY_AGAIN_MS = 60_000
_TASK = "capture"


class CaptureScheduler:
    """Steps the writers of a namespace; for one thread. Each is its partition's `capture` while it is there.

    `default` is what a hub without a description of its own is captured by; None: such a hub is not captured.
    `on_captured` is called with the hub, the events and the bytes of each file that is in its place.
    """

    def __init__(
        self,
        namespace: Namespace,
        default: CaptureDescription | None = None,
        on_captured: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self._namespace = namespace
        self._default = default
        self._on_captured = on_captured
        self._stores: dict[str, CaptureStore] = {}
        self._captured: dict[int, Partition] = {}
        self._try_again_at_ms = 0
        self._away_until_ms: dict[str, int] = {}

    def open(self) -> None:
        """Begin to capture what is there: to be called before events come and before retention.

        Raises StoreError, JournalDamaged, OSError, ModuleNotFoundError if the requested capture is not possible.
        """
        for event_hub, partition, description in self._wanted():
            self._begin(event_hub, partition, description)

    def step(self, now_ms: int) -> bool:
        """Do a part of what is due in every partition. True: there is more to do at once.

        An unavailable destination may take a minute to fail, so one partition tries it again, not each.
        """
        self._follow_changes(now_ms)
        busy = False
        for hub, writer in [(one.hub_name, one.capture) for one in self._captured.values() if one.capture]:
            place, failures = writer.description.destination, writer.store_failures
            if now_ms < self._away_until_ms.get(place, 0):
                continue
            events, size = writer.events, writer.size_bytes
            busy |= writer.step(now_ms)
            if self._on_captured is not None and writer.events > events:
                self._on_captured(hub, writer.events - events, writer.size_bytes - size)
            busy |= writer.is_overtaken
            if writer.store_failures > failures:
                self._away_until_ms[place] = writer.retry_at_ms
        return busy

    def close(self) -> None:
        """Throw away the work done ahead, and let other gateways capture."""
        for partition in list(self._captured.values()):
            self._end(partition)
            partition.log.unassign(_TASK)

    def _wanted(self) -> Iterator[tuple[EventHub, Partition, CaptureDescription]]:
        for event_hub in list(self._namespace.event_hubs.values()):
            description = event_hub.config.capture or self._default
            if description is not None and description.enabled:
                for partition in event_hub.partitions:
                    if partition.log.is_assigned(_TASK):
                        yield event_hub, partition, description

    def _follow_changes(self, now_ms: int) -> None:
        wanted = {id(partition): (hub, partition, description) for hub, partition, description in self._wanted()}
        for key, partition in list(self._captured.items()):
            asked, writer = wanted.get(key), partition.capture
            if asked is None:
                self._end(partition)
                partition.log.unassign(_TASK)
            elif writer is not None and (writer.description != asked[2] or writer.is_overtaken):
                self._end(partition)
        if now_ms < self._try_again_at_ms:
            return
        for key, (event_hub, partition, description) in wanted.items():
            if key not in self._captured:
                try:
                    self._begin(event_hub, partition, description)
                except (StoreError, JournalDamaged, LogError, OSError, ModuleNotFoundError) as error:
                    self._try_again_at_ms = now_ms + _TRY_AGAIN_MS
                    _logger.error("%s/%s is not captured: %s", event_hub.name, partition.partition_id, error)

    def _begin(self, event_hub: EventHub, partition: Partition, description: CaptureDescription) -> None:
        store = self._stores.get(description.destination)
        if store is None:
            store = self._stores[description.destination] = open_store(description.destination, os.environ)
        names = {
            "Namespace": self._namespace.name,
            "EventHub": event_hub.name,
            "PartitionId": partition.partition_id,
        }
        partition.capture = CaptureWriter(partition.log, names, description, store)
        self._captured[id(partition)] = partition

    def _end(self, partition: Partition) -> None:
        del self._captured[id(partition)]
        if partition.capture is not None:
            partition.capture.close()
            partition.capture = None


_PAUSE_S = 1.0
_STOP_WITHIN_S = 0.5


class CaptureThread:
    """Runs a capture scheduler until `stop`."""

    def __init__(self, scheduler: CaptureScheduler, clock: Clock) -> None:
        """Start capturing. Raises what CaptureScheduler.open raises."""
        scheduler.open()
        self._scheduler = scheduler
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current step. A step that its destination delays is abandoned, as in a crash."""
        self._stopping.set()
        self._thread.join(_STOP_WITHIN_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                busy = self._scheduler.step(self._clock.now_ms())
            except Exception:
                # a fault must not end capture for good: only missing files would show it
                _logger.exception("capture failed unexpectedly; retrying")
                busy = False
            self._stopping.wait(0 if busy else _PAUSE_S)
        self._scheduler.close()
