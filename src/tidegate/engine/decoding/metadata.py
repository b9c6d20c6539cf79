"""The broker's metadata of events as columns: GetMetadataPropertyValue, and the columns that Event Hubs adds.

https://learn.microsoft.com/stream-analytics-query/getmetadatapropertyvalue
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tidegate.engine.decoding.decoded import Decoded, Path, path_value
from tidegate.engine.decoding.rows import EventColumns
from tidegate.engine.values.budget import repeated
from tidegate.engine.values.datetimes import parse_datetime
from tidegate.engine.values.vectors import Datetime, Int64Array, Kind, Vector, object_array
from tidegate.ordering import TICKS_PER_MILLISECOND
from tidegate.ordering.ticks import LAST_TICKS

EVENT_HUB_PROPERTIES = (
    "EventEnqueuedUtcTime",
    "PartitionId",
    "Offset",
    "SequenceNumber",
    "PartitionKey",
    "Publisher",
)
DEVICE_PROPERTIES = {
    "MessageId": "message-id",
    "CorrelationId": "correlation-id",
    "ConnectionDeviceId": "iothub-connection-device-id",
    "ConnectionDeviceGenerationId": "iothub-connection-auth-generation-id",
    "EnqueuedTime": "iothub-enqueuedtime",
}
"""The properties of a device's message in its record, and the annotations (or AMQP properties) they are in."""
ROUTED_PROPERTIES = {
    "ConnectionDeviceId": "iothub-connection-device-id",
    "AuthMethod": "iothub-connection-auth-method",
    "AuthGenerationId": "iothub-connection-auth-generation-id",
    "EnqueueTime": "iothub-enqueuedtime",
    "MessageSource": "iothub-message-source",
    "ConnectionModuleId": "iothub-connection-module-id",
    "InterfaceName": "iothub-interface-name",
}
"""Likewise those that a query reads one by one: IoTHub.NAME, or EventHub.IoTNAME of a message that was routed on."""
HUB_COLUMNS = ("EventProcessedUtcTime", "PartitionId", "EventEnqueuedUtcTime")
IOT_HUB_COLUMNS = (*HUB_COLUMNS, "IoTHub")
BLOB_COLUMNS = ("EventProcessedUtcTime", "PartitionId", "BlobName", "BlobLastModifiedUtcTime")
"""The columns that the service adds to each event of a live input, after those of its body, in the service's order.

https://learn.microsoft.com/azure/stream-analytics/stream-analytics-define-inputs
"""
_PROPERTY_OF_COLUMN = {
    # Wall-clock time in the service. Here it is the arrival, which is the same whenever the event is read.
    "eventprocessedutctime": "EventHub.EventEnqueuedUtcTime",
    "eventenqueuedutctime": "EventHub.EventEnqueuedUtcTime",
    "partitionid": "EventHub.PartitionId",
    "iothub": "IoTHub",
    "blobname": "BlobName",
    "bloblastmodifiedutctime": "BlobLastModifiedUtcTime",
    # Their names of 2017.
    "eventenqueuedtime": "EventHub.EventEnqueuedUtcTime",
    "bloblastmodified": "BlobLastModifiedUtcTime",
}
"""Columns that an event has even if its body lacks them, and the property that each is."""

_PROPERTY = re.compile(r"\[?([A-Za-z]+)\]?(?:\.\[?([^\]]+)\]?)?")
_ANNOTATIONS = {name.lower(): there for name, there in {**ROUTED_PROPERTIES, **DEVICE_PROPERTIES}.items()}
_ROUTED = {f"iot{name}".lower(): name.lower() for name in ROUTED_PROPERTIES}
_ALONE = ("eventid", "blobname", "bloblastmodifiedutctime")


def is_known_property(name: str) -> bool:
    """Return whether GetMetadataPropertyValue knows a property."""
    return _parts(name) is not None


def property_vector(
    name: str, input_name: str, partition: str, events: EventColumns, which: Int64Array, indices: Int64Array
) -> Vector:
    """Return a metadata property of n rows: ``which`` is the event of each row, followed by its index in the event."""
    parts = _parts(name)
    if parts is None:
        return Vector.nulls(len(which))
    if parts == ("eventid", None):
        numbers = events.sequence_numbers[which].tolist()
        return Vector.of(
            [_event_id(input_name, partition, *place) for place in zip(numbers, indices.tolist(), strict=True)]
        )
    match parts:
        case ("blobname", _):
            names = events.blob_names
            return repeated(Vector.of(names), which) if names else Vector.nulls(len(which))
        case ("bloblastmodifiedutctime", _):
            times = events.blob_times
            return Vector.datetimes(times).take(which) if len(times) else Vector.nulls(len(which))
        case ("iothub", inner):
            return _device_property(inner, events, which)
        case ("user", inner):
            return _user_property(inner, events, which)
        case ("eventhub", str(inner)) if inner in _ROUTED:
            return _device_property(_ROUTED[inner], events, which)
        case ("eventhub", str(inner)):
            return _hub_property(inner, partition, events, which)
    columns = [_hub_property(one.lower(), partition, events, which).to_list() for one in EVENT_HUB_PROPERTIES]
    rows = [dict(zip(EVENT_HUB_PROPERTIES, values, strict=True)) for values in zip(*columns, strict=True)]
    return Vector(np.full(len(which), Kind.RECORD, dtype=np.uint8), objects=object_array(rows))


def with_system_columns(
    decoded: Decoded, paths: Iterable[Path], partition: str, events: EventColumns, *, lower_case: bool = False
) -> Decoded:
    """Return decoded events with the columns that the service adds to them.

    What the data itself provides is kept, however its names are capitalised.

    Args:
        paths: the fields that the query names; those that are system columns get a value.
        lower_case: names in records are lower case (compatibility level 1.0).
    """
    fields = dict(decoded.fields)
    for path in paths:
        low = tuple(map(str.lower, path))
        name = _property_of(low)
        if name is not None and low in fields:
            column = property_vector(name, "", partition, events, decoded.events, decoded.indices)
            vector = fields[low]
            fields[low] = Vector.choose((vector.kinds == Kind.NULL).astype(np.int64), [vector, column])
    records = decoded.records
    if records is not None and events.added_columns:
        added = {
            name.lower() if lower_case else name: property_vector(
                _PROPERTY_OF_COLUMN[name.lower()], "", partition, events, decoded.events, decoded.indices
            ).to_list()
            for name in events.added_columns
        }
        records = Vector(records.kinds, objects=object_array(_with_columns(records.object_values(), added)))
    return replace(decoded, fields=fields, records=records)


def _property_of(path: Path) -> str | None:
    """Return the property that a path in lower case is, if it is a system column or a part of one."""
    name = _PROPERTY_OF_COLUMN.get(path[0])
    if name is None or len(path) == 1:
        return name
    full = f"{name}.{path[1]}"
    return full if name == "IoTHub" and len(path) == 2 and is_known_property(full) else None


def _with_columns(rows: Iterable[Any], added: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    lowered = [(name.lower(), name, values) for name, values in added.items()]
    found = []
    for place, row in enumerate(rows):
        names = set(map(str.lower, row))
        found.append({**row, **{name: values[place] for low, name, values in lowered if low not in names}})
    return found


def _parts(name: str) -> tuple[str, str | None] | None:
    match = _PROPERTY.fullmatch(name.strip())
    if match is None:
        return None
    group, inner = match.group(1).lower(), match.group(2)
    if group in _ALONE and inner is None:
        return (group, None)
    if group == "user":
        return ("user", inner)
    if group == "iothub" and (inner is None or inner.lower() in _ANNOTATIONS):
        return ("iothub", None if inner is None else inner.lower())
    known = {"eventprocessedutctime", *_ROUTED, *(one.lower() for one in EVENT_HUB_PROPERTIES)}
    if group == "eventhub" and (inner is None or inner.lower() in known):
        return ("eventhub", None if inner is None else inner.lower())
    return None


def _hub_property(name: str, partition: str, events: EventColumns, which: Int64Array) -> Vector:
    match name:
        case "eventenqueuedutctime" | "eventprocessedutctime":
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
    return repeated(Vector.of(column), which) if column else Vector.nulls(len(which))


def enqueued_by_device(properties: Mapping[str, str]) -> int | None:
    """Return when an IoT hub accepted a message, in ticks, from annotations: milliseconds since 1970 or ISO 8601."""
    text = properties.get(DEVICE_PROPERTIES["EnqueuedTime"])
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 20:
        ticks = int(text) * TICKS_PER_MILLISECOND
        return ticks if ticks <= LAST_TICKS else None
    return parse_datetime(text)


def _device_property(name: str | None, events: EventColumns, which: Int64Array) -> Vector:
    """Return a property of IoTHub, or all of them as a record; NULL for an event that has none of them."""
    found = events.system_properties
    if not found:
        return Vector.nulls(len(which))
    if name is not None:
        there = _ANNOTATIONS[name]
        return repeated(Vector.of([_annotation(properties, there) for properties in found]), which)
    rows = [{one: _annotation(each, there) for one, there in DEVICE_PROPERTIES.items()} for each in found]
    return Vector.of([row if any(row.values()) else None for row in rows]).take(which)


def _annotation(properties: Mapping[str, str], there: str) -> str | Datetime | None:
    if there != DEVICE_PROPERTIES["EnqueuedTime"]:
        return properties.get(there)
    ticks = enqueued_by_device(properties)
    return None if ticks is None else Datetime(ticks)


def _user_property(name: str | None, events: EventColumns, which: Int64Array) -> Vector:
    """Return a property from the publisher, or all of them as a record; names match regardless of case."""
    found = events.user_properties
    if not found:
        return Vector.nulls(len(which))
    if name is None:
        return Vector.of([dict(properties) for properties in found]).take(which)
    return repeated(Vector.of([path_value(dict(properties), (name,)) for properties in found]), which)


def _event_id(input_name: str, partition: str, sequence_number: int, index: int) -> str:
    """Return an identifier that is the same for an event whenever it is read."""
    place = f"{input_name.lower()}/{partition}/{sequence_number}/{index}"
    return str(uuid.UUID(bytes=hashlib.sha256(place.encode()).digest()[:16], version=5))
