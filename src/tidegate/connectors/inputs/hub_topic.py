"""The topic of a hub that gateways serve from a cluster of Kafka, read by the tasks of a job themselves.

The gateway says where the topic is. The cluster's password is not its to give: a job reads the topic if the brokers ask
for none, or if its own `store_config` says how to sign in and where. Otherwise, and whenever the cluster cannot be
reached from where a task runs, events are read through a gateway, with the same numbers, times and bytes.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate import outbound
from tidegate.client import HubTopicAddress
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.messages import Messages

if TYPE_CHECKING:
    # Spark's source reads hubs in processes of its own. Most hubs are not in a cluster of Kafka, whose client is a
    # quarter of what each of those processes would import; functions that need it import it.
    from tidegate.connectors.inputs.record_values import PackedValues
    from tidegate.log import EventBatch
    from tidegate.store.client.connection import KafkaError
    from tidegate.store.kafka.reader import TopicReader

_logger = logging.getLogger(__name__)
_BOOTSTRAP = "bootstrap.servers"
_RUN_BYTES = 16 << 20
_TRY_AGAIN_AFTER_S = 60.0


class TopicUnreachable(Exception):
    """The topic cannot be read from here at the moment; events are to be read through a gateway."""


class EventsGone(Exception):
    """Retention has removed events; `begin` is the oldest number that is left."""

    def __init__(self, begin: int) -> None:
        super().__init__(f"the oldest event is {begin}")
        self.begin = begin


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How a task reaches a cluster of Kafka.

    Attributes:
        bootstrap: `HOST:PORT[,HOST:PORT…]` of some brokers; empty for what the gateway says.
        properties: Names and values under Kafka's own names, with the text of certificates in place of file names.
    """

    bootstrap: str = ""
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def read(cls, path: Path) -> ClusterAccess:
        """Read a file of properties. Raises InputError."""
        from tidegate.store.client.settings import (
            SettingsError,
            address_text,
            client_settings,
            parse_bootstrap,
            parse_properties,
        )

        try:
            given = parse_properties(path.read_text(encoding="utf-8"))
            servers = given.pop(_BOOTSTRAP, "")
            for name, certificates in (
                ("ssl.truststore.location", "ssl.truststore.certificates"),
                ("ssl.keystore.location", "ssl.keystore.key"),
            ):
                location = given.pop(name, "")
                if location:  # executors may not have the file
                    given[certificates] = (path.parent / location).read_text(encoding="ascii")
            settings = client_settings(parse_bootstrap(servers or "any:1"), given)
            if not servers and (settings.credentials is not None or settings.tls is not None):
                raise SettingsError(
                    f"the property {_BOOTSTRAP} is missing: the job signs in to no address that only a hub names"
                )
            bootstrap = ",".join(address_text(*one) for one in settings.bootstrap) if servers else ""
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"store_config {path} cannot be read: {error}") from error
        except SettingsError as error:
            raise InputError(f"store_config {path}: {error}") from error
        return cls(bootstrap, tuple(sorted(given.items())))

    def of(self, address: HubTopicAddress) -> ClusterAccess | None:
        """Return how to reach the cluster that a gateway names, None if it takes a password that is not known."""
        if self.bootstrap:
            return self
        return replace(self, bootstrap=address.bootstrap) if address.is_open else None


ANY_CLUSTER = ClusterAccess()
"""Access to clusters whose brokers ask for nothing."""


@dataclass(frozen=True, slots=True)
class HubTopic:
    """One partition of a hub's topic; it is shipped to the task that reads it."""

    topic: str
    topic_id: str
    partition: int
    access: ClusterAccess

    def messages(self, start: int, end: int, batch_events: int) -> Iterator[Messages]:
        """Yield the encoded messages with start ≤ number < end in order, at least one at a time.

        Raises:
            TopicUnreachable: It cannot be read from here at the moment; what was yielded counts.
            EventsGone: Retention has removed events of the range.
            InputError: Records are damaged.
        """
        from tidegate.store.client.cluster import TopicPartition
        from tidegate.store.client.connection import KafkaError
        from tidegate.store.kafka.reader import RecordsDamaged, RecordsGone

        waiting: list[EventBatch] = []
        count = size = 0
        try:
            where = TopicPartition(self.topic, self.partition)
            for batches in _reader(self.access).read(where, self.topic_id, start, end):
                for batch in batches:
                    waiting.append(batch)
                    count += len(batch.events)
                    size += _size(batch.events)
                    if count >= batch_events or size >= _RUN_BYTES:
                        yield _columns(waiting)
                        waiting, count, size = [], 0, 0
        except RecordsGone as error:
            raise EventsGone(error.begin) from error
        except RecordsDamaged as error:
            raise InputError(str(error)) from error
        except KafkaError as error:
            _note_failure(self.access, error)
            if waiting:
                yield _columns(waiting)
            raise TopicUnreachable(str(error)) from error
        if waiting:
            yield _columns(waiting)


def _columns(batches: Sequence[EventBatch]) -> Messages:
    counts = [len(batch.events) for batch in batches]
    ends: list[npt.NDArray[np.int64]] = []
    at = 0
    for batch in batches:
        ends.append(_ends(batch.events) + at)
        at = int(ends[-1][-1])
    numbers = np.concatenate(
        [
            np.arange(batch.base_sequence_number, batch.base_sequence_number + count, dtype=np.int64)
            for batch, count in zip(batches, counts, strict=True)
        ]
    )
    return Messages(
        sequence_numbers=numbers,
        enqueued_times_ms=np.repeat(np.array([batch.enqueued_time_ms for batch in batches], dtype=np.int64), counts),
        positions=numbers,
        buffer=b"".join(_joined(batch.events) for batch in batches),
        ends=np.concatenate(ends),
    )


def _packed(events: Sequence[bytes]) -> PackedValues | None:
    from tidegate.connectors.inputs.record_values import PackedValues

    return events if isinstance(events, PackedValues) else None


def _size(events: Sequence[bytes]) -> int:
    packed = _packed(events)
    return sum(map(len, events)) if packed is None else len(packed.buffer)


def _joined(events: Sequence[bytes]) -> bytes | memoryview:
    packed = _packed(events)
    return b"".join(events) if packed is None else packed.buffer


def _ends(events: Sequence[bytes]) -> npt.NDArray[np.int64]:
    packed = _packed(events)
    if packed is not None:
        return packed.ends
    return np.cumsum(np.fromiter(map(len, events), dtype=np.int64, count=len(events)))


_lock = threading.Lock()
_readers: dict[tuple[int, ClusterAccess], TopicReader] = {}
_failed_at_s: dict[ClusterAccess, float] = {}


def _reader(access: ClusterAccess) -> TopicReader:
    """Return this process's connections to a cluster. Raises TopicUnreachable soon after it could not be reached."""
    from tidegate.connectors.inputs.record_values import message_values
    from tidegate.store.client.settings import client_settings, parse_bootstrap
    from tidegate.store.kafka.reader import TopicReader

    failed_at_s = _failed_at_s.get(access)
    if failed_at_s is not None and time.monotonic() - failed_at_s < _TRY_AGAIN_AFTER_S:
        raise TopicUnreachable("the cluster could not be reached a moment ago")
    key = os.getpid(), access  # a forked process has no thread of its parent's
    with _lock:
        reader = _readers.get(key)
        if reader is None:
            settings = client_settings(parse_bootstrap(access.bootstrap), dict(access.properties))
            reader = _readers[key] = TopicReader(replace(settings, addresses_of=outbound.resolved), message_values)
    return reader


def _note_failure(access: ClusterAccess, error: KafkaError) -> None:
    _failed_at_s[access] = time.monotonic()
    _logger.warning(
        "the cluster of Kafka at %s cannot be read from here: %s; events are read through a gateway for %.0f s",
        access.bootstrap,
        error,
        _TRY_AGAIN_AFTER_S,
    )
