"""What evaluating one row may cost, and how much a task holds at a time.

One event must not stop a job, so an operation estimates what it is about to spend and refuses the row first. Estimates
count bytes, elements, vertices and rows, never seconds or free memory: the same log gives the same bytes on every
machine. A row beyond a limit of this module is a runtime error of that row (`Reason.LIMIT`).

Limits of one row do not bound a batch of rows. An operation that makes large columns therefore reserves their bytes;
when those of a batch exceed `BATCH_BYTES`, the task takes the batch again in two halves (`BatchTooLarge`). Results do
not depend on how the log is cut into batches, so that is invisible.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tidegate.engine.values.vectors import Int64Array, Kind, Reason, Vector

LONGEST_TEXT_BYTES = 4 << 20
"""The longest text that an expression may compute, in UTF-8."""
LONGEST_PATTERN = 8_000
"""The characters of a pattern: of LIKE, PATINDEX or RegexMatch."""
LARGEST_EXPRESSION = 50_000
"""The size of a regular expression with its repetitions written out."""
MOST_LIKE_STEPS = 1 << 25
"""The characters of a text times those of a long segment between two ``%`` with wildcards."""
MOST_VALUES = 1_000_000
"""The values in a record or array: of a body, of JSON_PARSE or CAST."""
MOST_ROWS_OF_ONE = 100_000
"""The rows that CROSS APPLY may make of one event."""
APPLIED_BYTES = 64 << 20
"""The bytes of text that CROSS APPLY may repeat beside the elements of one row, and of records and arrays, as JSON, in
the rows of an output."""
MOST_VERTICES = 100_000
"""The vertices of one geometry."""
MOST_EDGE_PAIRS = 10_000_000
"""The holes of a polygon times the vertices of its longest ring, and the pairs of edges whose bounding boxes meet: in a
ring, and between two geometries that are compared."""
MOST_CROSSINGS = 10_000
"""The pairs of edges whose bounding boxes meet, in a ring that crosses itself, between a ring and its holes, in united
parts, and in what crosses the date line."""
BATCH_BYTES = 256 << 20
"""The bytes of one computed column for the rows of one event, and of all columns for a batch before it is halved."""

_SMALL_BYTES = 1 << 20


class BatchTooLarge(Exception):
    """The events of a batch take more memory than a task may use at a time; fewer of them will not.

    Attributes:
        fits: how many of the first events certainly fit; None if that is unknown.
    """

    def __init__(self, fits: int | None = None) -> None:
        super().__init__("the batch is too large to be taken at once")
        self.fits = fits


@dataclass(slots=True)
class _Batch:
    """What is evaluated at present.

    Attributes:
        divisible: whether it has several events, so that it can be taken in parts.
        bytes: of the columns that were computed.
    """

    divisible: bool
    bytes: int = 0


_batch: ContextVar[_Batch | None] = ContextVar("the batch that is evaluated", default=None)


@contextmanager
def batch_of(events: int) -> Iterator[None]:
    """Bound what is evaluated inside by `BATCH_BYTES`: a batch of several events is divided, the rows of one fail."""
    token = _batch.set(_Batch(events > 1))
    try:
        yield
    finally:
        _batch.reset(token)


def is_too_much(count: int, *, so_far: bool = False) -> bool:
    """Account for the bytes of a column that is about to be computed; return whether the rows must fail instead.

    Args:
        so_far: the column is not complete yet, and will be accounted for once it is.

    Raises:
        BatchTooLarge: they are too many for a batch that can be divided.
    """
    batch = _batch.get()
    if batch is None or count <= _SMALL_BYTES:
        return False
    if not batch.divisible:
        return count > BATCH_BYTES
    if batch.bytes + count > BATCH_BYTES:
        raise BatchTooLarge
    batch.bytes += 0 if so_far else count
    return False


def text_bytes(vector: Vector) -> int:
    """Return about how many bytes the texts of a vector take, in constant time."""
    return 0 if vector.texts is None else int(vector.texts.nbytes)


def within_text_limit(vector: Vector) -> Vector:
    """Return a computed column with a failure in place of each text that is too long."""
    if vector.texts is None or text_bytes(vector) <= LONGEST_TEXT_BYTES:
        return vector
    if is_too_much(text_bytes(vector)):
        return beyond_limit(vector, vector.kinds == Kind.NVARCHAR)
    sizes = pc.fill_null(pc.binary_length(vector.texts), 0).to_numpy(zero_copy_only=False)
    return beyond_limit(vector, (sizes > LONGEST_TEXT_BYTES) & (vector.kinds == Kind.NVARCHAR))


def repeated(vector: Vector, rows: Int64Array) -> Vector:
    """Return the values at ``rows``, which may repeat one; texts that would take too much together fail."""
    if len(rows) > len(vector) and vector.texts is not None and len(vector):
        sizes = pc.fill_null(pc.binary_length(vector.texts), 0).to_numpy(zero_copy_only=False)
        if is_too_much(int(sizes[rows].sum())):
            vector = beyond_limit(vector, vector.kinds == Kind.NVARCHAR)
    return vector.take(rows)


def repeated_bytes(vector: Vector) -> Int64Array:
    """int64[n]: about how many bytes of JSON the record or array of each row takes, if it is that of other rows too."""
    sizes = np.zeros(len(vector), dtype=np.int64)
    if vector.objects is None or len(vector) < 2:
        return sizes
    ids = np.fromiter(map(id, vector.objects), dtype=np.int64, count=len(vector))
    _, firsts, owners, counts = np.unique(ids, return_index=True, return_inverse=True, return_counts=True)
    for one in np.flatnonzero(counts > 1).tolist():
        value = vector.objects[firsts[one]]
        if isinstance(value, dict | list):
            sizes[owners == one] = _json_bytes(value, APPLIED_BYTES // int(counts[one]))
    return sizes


def _json_bytes(value: Any, most: int) -> int:
    """Return about how many bytes of JSON a value takes; it is not looked at further once there are more."""
    size, waiting = 0, [value]
    while waiting and size <= most:
        match waiting.pop():
            case dict() as record:
                size += 2 + sum(len(name) + 4 for name in record)
                waiting += record.values()
            case list() as array:
                size += 2 + len(array)
                waiting += array
            case str() as text:
                size += len(text) + 2
            case _:
                size += 4
    return size


def beyond_limit(vector: Vector, failed: Any) -> Vector:
    """Return the vector with the failure `Reason.LIMIT` where ``failed``; the texts there are forgotten."""
    if not failed.any():
        return vector
    texts = None if vector.texts is None else pc.if_else(failed, None, vector.texts)
    failing = vector.failing(failed, Reason.LIMIT)
    return failing.with_kinds(failing.kinds, texts=texts)


def may_hold_too_many(text: bytes | str, most: int = MOST_VALUES) -> bool:
    """Return whether a JSON text may hold more values than a row may have, which is certain only below that length."""
    if len(text) < most:
        return False
    if isinstance(text, str):
        return text.count(",") + text.count("[") + text.count("{") >= most
    return text.count(b",") + text.count(b"[") + text.count(b"{") >= most
