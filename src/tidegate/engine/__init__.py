"""The engine: evaluates a plan over batches of columns.

A `Program` is a query made ready. Tasks `Decoder.decode` bodies, ask the program for event times, and hand the rows
that the scan lets pass to `Program.run_stateless`; the driver absorbs the partial results, in any order, and releases
finished rows as the watermark passes them. What comes out depends on the events and their stamps alone, never on how
they were cut into batches. No I/O, no clock, no Spark here.
"""

from tidegate.engine.checks import UnsupportedQuery
from tidegate.engine.decode import Decoder
from tidegate.engine.decoded import Decoded, Problem, Wanted
from tidegate.engine.departing import Leaving
from tidegate.engine.failures import RuntimeErrors
from tidegate.engine.formats import JSON, Format, decoder_of, rows_of
from tidegate.engine.program import Partial, Program, State, SubstreamCodes
from tidegate.engine.reference import Snapshot
from tidegate.engine.rows import EventColumns, ResultRows, Rows
from tidegate.engine.substream_keys import values_of
from tidegate.engine.substream_table import BatchSubstreams
from tidegate.engine.supported import SUPPORTED
from tidegate.engine.tables import TableBodies, byte_sizes
from tidegate.engine.values import Kind, Reason, Vector

__all__ = [
    "JSON",
    "SUPPORTED",
    "BatchSubstreams",
    "Decoded",
    "Decoder",
    "EventColumns",
    "Format",
    "Kind",
    "Leaving",
    "Partial",
    "Problem",
    "Program",
    "Reason",
    "ResultRows",
    "Rows",
    "RuntimeErrors",
    "Snapshot",
    "State",
    "SubstreamCodes",
    "TableBodies",
    "UnsupportedQuery",
    "Vector",
    "Wanted",
    "byte_sizes",
    "decoder_of",
    "rows_of",
    "values_of",
]
