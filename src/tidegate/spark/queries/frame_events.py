"""DataFrames as logs: which columns hold an event, and rows of Arrow as events.

A DataFrame has no order of its own. The events of a partition are ordered by their position, such as a sequence number,
where there is one, then by arrival and, if two arrive together, by content, so that the order is the same however Spark
reads them.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions, types

from tidegate.client.event import Details
from tidegate.connectors.model.captured import CapturedMessages
from tidegate.connectors.model.errors import InputError, JobError
from tidegate.connectors.model.events import Events, Int64Array
from tidegate.engine import FORMATS, JSON, Format, TableBodies
from tidegate.engine.decoding.metadata import BLOB_COLUMNS, HUB_COLUMNS
from tidegate.engine.decoding.tables import Table
from tidegate.engine.expressions.needs import Need
from tidegate.spark.queries.column_types import check_types, has_map, sorts_alike
from tidegate.sql.plan.nodes import Type

Named: TypeAlias = str | Column

_TICKS_PER_MICROSECOND = 10
_BODIES = ("body", "Body")
_ARRIVALS = ("enqueuedTime", "EnqueuedTimeUtc")
_PARTITIONS = ("partition", "partitionId")
_POSITIONS = ("sequenceNumber", "SequenceNumber")
_SYSTEM_COLUMNS = frozenset({*map(str.lower, (*HUB_COLUMNS, *BLOB_COLUMNS)), "iothub", "eventenqueuedtime"})
_DETAILS = ("offset", "publisher", "partitionKey", "properties", "systemProperties")
# The format of files whose rows come in typed columns, as those of a DataFrame do.
_OF_COLUMNS = Format("parquet")
NO_PARTITION = "NULL"
_TIMES = (types.TimestampType, types.TimestampNTZType)


@dataclass(frozen=True, slots=True)
class EventsOfFrame:
    """A DataFrame whose rows are events.

    Attributes:
        frame: the DataFrame.
        body: the column with the bodies; None if the fields of an event are the columns.
        arrival: when the broker got an event.
        partition: a whole number; None for one partition.
        order: the position of an event in its partition; None to order by arrival and content.
        format: of the bodies.
        system_columns: whether ``SELECT *`` has the columns that the service adds to the events of a hub.
    """

    frame: DataFrame
    body: Named | None
    arrival: Named
    partition: Named | None
    order: Named | None
    format: Format = field(default=JSON)
    system_columns: bool = False


def events(
    frame: DataFrame,
    *,
    body: Named | None = None,
    arrival: Named | None = None,
    partition: Named | None = None,
    order: Named | None = None,
    format: str = "json",
    system_columns: bool | None = None,
    **format_options: Any,
) -> EventsOfFrame:
    """Return the rows of a DataFrame as events, for an input of `sql` or `stream`.

    Columns are names or expressions. Left out, they are those of the `eventhubs` source and of Event Hubs Capture:
    ``body``, ``enqueuedTime`` or ``EnqueuedTimeUtc``, ``partition``, ``sequenceNumber``. Without a body the fields of
    an event are the columns of the DataFrame, with their types.

    Args:
        frame: the events, of any time and in any order; in `stream` also a streaming DataFrame, whose batches follow
            each other as Spark forms them.
        body: a string or binary.
        arrival: a timestamp: when the broker got the event.
        partition: a whole number; each partition is a timeline, as in a hub. Without the column there is one, as there
            always is for a streaming DataFrame.
        order: the position in the partition, a number or a time. Without it, and where two have the same position,
            events are ordered by arrival and, if two arrive together, by content.
        format: of the bodies: json, csv or avro.
        system_columns: whether ``SELECT *`` has EventProcessedUtcTime, PartitionId and EventEnqueuedUtcTime, as in a
            job over a hub; by default if there is a body.
        format_options: delimiter, columns, encoding and compression, as in the job file.

    Raises:
        JobError: a column is missing or has a wrong type.
    """
    if frame.isStreaming and partition is not None:
        raise JobError(
            f"events(partition={_shown(partition)}): the rows of a streaming DataFrame are one timeline, as Spark does "
            "not say which partitions will come; leave it out. A hub or a topic that is an input itself has a timeline "
            "for each of its partitions"
        )
    body = _first(frame, _BODIES) if body is None else body
    arrival = _first(frame, _ARRIVALS) if arrival is None else arrival
    if arrival is None:
        raise JobError(
            f"the DataFrame has no arrival time: it has {_columns(frame)}, expected a timestamp 'enqueuedTime'; pass "
            "tidegate.spark.events(df, arrival='COLUMN') with the time at which the broker got each event, or "
            "tidegate.spark.reference(df) if it is a table that the query joins"
        )
    found = EventsOfFrame(
        frame,
        body,
        arrival,
        _first(frame, _PARTITIONS) if partition is None and not frame.isStreaming else partition,
        _first(frame, _POSITIONS) if order is None and not frame.isStreaming else order,
        _format(format, format_options),
        body is not None if system_columns is None else system_columns,
    )
    return _checked(found)


def _format(name: str, options: Mapping[str, Any]) -> Format:
    if name not in FORMATS.names(in_events=True) or name == "custom":
        raise JobError(f"events(format='{name}'): expected one of json, csv, avro")
    allowed = ("delimiter", "columns", "encoding", "compression")
    for option in options:
        if option not in allowed:
            close = difflib.get_close_matches(option, (*allowed, "body", "arrival", "partition", "order"), n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; expected one of {', '.join(allowed)}"
            raise JobError(f"events() has no option '{option}'{hint}")
    return Format(name, **{**options, **({"columns": tuple(options["columns"])} if "columns" in options else {})})


def _checked(found: EventsOfFrame) -> EventsOfFrame:
    """Check columns and types, which Spark knows without reading a row."""
    found = _of_capture(found)
    arrival = _type_of(found.frame, found.arrival, "arrival")
    if not isinstance(arrival, _TIMES):
        raise JobError(
            f"events(arrival={_shown(found.arrival)}) is {arrival.simpleString()}, expected timestamp; convert it, for "
            "example with functions.timestamp_millis(…) or functions.to_timestamp(…)"
        )
    if found.body is not None:
        body = _type_of(found.frame, found.body, "body")
        if not isinstance(body, types.StringType | types.BinaryType):
            raise JobError(
                f"events(body={_shown(found.body)}) is {body.simpleString()}, expected string or binary; rename it if "
                "the fields of an event are the columns of the DataFrame"
            )
    if found.partition is not None:
        partition = _type_of(found.frame, found.partition, "partition")
        if not isinstance(partition, types.IntegralType | types.StringType):
            raise JobError(
                f"events(partition={_shown(found.partition)}) is {partition.simpleString()}, expected a whole number"
            )
    if found.order is not None:
        order = _type_of(found.frame, found.order, "order")
        if not isinstance(order, (types.NumericType, types.DateType, *_TIMES)):
            # As text, 10 is before 9.
            raise JobError(
                f"events(order={_shown(found.order)}) is {order.simpleString()}, expected a number or a timestamp; "
                "cast it, for example with functions.col('COLUMN').cast('bigint')"
            )
    return found


def _of_capture(found: EventsOfFrame) -> EventsOfFrame:
    """Return a DataFrame of files of Capture with arrivals as times: exact from the annotation, else the text's."""
    frame = found.frame
    # An expression does not compare with a name.
    if not isinstance(found.arrival, str) or found.arrival != "EnqueuedTimeUtc":
        return found
    if not isinstance(frame.schema["EnqueuedTimeUtc"].dataType, types.StringType):
        return found
    text = functions.concat(functions.col("EnqueuedTimeUtc"), functions.lit(" UTC"))
    time = functions.try_to_timestamp(text, functions.lit("M/d/yyyy h:mm:ss a VV"))
    if "SystemProperties" in frame.columns:
        enqueued = functions.expr("SystemProperties['x-opt-enqueued-time'].member0")
        exact = functions.timestamp_millis(enqueued)
        time = functions.coalesce(exact, time) if _resolves(frame, exact) else time
    return EventsOfFrame(
        frame.withColumn("EnqueuedTimeUtc", time),
        found.body,
        found.arrival,
        found.partition,
        found.order,
        found.format,
        found.system_columns,
    )


def _first(frame: DataFrame, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in frame.columns), None)


def _columns(frame: DataFrame) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema.fields) or "no columns"


def _shown(named: Named) -> str:
    # Spark numbers functions in Python anew each time.
    return f"'{named}'" if isinstance(named, str) else re.sub(r"#\d+L?", "", str(named))


def described(found: EventsOfFrame) -> str:
    """Return the columns of a DataFrame and what they are for, in a text that is the same in each run."""
    uses = {"body": found.body, "arrival": found.arrival, "partition": found.partition, "order": found.order}
    shown = [f"{use} {_shown(named)}" for use, named in uses.items() if named is not None]
    return f"{_columns(found.frame)}; {', '.join(shown)}; {found.format.kind}"


def frames_of(inputs: Mapping[str, Any], caller: str) -> dict[str, EventsOfFrame]:
    """Return the inputs that are DataFrames of events, by name in lower case.

    Raises:
        JobError: one of them cannot be read as events.
    """
    found = {}
    for name, given in inputs.items():
        if isinstance(given, EventsOfFrame):
            found[name.lower()] = given
        elif isinstance(given, DataFrame):
            try:
                found[name.lower()] = events(given)
            except JobError as error:
                raise JobError(f"{caller}: inputs['{name}']: {error}") from None
    return found


def column_of(named: Named) -> Column:
    """Return a column by its name, which may contain dots, or as it is."""
    return functions.col(f"`{named.replace('`', '``')}`") if isinstance(named, str) else named


def _resolves(frame: DataFrame, column: Column) -> bool:
    try:
        return bool(frame.select(column).schema.fields)
    except Exception:
        return False


def _type_of(frame: DataFrame, named: Named, what: str) -> types.DataType:
    if (
        isinstance(named, str)
        and named in frame.columns
        and len({*map(str.lower, frame.columns)}) == len(frame.columns)
    ):
        # Spark would analyse an expression.
        return frame.schema[named].dataType
    if isinstance(named, str) and named.lower() not in (name.lower() for name in frame.columns):
        close = difflib.get_close_matches(named, frame.columns, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else f"; the DataFrame has {_columns(frame)}"
        raise JobError(f"events({what}='{named}'): there is no such column{hint}")
    return frame.select(column_of(named)).schema.fields[0].dataType


# rows of Arrow as events
# ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of rows that are sent to tasks: partition, arrival, number; then the body, or a column a field.

    Attributes:
        input: the name of the input, for messages.
        fields: the names of the fields in order; None if there is a body.
        numbered: whether there is a position that is a whole number; else events are numbered as they come.
        details: which columns of details follow, by the names of the `eventhubs` source.
        ordered: whether there is a position, a whole number or not.
        order: the columns by which the events of a partition are sorted, the first of whole numbers or times and the
            others such as Arrow sorts as Spark does; None if only Spark can sort them.
    """

    input: str
    fields: tuple[str, ...] | None
    numbered: bool
    details: tuple[str, ...]
    format: Format
    added_columns: tuple[str, ...]
    ordered: bool = False
    order: tuple[str, ...] | None = None

    def keys(self, rows: pa.Table) -> Int64Array:
        """Return what rows of a partition are sorted by, before the content of those that arrive together.

        Raises:
            InputError: a row has none.
        """
        return self._whole(rows, "number" if self.numbered else "arrival")

    def events(self, partition: str, rows: pa.Table, first: int) -> Events:
        """Return rows of one partition as events.

        Args:
            first: the number of the first row if they are numbered as they come.

        Raises:
            InputError: a row has no arrival, no position, or a partition that is not a number.
        """
        placed = self.placed(partition, rows, first)
        messages = self._messages(rows) if self.details else None
        return replace(placed, bodies=self._bodies(rows), messages=messages)

    def placed(self, partition: str, rows: pa.Table, first: int) -> Events:
        """Return the same without bodies and messages."""
        if partition == NO_PARTITION:
            raise InputError(
                f"input '{self.input}': {len(rows):,} rows or more have no partition (NULL), so they are of no "
                "timeline; give them one, such as functions.coalesce(…, functions.lit(0)), or leave them out with "
                "df.where('… IS NOT NULL')"
            )
        if not partition.isascii() or not partition.lstrip("-").isdigit():
            raise InputError(
                f"input '{self.input}': the partition {partition!r} is not a whole number; pass a column of whole "
                "numbers to events(partition=…), such as functions.crc32(…) of the name"
            )
        arrivals = self._whole(rows, "arrival") * _TICKS_PER_MICROSECOND
        count = len(rows)
        numbers = self._whole(rows, "number") if self.numbered else np.arange(first, first + count, dtype=np.int64)
        return Events(numbers, arrivals, (), format=self.format, added_columns=self.added_columns)

    def _whole(self, rows: pa.Table, name: str) -> Int64Array:
        column = rows.column(name)
        if column.null_count:
            raise InputError(
                f"input '{self.input}': {column.null_count:,} of {len(rows):,} rows have no {_WORDS[name]}; leave them "
                "out with df.where('… IS NOT NULL')"
            )
        whole: Int64Array = column.cast(pa.int64()).to_numpy()
        return whole

    def _bodies(self, rows: pa.Table) -> Sequence[bytes]:
        if self.fields is None:
            return [b"" if body is None else body for body in rows.column("body").to_pylist()]
        columns = {name: rows.column(f"field{place}").combine_chunks() for place, name in enumerate(self.fields)}
        return TableBodies.of(Table(columns, np.arange(len(rows), dtype=np.int64), len(rows)))

    def _messages(self, rows: pa.Table) -> CapturedMessages:
        found = {name: rows.column(name).to_pylist() for name in self.details}
        nothing: list[Any] = [None] * len(rows)
        offsets = ["" if offset is None else str(offset) for offset in found.get("offset", nothing)]
        described = (
            Details(publisher, key, _texts(properties), _texts(system))
            for publisher, key, properties, system in zip(
                *(found.get(name, nothing) for name in _DETAILS[1:]), strict=True
            )
        )
        return CapturedMessages(offsets, tuple(described))


_WORDS = {"arrival": "arrival", "number": "position in order"}


def _texts(given: Any) -> dict[str, str]:
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    return {name: _text(value) for name, value in pairs if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        # A value in a file of Capture: a member for each type that it may have.
        value = next((one for one in value.values() if one is not None), "")
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def partitions_in(batches: Iterator[pa.RecordBatch], most_rows: int) -> Iterator[tuple[str, pa.Table]]:
    """Yield sorted rows by partition, at most ``most_rows`` at a time and few of them only at a partition's end."""
    partition: str | None = None
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        codes = batch.column("partition").dictionary_encode()
        names = codes.dictionary.to_pylist()
        indices = codes.indices.to_numpy()
        bounds = np.flatnonzero(np.diff(indices, prepend=-1, append=-1)).tolist()
        for first, stop in pairwise(bounds):
            name = names[indices[first]]
            while first < stop:
                if held and (name != partition or count >= most_rows):
                    yield str(partition), pa.Table.from_batches(held)
                    held, count = [], 0
                partition = name
                taken = min(stop - first, most_rows - count)
                held.append(batch.slice(first, taken))
                first, count = first + taken, count + taken
    if held:
        yield str(partition), pa.Table.from_batches(held)


# columns for tasks
# ------------------------------------------------------------------------------------------------------


def columns_for(
    found: EventsOfFrame, name: str, need: Need, *, whole: bool = False
) -> tuple[list[Column], list[Column], RowLayout]:
    """Return the columns that tasks need of a DataFrame, those by which they are sorted, and the layout.

    Args:
        name: the input's.
        need: what the query uses of it; of a DataFrame with fields as columns, only those are read.
        whole: read all of it, in the order that it has for the query.

    Raises:
        JobError: the query uses a column that the DataFrame does not have.
    """
    numbered = found.order is not None and isinstance(_type_of(found.frame, found.order, "order"), types.IntegralType)
    number = column_of(found.order) if found.order is not None else functions.lit(None)
    partition = functions.lit("0") if found.partition is None else column_of(found.partition)
    selected = [
        functions.coalesce(partition.cast("string"), functions.lit(NO_PARTITION)).alias("partition"),
        column_of(found.arrival).alias("arrival"),
        number.cast("bigint").alias("number") if numbered else number.alias("number"),
    ]
    fields: tuple[str, ...] | None = None
    if found.body is not None:
        selected.append(column_of(found.body).cast("binary").alias("body"))
        content = ["body"]
    else:
        used = _fields(found.frame, name, need)
        check_types((found.frame.schema[one] for one in used), f"input '{name}'")
        fields = tuple(found.frame.columns) if whole else used
        selected += [column_of(one).alias(f"field{place}") for place, one in enumerate(fields)]
        content = [f"field{fields.index(one)}" for one in used]
    details = (
        tuple(one for one in _DETAILS if _first_of(found.frame, one) is not None) if need.metadata or whole else ()
    )
    selected += [column_of(_first_of(found.frame, one) or one).alias(one) for one in details]
    order = [*([functions.col("number")] if found.order is not None else ()), *_by_content(found, selected, content)]
    added = HUB_COLUMNS if found.system_columns else ()
    body_format = _OF_COLUMNS if found.body is None else found.format
    ordered = found.order is not None
    arrow_order = _arrow_order(found, selected, content, numbered)
    return selected, order, RowLayout(name, fields, numbered, details, body_format, added, ordered, arrow_order)


def for_runs(found: EventsOfFrame, selected: Sequence[Column], layout: RowLayout) -> list[Column]:
    """Return the columns of `columns_for` without those that say nothing, and with the partition as it is."""
    kept = [] if found.partition is None else [column_of(found.partition).alias("partition")]
    return [*kept, selected[1], *(selected[2:3] if layout.numbered else ()), *selected[3:]]


def _arrow_order(
    found: EventsOfFrame, selected: Sequence[Column], content: Sequence[str], numbered: bool
) -> tuple[str, ...] | None:
    """Return `RowLayout.order`."""
    if found.order is not None and not numbered:
        return None
    schema = found.frame.select(*selected).schema
    alike = [one for one in content if sorts_alike(schema[one].dataType)]
    if numbered:
        # Positions rarely tie. It is not worth sorting in Spark for rows that differ in a record alone.
        return ("number", "arrival", *alike)
    return ("arrival", *content) if alike == [*content] else None


def _first_of(frame: DataFrame, name: str) -> str | None:
    return next((one for one in frame.columns if one.lower() == name.lower()), None)


def _fields(frame: DataFrame, name: str, need: Need) -> tuple[str, ...]:
    if need.record:
        return tuple(frame.columns)
    by_lower: dict[str, str] = {}
    for one in frame.columns:
        by_lower.setdefault(one.lower(), one)
    counts = Counter(one.lower() for one in frame.columns)
    found: dict[str, None] = {}
    for path in need.paths.values():
        column = path[0] if path[0] in frame.columns else by_lower.get(path[0].lower())
        if column is not None and counts[column.lower()] > 1:
            raise JobError(
                f"input '{name}': the DataFrame has {counts[column.lower()]} columns '{column.lower()}', which the "
                "query language does not tell apart; rename or drop all but one"
            )
        if column is not None:
            found[column] = None
        elif path[0].lower() not in _SYSTEM_COLUMNS:
            close = difflib.get_close_matches(path[0], frame.columns, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; it has {_columns(frame)}"
            raise JobError(f"the query reads '{path[0]}' of '{name}', which the DataFrame does not have{hint}")
    return tuple(found)


def type_in(found: EventsOfFrame, name: str) -> Type:
    """Return the type of all values of a field; ANY if it is in the body, or a system column."""
    return Type.ANY if found.body is not None else type_of_column(found.frame, name)


def type_of_column(frame: DataFrame, name: str) -> Type:
    """Return the type of all values of a column; ANY if there is no such column, or no such type."""
    column = name if name in frame.columns else _first_of(frame, name)
    if column is None:
        return Type.ANY
    match frame.schema[column].dataType:
        case types.IntegralType():
            return Type.BIGINT
        case types.FloatType() | types.DoubleType() | types.DecimalType():
            return Type.FLOAT
        case types.StringType():
            return Type.NVARCHAR
        case types.TimestampType() | types.TimestampNTZType() | types.DateType():
            return Type.DATETIME
        case types.BooleanType():
            return Type.BIT
        case _:
            return Type.ANY


def _by_content(found: EventsOfFrame, selected: Sequence[Column], content: Sequence[str]) -> list[Column]:
    """Return what orders events by arrival, and those that arrive together by the content that the query uses."""
    schema = found.frame.select(*selected).schema
    comparable = [one for one in content if not has_map(schema[one].dataType)]
    texts = [functions.to_json(functions.struct(one)) for one in content if one not in comparable]
    return [functions.col("arrival"), *(functions.col(one) for one in comparable), *texts]
