"""The engine: evaluates a plan over batches of columns.

A `Program` is a query made ready. Tasks `Decoder.decode` bodies, ask the program for event times, and hand the rows
that the scan lets pass to `Program.run_stateless`; the driver absorbs the partial results, in any order, and releases
finished rows as the watermark passes them. What comes out depends on the events and their stamps alone, never on how
they were cut into batches. No I/O, no clock, no Spark here.
"""

from tidegate.engine.decoding.decoded import Decoded, Problem, Wanted
from tidegate.engine.decoding.files import rows_of
from tidegate.engine.decoding.formats import FORMATS, JSON, Format, decoder_of
from tidegate.engine.decoding.json_bodies import Decoder
from tidegate.engine.decoding.limits import DEFAULT_LIMITS, Limits
from tidegate.engine.decoding.rows import EventColumns, ResultRows, Rows
from tidegate.engine.decoding.tables import TableBodies, byte_sizes
from tidegate.engine.expressions.checks import UnsupportedQuery
from tidegate.engine.expressions.failures import RuntimeErrors
from tidegate.engine.program.catalog import CATALOG
from tidegate.engine.program.program import Partial, Program, State, SubstreamCodes
from tidegate.engine.program.substream_table import BatchSubstreams
from tidegate.engine.stateful.reference import Snapshot
from tidegate.engine.substreams.emission import EmissionRange
from tidegate.engine.substreams.keys import values_of
from tidegate.engine.values.vectors import Kind, Reason, Vector

__all__ = [
    "CATALOG",
    "DEFAULT_LIMITS",
    "FORMATS",
    "JSON",
    "BatchSubstreams",
    "Decoded",
    "Decoder",
    "EmissionRange",
    "EventColumns",
    "Format",
    "Kind",
    "Limits",
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
