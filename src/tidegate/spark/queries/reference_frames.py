"""DataFrames as reference data: tables that the streams of a query are joined to.

The driver collects the rows as a Parquet file. From there they are reference data like any file: the state folder of a
query that runs has them, so that it joins the same rows after a restart, and executors get them with the program.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions

from tidegate.blobs import Blob, BlobError
from tidegate.connectors.inputs.reference import ReferenceFiles, ReferenceSection
from tidegate.connectors.model.errors import JobError
from tidegate.engine import DecodingLimits, Format
from tidegate.ordering import format_time
from tidegate.spark.queries.column_types import check_types, collected, has_map
from tidegate.spark.queries.frame_events import column_of

FrameSource: TypeAlias = DataFrame | Callable[[], DataFrame]

_LOOK_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class ReferenceOfFrame:
    """A DataFrame whose rows are reference data.

    Attributes:
        source: the DataFrame, or a function that returns it.
        refresh_s: how often the rows are read again; None: they are read once.
    """

    source: FrameSource
    refresh_s: float | None = None
    _tables: FrameTables = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # One reader for all that opens this input, so that the DataFrame is not computed each time.
        object.__setattr__(self, "_tables", FrameTables(self.source, self.refresh_s))

    @property
    def frame(self) -> DataFrame:
        """The DataFrame as it is known without reading a row."""
        return self._tables.frame

    def section(self) -> FrameSection:
        """Return the input's section, as a job file would have it for a kind of its own."""
        return FrameSection(tables=self._tables, refresh_s=self.refresh_s or _LOOK_EVERY_S)


def reference(frame: FrameSource, *, refresh_s: float | None = None) -> ReferenceOfFrame:
    """Return the rows of a DataFrame as reference data, for an input of `sql` or `stream` that the query joins.

    The driver collects the rows, and every task has them, as with a broadcast join. They are read when the query is
    prepared. In `stream`, the table that a query began with is kept in the checkpoint, and a row is joined to the table
    that was effective at its time, whatever the DataFrame returns after a restart.

    Args:
        frame: the table, or a function that returns it, which is called each time the rows are read.
        refresh_s: in `stream`, read the rows again this often. If they have changed, they are the table from the time
            of reading on. Without it that happens at a restart only.

    Raises:
        JobError: the DataFrame is a stream, or has a column that cannot be used.
    """
    if not isinstance(frame, DataFrame) and not callable(frame):
        raise JobError(f"reference(): expected a DataFrame or a function that returns one, got {type(frame).__name__}")
    if refresh_s is not None and not refresh_s > 0:
        raise JobError(f"reference(refresh_s={refresh_s!r}): expected seconds, more than 0")
    return ReferenceOfFrame(frame, refresh_s)


class FrameSection(ReferenceSection):
    """The section of an input whose table is a DataFrame; no job file has it."""

    type: Literal["dataframe"] = "dataframe"
    tables: Any

    def open_tables(self) -> ReferenceFiles:
        tables: FrameTables = self.tables
        return tables

    def file_format(self, name: str, limits: DecodingLimits) -> Format:
        return Format("parquet", limits=limits)


class FrameTables:
    """The rows of a DataFrame, and when they were read."""

    are_timed = False
    described = "in the DataFrame"

    def __init__(self, source: FrameSource, refresh_s: float | None) -> None:
        """
        Raises:
            JobError: the DataFrame cannot be reference data.
        """
        self._source = source
        self._refresh_s = refresh_s
        self.frame = _checked(source)
        self._fresh = True
        self._read_at_s = float("-inf")
        self._blob: Blob | None = None
        self._content = b""

    def find(self) -> list[tuple[Blob, int | None]]:
        """Read the DataFrame if it is time to; rows that differ from those before are a new table."""
        due = self._refresh_s is not None and time.monotonic() - self._read_at_s >= self._refresh_s
        if self._blob is None or due:
            now = time.time_ns() // 100
            content = self._read()
            self._read_at_s = time.monotonic()
            if self._blob is None or content != self._content:
                digest = hashlib.sha256(content).hexdigest()[:16]
                self._blob = Blob(f"the DataFrame read at {format_time(now)}", len(content), now, digest)
                self._content = content
        return [(self._blob, None)]

    def read_blob(self, blob: Blob) -> bytes:
        return self._content

    def has_settled(self, blob: Blob) -> bool:
        return True

    def _read(self) -> bytes:
        """Return the rows as a Parquet file, whose bytes are the same if the rows are, in whatever order Spark is."""
        try:
            if not self._fresh:
                self.frame = _checked(self._source)
            self._fresh = False
            return _parquet(collected(self.frame.orderBy(*_order(self.frame))))
        except JobError as error:
            raise BlobError(str(error)) from None
        except (Py4JError, PySparkException, pa.ArrowException) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise BlobError(f"the DataFrame cannot be read: {lines[0]}") from error


def _checked(source: FrameSource) -> DataFrame:
    frame = source if isinstance(source, DataFrame) else source()
    if not isinstance(frame, DataFrame):
        raise JobError(f"reference(): the function returned {type(frame).__name__}, expected a DataFrame")
    if frame.isStreaming:
        raise JobError(
            "reference(): the DataFrame is a stream, and reference data are a table; pass what the stream reads, as "
            "spark.read returns it, with refresh_s= to read it again while the query runs"
        )
    if not frame.columns:
        raise JobError("reference(): the DataFrame has no columns")
    name, count = Counter(name.lower() for name in frame.columns).most_common(1)[0]
    if count > 1:
        raise JobError(f"reference(): the DataFrame has {count} columns '{name}'; rename or drop all but one")
    check_types(frame.schema.fields, "reference()")
    return frame


def _order(frame: DataFrame) -> list[Any]:
    columns = [(column_of(one.name), has_map(one.dataType)) for one in frame.schema.fields]
    return [functions.to_json(functions.struct(column)) if maps else column for column, maps in columns]


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    # In one chunk: how Spark cut the rows into batches must not show.
    pq.write_table(table.combine_chunks(), buffer, compression="zstd", use_dictionary=False, write_statistics=False)
    return buffer.getvalue()
