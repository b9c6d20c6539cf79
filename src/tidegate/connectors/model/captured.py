"""Files that an event hub's Capture wrote, as the log that they were written from.

A record has everything that a consumer sees of an event: sequence number, offset, arrival, annotations, properties and
body ("Capture events through Azure Event Hubs", and `docs/how-to/capture.md`). So a job over captured files gives the
same results as over the hub. The arrival is exact to the millisecond in the system properties, and to the second in
its own field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.client.event import PARTITION_KEY, PUBLISHER, Details, details_with
from tidegate.client.event_json import from_json
from tidegate.connectors.model.errors import InputError
from tidegate.engine import DEFAULT_LIMITS, DecodingLimits
from tidegate.engine.decoding.avro import read_container
from tidegate.engine.decoding.formats import Unreadable
from tidegate.ordering import TICKS_PER_MILLISECOND

PROPERTY_TYPES = "tidegate:property-types"
"""The system property that names the types of properties that Avro's union lacks."""
_ENQUEUED_TIME = "x-opt-enqueued-time"
_TIME_FORMATS = ("%m/%d/%Y %I:%M:%S %p", "%m/%d/%Y %H:%M:%S", "%Y-%m-%dT%H:%M:%S")


@dataclass(frozen=True, slots=True)
class CapturedMessages:
    """The contents of records for n events beside their bodies."""

    offsets: Sequence[str | None]
    described: tuple[Details, ...]

    def details(self) -> list[Details]:
        """Return the publisher, partition key and properties of each event."""
        return list(self.described)

    def part(self, first: int, stop: int) -> CapturedMessages:
        """Return the contents for a stretch of the events."""
        return CapturedMessages(self.offsets[first:stop], self.described[first:stop])


@dataclass(frozen=True, slots=True)
class CapturedFile:
    """The events of one file: n of them, in order.

    Attributes:
        sequence_numbers: int64[n], without gaps.
        arrivals: int64[n], ticks.
    """

    sequence_numbers: npt.NDArray[np.int64]
    arrivals: npt.NDArray[np.int64]
    bodies: list[bytes]
    messages: CapturedMessages


def captured_file(content: bytes, name: str, limits: DecodingLimits = DEFAULT_LIMITS) -> CapturedFile:
    """Read the events of a file.

    Raises:
        InputError: it is not a file of Capture, is damaged, or lacks events in its middle.
    """
    try:
        records = [_record(record) for record in read_container(content, limits.of_file())]
    except (Unreadable, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{name} is not a file of Capture, or is damaged: {type(error).__name__}: {error}") from error
    numbers, offsets, arrivals, bodies, details = zip(*records, strict=True) if records else ((), (), (), (), ())
    sequence_numbers = np.array(numbers, dtype=np.int64)
    if len(numbers) and not np.array_equal(sequence_numbers, numbers[0] + np.arange(len(numbers))):
        raise InputError(f"{name}: its events are not in the order of their sequence numbers, or some are missing")
    return CapturedFile(
        sequence_numbers,
        np.maximum.accumulate(np.array(arrivals, dtype=np.int64)),
        list(bodies),
        CapturedMessages(list(offsets), tuple(details)),
    )


def _record(record: Any) -> tuple[int, str, int, bytes, Details]:
    system: Mapping[str, Any] = record["SystemProperties"] or {}
    enqueued_ms = system.get(_ENQUEUED_TIME)
    arrival = _ticks(record["EnqueuedTimeUtc"]) if enqueued_ms is None else int(enqueued_ms) * TICKS_PER_MILLISECOND
    own = (_ENQUEUED_TIME, PROPERTY_TYPES)
    texts = {name: _text(value) for name, value in system.items() if name not in own and value is not None}
    types: Mapping[str, str] = json.loads(system.get(PROPERTY_TYPES) or "{}")
    values = {
        name: from_json({"type": types[name], "value": value}) if name in types else value
        for name, value in (record["Properties"] or {}).items()
    }
    details = details_with(texts.get(PUBLISHER), texts.get(PARTITION_KEY), values, texts)
    return int(record["SequenceNumber"]), str(record["Offset"]), arrival, bytes(record["Body"] or b""), details


def _ticks(text: str) -> int:
    for form in _TIME_FORMATS:
        try:
            since = datetime.strptime(text, form).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        except ValueError:
            continue
        return (since.days * 86_400 + since.seconds) * 1000 * TICKS_PER_MILLISECOND
    raise ValueError(f"EnqueuedTimeUtc is not a time: {text!r}")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
