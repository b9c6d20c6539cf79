"""A query made ready to run: what it reads, what a task computes from a batch, and what the driver makes of that."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tidegate.engine.decode import Decoded, Wanted
from tidegate.engine.rows import EventColumns, ResultRows, Rows
from tidegate.engine.values import BoolArray, Int64Array
from tidegate.saql import plan


@dataclass(frozen=True, slots=True)
class SubstreamCodes:
    """The OVER keys of n rows: ``codes`` int64[n] index ``keys``, the batch's distinct keys; −1 is a NULL key."""

    codes: Int64Array
    keys: list[Hashable]


class Program:
    """A query, prepared once and sent to the tasks; picklable, and changed by nothing."""

    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    lookback_ticks: int

    @classmethod
    def prepare(cls, query: plan.Query) -> Program:
        """Raises UnsupportedQuery for a plan this engine cannot run."""
        raise AssertionError(query)

    def has_substreams(self, input_name: str) -> bool:
        """Whether the input is read with OVER."""
        raise AssertionError(input_name)

    def wanted(self, input_name: str) -> Wanted:
        """What of a body the query needs: `Decoder(program.wanted(name)).decode(bodies)`."""
        raise AssertionError(input_name)

    def event_times(
        self, input_name: str, decoded: Decoded, partition: str, events: EventColumns
    ) -> tuple[Int64Array, BoolArray] | None:
        """TIMESTAMP BY of the decoded rows: ticks and whether they are valid; None where the arrival is the time."""
        raise AssertionError(input_name)

    def substream_codes(
        self, input_name: str, decoded: Decoded, partition: str, events: EventColumns
    ) -> SubstreamCodes | None:
        """The OVER keys of the decoded rows; None where there is no OVER."""
        raise AssertionError(input_name)

    def run_stateless(self, input_name: str, rows: Rows) -> Partial:
        """In the task: filter, project, and aggregate into panes what follows from these rows alone."""
        raise AssertionError(input_name)

    def new_state(self) -> State:
        """On the driver: nothing yet."""
        raise AssertionError

    def absorb(self, state: State, partials: Sequence[Partial]) -> None:
        """Take up what tasks computed, in any order."""
        raise AssertionError

    def release(self, state: State, from_ticks: int, watermark_ticks: int) -> list[ResultRows]:
        """Everything with from_ticks <= time < watermark_ticks, complete, an entry for each output that has rows.

        Within an output rows are in time order, rows of the same time by partition and sequence number, or by key. What is returned,
        and whatever is older, is gone from the state.
        """
        raise AssertionError


@dataclass(slots=True)
class Partial:
    """What one task makes of one batch; compact and picklable."""


@dataclass(slots=True)
class State:
    """What the driver holds between steps; picklable."""
