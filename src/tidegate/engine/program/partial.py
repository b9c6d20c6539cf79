"""The partial result of a batch: what a task sends to the keyed side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidegate.engine.expressions.failures import RuntimeErrors
from tidegate.engine.expressions.registered import FunctionCalls
from tidegate.engine.program.operator_rows import OperatorRows
from tidegate.engine.program.substream_table import BatchSubstreams
from tidegate.engine.values.vectors import Int64Array


@dataclass(slots=True)
class Partial:
    """The partial result of one batch; compact and picklable.

    Attributes:
        payloads: by operator and side (which of its sources), the reduced rows.
        errors: the rows that were lost, with their places in the decoded batch; they stay in the task.
        calls: of registered functions; they stay in the task.
        rows: how many rows reached each operator; they stay in the task.
        split: places of rows whose key is text, and a number in other rows of the batch; they stay in the task.
        substreams: those of the batch, if results are emitted by substream; rows carry indexes into its keys.
    """

    payloads: dict[tuple[int, int], Any] = field(default_factory=dict)
    errors: list[RuntimeErrors] = field(default_factory=list)
    substreams: BatchSubstreams | None = None
    calls: FunctionCalls = field(default_factory=FunctionCalls)
    rows: OperatorRows = field(default_factory=OperatorRows)
    split: list[Int64Array] = field(default_factory=list)

    def __getstate__(self) -> tuple[dict[tuple[int, int], Any], BatchSubstreams | None]:
        return self.payloads, self.substreams

    def __setstate__(self, state: tuple[dict[tuple[int, int], Any], BatchSubstreams | None]) -> None:
        self.payloads, self.substreams = state
        self.errors = []
        self.calls = FunctionCalls()
        self.rows = OperatorRows()
        self.split = []
