"""What the broker says of an event, as columns: GetMetadataPropertyValue, and the columns that Event Hubs adds to
every event.

https://learn.microsoft.com/stream-analytics-query/getmetadatapropertyvalue
"""

from __future__ import annotations

import hashlib
import re
import uuid

import numpy as np

from tidegate.engine.rows import EventColumns
from tidegate.engine.values import Int64Array, Kind, Vector, object_array

EVENT_HUB_PROPERTIES = (
    "EventEnqueuedUtcTime",
    "PartitionId",
    "Offset",
    "SequenceNumber",
    "PartitionKey",
    "Publisher",
)
IMPLICIT_COLUMNS = frozenset({"eventenqueuedutctime", "partitionid"})
"""Columns that an event has even if its body does not; a field of the body with the name comes first."""

_PROPERTY = re.compile(r"\[?([A-Za-z]+)\]?(?:\.\[?([^\]]+)\]?)?")


def is_known_property(name: str) -> bool:
    """Whether GetMetadataPropertyValue can be asked for a property."""
    return _parts(name) is not None


def property_vector(
    name: str, input_name: str, partition: str, events: EventColumns, which: Int64Array, indices: Int64Array
) -> Vector:
    """A metadata property of n rows: ``which`` event each is of, and which row of it."""
    parts = _parts(name)
    if parts is None:
        return Vector.nulls(len(which))
    if parts == ("eventid", None):
        numbers = events.sequence_numbers[which].tolist()
        return Vector.of(
            [_event_id(input_name, partition, *place) for place in zip(numbers, indices.tolist(), strict=True)]
        )
    if parts[1] is not None:
        return _hub_property(parts[1], partition, events, which)
    columns = [_hub_property(one.lower(), partition, events, which).to_list() for one in EVENT_HUB_PROPERTIES]
    rows = [dict(zip(EVENT_HUB_PROPERTIES, values, strict=True)) for values in zip(*columns, strict=True)]
    return Vector(np.full(len(which), Kind.RECORD, dtype=np.uint8), objects=object_array(rows))


def implicit_column(name: str, partition: str, events: EventColumns, which: Int64Array) -> Vector:
    """One of IMPLICIT_COLUMNS."""
    return _hub_property(name, partition, events, which)


def _parts(name: str) -> tuple[str, str | None] | None:
    match = _PROPERTY.fullmatch(name.strip())
    if match is None:
        return None
    group, inner = match.group(1).lower(), match.group(2)
    if group == "eventid" and inner is None:
        return ("eventid", None)
    known = {one.lower() for one in EVENT_HUB_PROPERTIES}
    if group == "eventhub" and (inner is None or inner.lower() in known):
        return ("eventhub", None if inner is None else inner.lower())
    return None


def _hub_property(name: str, partition: str, events: EventColumns, which: Int64Array) -> Vector:
    match name:
        case "eventenqueuedutctime":
            return Vector.datetimes(events.arrivals[which])
        case "partitionid":
            return Vector.bigints(np.full(len(which), int(partition), dtype=np.int64))
        case "sequencenumber":
            return Vector.bigints(events.sequence_numbers[which])
        case "offset":
            column: list[str | None] = list(events.offsets)
        case "partitionkey":
            column = list(events.partition_keys)
        case _:
            column = list(events.publishers)
    return Vector.of(column).take(which) if column else Vector.nulls(len(which))


def _event_id(input_name: str, partition: str, sequence_number: int, index: int) -> str:
    """The same for the same event, whenever it is read."""
    place = f"{input_name.lower()}/{partition}/{sequence_number}/{index}"
    return str(uuid.UUID(bytes=hashlib.sha256(place.encode()).digest()[:16], version=5))
