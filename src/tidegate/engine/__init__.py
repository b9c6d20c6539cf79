"""The engine: evaluates a plan over batches of columns.

A `Program` is a compiled query. Tasks use its `TaskSide`: `decode` turns bodies into columns, and `run` filters,
projects and pre-aggregates the rows that the scan lets pass. A `KeyedSide` absorbs the partial results of tasks, in any
order, and emits finished rows as the watermark passes them. Results depend on the events and their stamps alone, never
on how they were cut into batches. There is no I/O, no clock and no Spark here.
"""

from typing import TYPE_CHECKING

from tidegate.lazy import lazy_names

if TYPE_CHECKING:
    from tidegate.engine.decoding.avro import ValueReader, read_container
    from tidegate.engine.decoding.content import rows_of
    from tidegate.engine.decoding.decoded import Decoded, Problem, Wanted
    from tidegate.engine.decoding.formats import FORMATS, JSON, Format, Unreadable, decoder_of
    from tidegate.engine.decoding.json_bodies import Decoder
    from tidegate.engine.decoding.limits import DEFAULT_LIMITS, DecodingLimits
    from tidegate.engine.decoding.rows import EventColumns, ResultRows
    from tidegate.engine.decoding.tables import TableBodies, byte_sizes
    from tidegate.engine.expressions.checks import UnsupportedQuery
    from tidegate.engine.expressions.registered import FunctionCalls
    from tidegate.engine.expressions.relations import RuntimeErrors
    from tidegate.engine.program.keyed_side import KeyedSide
    from tidegate.engine.program.operators import CATALOG
    from tidegate.engine.program.partial import BatchSubstreams, OperatorRows, Partial
    from tidegate.engine.program.program import Program
    from tidegate.engine.program.task_side import BatchEvents, DecodedBatch, Stamped, SubstreamCodes, TaskSide
    from tidegate.engine.stateful.reference import TableVersion
    from tidegate.engine.substreams.keys import values_of
    from tidegate.engine.substreams.watermarks import EmissionRange
    from tidegate.engine.values.budget import BatchTooLarge
    from tidegate.engine.values.vectors import Datetime, Kind, Reason, Vector
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "CATALOG",
    "DEFAULT_LIMITS",
    "FORMATS",
    "JSON",
    "BatchEvents",
    "BatchSubstreams",
    "BatchTooLarge",
    "Datetime",
    "Decoded",
    "DecodedBatch",
    "Decoder",
    "DecodingLimits",
    "EmissionRange",
    "EventColumns",
    "Format",
    "FunctionCalls",
    "KeyedSide",
    "Kind",
    "OperatorRows",
    "Partial",
    "Problem",
    "Program",
    "Reason",
    "ResultRows",
    "RuntimeErrors",
    "Stamped",
    "SubstreamCodes",
    "TableBodies",
    "TableVersion",
    "TaskSide",
    "Unreadable",
    "UnsupportedQuery",
    "ValueReader",
    "Vector",
    "Wanted",
    "byte_sizes",
    "decoder_of",
    "read_container",
    "rows_of",
    "values_of",
]
