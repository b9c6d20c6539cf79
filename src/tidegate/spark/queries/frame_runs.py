"""Rows of a DataFrame as sorted runs, and the runs of a partition as one: an external sort whose rows stay in Arrow.

A task that reads a DataFrame sorts the rows that it has at hand, some hundred thousand at a time, and cuts them into
*runs*: blobs with consecutive rows of one partition. Spark moves and sorts only runs, by the key of their first row,
and whoever reads the runs of a partition merges those that overlap. Rows that are nearly in order, as in most files,
are hardly sorted at all; rows in any other order are sorted here, where Spark would do it row by row.
"""

from __future__ import annotations

import gc
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from tidegate.connectors.model.events import Int64Array
from tidegate.ordering import END_OF_TIME, NO_TIME
from tidegate.spark.queries.arrival_order import ArrivalOrder
from tidegate.spark.queries.frame_events import NO_PARTITION, RowLayout, partitions_in
from tidegate.spark.queries.parcels import arrow_schema, in_pieces, put_together, rows_of_task

# PySpark collects garbage after every task; what is imported here is not garbage and need not be looked at each time.
gc.freeze()

RUNS = "label int, partition string, first bigint, task int, number bigint, piece int, blob binary"
"""Rows of runs, a large one in pieces."""

ORDER = ("partition", "first", "task", "number", "piece")

_ARROW = arrow_schema(RUNS)
RUN_ROWS = 65_536
_RUN_BYTES = 4 << 20
_SORTED_ROWS = 4 * RUN_ROWS
_SORTED_BYTES = 64 << 20
_FEW_PARTITIONS = 255
_AFTER_ALL = np.int64(2**63 - 1)


@dataclass(frozen=True, slots=True)
class RunsStage:
    """Makes runs of the rows of a task.

    Attributes:
        labels: by which Spark gives each partition of the DataFrame one of its own.
    """

    layout: RowLayout
    labels: tuple[int, ...]

    @property
    def __name__(self) -> str:
        """The name that Spark's plans and UI show."""
        return f"rows_of_{self.layout.input}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows_of_task(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        for number, (partition, first, run) in enumerate(runs_of(batches, self.layout)):
            place = self._label(partition), partition, first, task, number
            yield in_pieces(place, memoryview(encoded(run)), _ARROW)

    def _label(self, partition: str) -> int:
        plain = partition.isascii() and partition.isdecimal()
        return self.labels[(int(partition) if plain else zlib.crc32(partition.encode())) % len(self.labels)]


def runs_of(batches: Iterator[pa.RecordBatch], layout: RowLayout) -> Iterator[tuple[str, int, pa.Table]]:
    """Yield runs, each with its partition and the key of its first row.

    Raises:
        InputError: a row has no key.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= _SORTED_ROWS or size >= _SORTED_BYTES:
            yield from _cut(pa.Table.from_batches(held), layout)
            held, rows, size = [], 0, 0
    if rows:
        yield from _cut(pa.Table.from_batches(held), layout)


def merged_runs(
    batches: Iterator[pa.RecordBatch], layout: RowLayout, most_rows: int = RUN_ROWS
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of sorted runs by partition and in order, at most ``most_rows`` at a time."""
    for partition, runs in groupby(_runs_in(batches), key=lambda run: run[0]):
        held: list[_Held] = []
        enough = most_rows
        for _, first, table in runs:
            if sum(len(one.keys) for one in held) >= enough:
                ready, held = _divided(held, first)
                for some in _together(ready, layout, most_rows):
                    yield partition, some
                # Runs that all overlap are not looked at again for each of them.
                enough = max(most_rows, 2 * sum(len(one.keys) for one in held))
            held.append(_Held(table, layout.keys(table)))
        for some in _together(held, layout, most_rows):
            yield partition, some


@dataclass(frozen=True, slots=True)
class SortedRows:
    """The rows of a DataFrame that a task gets sorted by partition, and which of them matter.

    Attributes:
        in_runs: whether they come in runs, or one by one, sorted by Spark.
        arrived_from: ticks; of each partition, the first event that arrived then or later is the first that matters.
        arrived_before: ticks; the first that arrived then or later is the first that no longer does.
    """

    layout: RowLayout
    in_runs: bool = True
    arrived_from: int = NO_TIME
    arrived_before: int = END_OF_TIME

    def partitions(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Iterator[tuple[int, pa.Table]]]]:
        """Yield partitions, each with its rows in order, some at a time, after how many there are before them.

        Raises:
            InputError: rows cannot be events, or are not in the order in which they arrived.
        """
        pieces = merged_runs(batches, self.layout, RUN_ROWS) if self.in_runs else partitions_in(batches, RUN_ROWS)
        for partition, own in groupby(pieces, key=lambda item: item[0]):
            yield partition, self._that_matter(partition, (rows for _, rows in own))

    def _that_matter(self, partition: str, pieces: Iterator[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        count, begun = 0, self.arrived_from == NO_TIME
        order = ArrivalOrder(self.layout.input, partition) if self.layout.ordered else None
        for rows in pieces:
            placed = self.layout.placed(partition, rows, count)
            if order is not None:
                order.check(placed)
            first, count = count, count + len(rows)
            if not begun:
                later = placed.arrivals >= self.arrived_from
                if not later.any():
                    continue
                begun = True
                place = int(later.argmax())
                first, rows = first + place, rows.slice(place)
            if self.arrived_before != END_OF_TIME:
                beyond = placed.arrivals[len(placed.arrivals) - len(rows) :] >= self.arrived_before
                if beyond.any():
                    if place := int(beyond.argmax()):
                        yield first, rows.slice(0, place)
                    return
            yield first, rows


@dataclass(frozen=True, slots=True)
class _Held:
    """Sorted rows that wait for those of other runs, and their keys."""

    table: pa.Table
    keys: Int64Array


def _divided(held: Sequence[_Held], key: int) -> tuple[list[_Held], list[_Held]]:
    """Divide sorted rows into those before a key and the rest."""
    before, rest = [], []
    for one in held:
        place = int(np.searchsorted(one.keys, key))
        if place:
            before.append(_Held(one.table.slice(0, place), one.keys[:place]))
        if place < len(one.keys):
            rest.append(_Held(one.table.slice(place), one.keys[place:]))
    return before, rest


def _together(held: Sequence[_Held], layout: RowLayout, most_rows: int) -> Iterator[pa.Table]:
    """Yield the rows of several runs in order."""
    if not held:
        return
    keys = np.concatenate([one.keys for one in held])
    table = pa.concat_tables([one.table for one in held])
    order = _order(table, None, keys, layout)
    if order is not None:
        table = table.take(pa.array(order))
    for first in range(0, len(table), most_rows):
        yield table.slice(first, most_rows)


def sorted_by_partition(table: pa.Table, layout: RowLayout) -> Iterator[tuple[str, pa.Table, Int64Array]]:
    """Yield the rows of each partition in order, with their keys.

    Raises:
        InputError: a row has no key.
    """
    keys = layout.keys(table)
    names, codes = _partitions(table)
    content = table.drop_columns("partition") if "partition" in table.column_names else table
    order = _order(content, codes, keys, layout)
    if order is not None:
        content, codes, keys = content.take(pa.array(order)), codes[order], keys[order]
    begins = np.flatnonzero(np.diff(codes, prepend=-1)).tolist()
    for begin, end in zip(begins, [*begins[1:], len(codes)], strict=True):
        yield names[codes[begin]], content.slice(begin, end - begin), keys[begin:end]


def _cut(table: pa.Table, layout: RowLayout) -> Iterator[tuple[str, int, pa.Table]]:
    """Yield the runs of some rows."""
    rows_each = max(1, min(RUN_ROWS, _RUN_BYTES * len(table) // max(1, table.nbytes)))
    for partition, rows, keys in sorted_by_partition(table, layout):
        for first in range(0, len(rows), rows_each):
            yield partition, int(keys[first]), rows.slice(first, rows_each)


def _partitions(table: pa.Table) -> tuple[list[str], Int64Array]:
    """Return the names of partitions, and which of them each row is in."""
    if "partition" not in table.column_names:
        return ["0"], np.zeros(len(table), dtype=np.int64)
    encoded = table.column("partition").combine_chunks().dictionary_encode(null_encoding="encode")
    names = [NO_PARTITION if name is None else name for name in encoded.dictionary.cast(pa.string()).to_pylist()]
    # The text of a value may be the name for none.
    distinct = list(dict.fromkeys(names))
    code_of = np.array([distinct.index(name) for name in names], dtype=np.int64)
    return distinct, code_of[encoded.indices.to_numpy()]


def _order(table: pa.Table, codes: Int64Array | None, keys: Int64Array, layout: RowLayout) -> Int64Array | None:
    """Return the order of rows by partition, key and content; None if they are in it."""
    if len(keys) < 2:
        return None
    step = np.diff(keys)
    later = step > 0
    same = step == 0
    if codes is not None:
        change = np.diff(codes)
        later = (change > 0) | (change == 0) & later
        same &= change == 0
    content = layout.order[1:] if layout.order is not None else ()
    if not content and bool((later | same).all()):
        return None
    if bool(later.all()):
        return None
    order = _by_keys(codes, keys)
    if not content:
        return order
    ordered = keys[order]
    ties = np.diff(ordered) == 0
    if codes is not None:
        ties &= np.diff(codes[order]) == 0
    if not ties.any():
        return order
    # Only rows that tie are compared by content: their groups keep their places.
    tied = np.flatnonzero(np.append(ties, False) | np.insert(ties, 0, False))
    group = np.cumsum(np.insert(~ties, 0, True))[tied]
    some = table.take(pa.array(order[tied]))
    columns = [column for name in content for column in _sortable(some.column(name))]
    compared = pa.table([pa.array(group), *columns], names=[str(place) for place in range(len(columns) + 1)])
    ascending: list[tuple[str, Any]] = [(name, "ascending") for name in compared.column_names]
    places = pc.sort_indices(compared, sort_keys=ascending).to_numpy()
    order[tied] = order[tied][places]
    return order


def _by_keys(codes: Int64Array | None, keys: Int64Array) -> Int64Array:
    """Return the order of rows by partition and key; rows that tie keep theirs."""
    if codes is None:
        return np.argsort(keys, kind="stable")
    if codes.max() <= _FEW_PARTITIONS:
        # Numbers of a byte are sorted without comparing them, and the keys of a partition are mostly in order already.
        order = np.argsort(codes.astype(np.uint8), kind="stable")
        ordered = keys[order]
        if bool(((np.diff(ordered) >= 0) | (np.diff(codes[order]) > 0)).all()):
            return order
    return np.lexsort((keys, codes))


def _sortable(column: pa.ChunkedArray) -> list[Any]:
    """Return columns that sort as Spark sorts one: NULL first, NaN after all numbers, and 0 and −0 alike."""
    nulls = [column.is_valid()] if column.null_count else []
    if not pa.types.is_floating(column.type):
        return [*nulls, column]
    values = column.combine_chunks().cast(pa.float64())
    floats = values.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = floats.view(np.int64)
    ordered = np.where(np.isnan(floats), _AFTER_ALL, bits ^ ((bits >> 63) & _AFTER_ALL))
    return [*nulls, pa.array(ordered)]


def encoded(table: pa.Table, compression: str | None = None) -> pa.Buffer:
    """Return rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def decoded(content: Any) -> pa.Table:
    """Return the rows of an Arrow stream.

    Raises:
        pa.ArrowInvalid: it is not one.
    """
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


def _runs_in(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, pa.Table]]:
    """Yield the runs in sorted rows, each with its partition and the key of its first row."""
    for (_, partition, first, *_), blob in put_together(batches):
        yield partition, first, decoded(blob)
