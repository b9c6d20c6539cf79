"""What the engine asks of a window: which windows a row is in, and how they are evaluated.

Two roles are kept apart (as in Bytewax's `Windower` and `WindowLogic`): the window says where rows go, the aggregates
what is kept of them. A kind of window is specified by one class, which derives from `PaneWindow` or `RowWindow` and is
found because a module of `engine.windows.kinds` defines it. The compiler, the operators, the estimate of memory,
`explain` and the reference all ask this class.

Where windows and their panes end.

A window is (start, end]: an event at its end belongs to it, one at its start does not. Ends of tumbling and hopping
windows are the multiples of the hop, counted from 0001-01-01T00:00:00Z, plus the offset. The end of a window that
would lie beyond the calendar is the calendar's end.

A hopping window is made of panes: stretches of the greatest common divisor of size and hop, so that every window is a
whole number of them (Li et al., "No Pane, No Gain", 2005, https://doi.org/10.1145/1058150.1058158). A tumbling window
is one pane. So an event is added to one pane, however many windows it is in.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, Protocol

import numpy as np

from tidegate.engine.aggregates.states.state import Summary
from tidegate.engine.expressions.frames import Frame
from tidegate.engine.expressions.relations import Failures
from tidegate.engine.substreams.watermarks import Watermark
from tidegate.engine.values.vectors import Int64Array
from tidegate.engine.windows.pane_tables import PaneTable
from tidegate.ordering import format_duration, short_time
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS
from tidegate.sql.plan import nodes as plan


@dataclass(frozen=True, slots=True)
class Panes:
    """How a hopping window divides time.

    Attributes:
        pane_ticks: the length of a pane.
        panes_a_window, panes_a_hop: how many panes make a window and a hop.
        offset_ticks: by how much ends are shifted.
    """

    pane_ticks: int
    panes_a_window: int
    panes_a_hop: int
    offset_ticks: int = 0

    @classmethod
    def of(cls, size_ticks: int, hop_ticks: int, offset_ticks: int = 0) -> Panes:
        """Return the longest panes of which size and hop are whole numbers."""
        pane = gcd(size_ticks, hop_ticks)
        return cls(pane, size_ticks // pane, hop_ticks // pane, offset_ticks)

    @property
    def size_ticks(self) -> int:
        """The length of a window."""
        return self.pane_ticks * self.panes_a_window

    def ends(self, times: Int64Array) -> Int64Array:
        """Return the end of the pane that each time is in."""
        return ceil_to(times, self.pane_ticks, self.offset_ticks)


def spans_of(time: int, size_ticks: int, hop_ticks: int, offset_ticks: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the windows (start, end] that hold a time, of those that end at the multiples of the hop."""
    origin = FIRST_TICKS + offset_ticks
    first = -((origin - time) // hop_ticks) * hop_ticks + origin
    return tuple((end - size_ticks, end) for end in range(first, time + size_ticks, hop_ticks))


def ceil_to(times: Int64Array, unit_ticks: int, offset_ticks: int = 0) -> Int64Array:
    """Return the first multiple of ``unit_ticks`` (from 0001-01-01, plus an offset) that is not before each time."""
    origin = FIRST_TICKS + offset_ticks
    ends: Int64Array = -((origin - times) // unit_ticks) * unit_ticks + origin
    return ends


def within_calendar(ends: Int64Array) -> Int64Array:
    """Return the ends of windows, at most the end of the calendar."""
    return np.minimum(ends, LAST_TICKS)


_MOST_WINDOWS_SAID = 3


class PaneAssembler(Protocol):
    """Assembles windows from complete panes, where a window is more than one pane."""

    def new_state(self) -> Any:
        """Return an empty state."""

    def release_panes(
        self, state: Any, table: PaneTable | None, from_ticks: int, watermark: Watermark
    ) -> PaneTable | None:
        """Return a line for each key and window that ends before the watermark; None if there are none.

        Args:
            table: the panes that have become complete, merged.
            from_ticks: windows that end earlier may be left out.
        """


class GroupOperator(Protocol):
    """The operator of a GROUP BY, for one window or several (`engine.program` describes the methods)."""

    @property
    def relation(self) -> plan.Relation: ...

    @property
    def sources(self) -> tuple[plan.Relation, ...]: ...

    @property
    def delay_ticks(self) -> int: ...

    def new_state(self) -> Any:
        """Return an empty state."""

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Any | None:
        """Return what is kept of rows; None if that is nothing."""

    def absorb(self, state: Any, side: int, payload: Any) -> None:
        """Add reduced rows to the state, in any order."""

    def release_rows(self, state: Any, watermark: Watermark, failures: Failures, /) -> Frame | None:
        """Return the results of all windows that end before the watermark, in the order of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowKind(plan.Window):
    """A kind of window that the engine evaluates."""

    @property
    @abstractmethod
    def kept_ticks(self) -> int:
        """For how long rows or their states are kept, in event time."""

    @property
    def ends_are_known(self) -> bool:
        """Whether the ends of a row's windows follow from its time alone."""
        return False

    @abstractmethod
    def spans_of(self, time: int) -> tuple[tuple[int, int], ...]:
        """Return the windows (start, end] of a row with a time, if they follow from the time alone; else ()."""

    @abstractmethod
    def describe_windows(self, time: int) -> str:
        """Describe the windows that a row with a time is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaneWindow(WindowKind):
    """A window that comes in panes: stretches of time that are aggregated as a whole.

    A row is in the pane that ends at `pane_ends`. Of a pane only the aggregates are kept.
    """

    @property
    def pane_ticks(self) -> int:
        """The length of a pane; 0 where panes have no common length."""
        return 0

    @property
    def panes_a_window(self) -> int:
        """The largest number of panes of a window."""
        return 1

    @abstractmethod
    def pane_ends(self, times: Int64Array) -> Int64Array:
        """Return the end of the pane that each time is in."""

    def assembler(self, summaries: Sequence[Summary]) -> PaneAssembler | None:
        """Return what assembles windows from panes with these summaries; None if each pane is a window."""
        return None

    @property
    def kept_ticks(self) -> int:
        return self.lookback_ticks

    def describe_windows(self, time: int) -> str:
        spans = self.spans_of(time)
        shown = [f"({short_time(start)}, {short_time(end)}]" for start, end in spans]
        if len(shown) > _MOST_WINDOWS_SAID:
            shown = [shown[0], f"… ({len(shown)} windows) …", shown[-1]]
        several = "s" if len(spans) > 1 else ""
        return f"the {self.word} window{several} of {format_duration(self.lookback_ticks)} {', '.join(shown)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWindow(WindowKind):
    """A window whose bounds depend on other rows: rows are held for as long as a window may contain them."""

    @abstractmethod
    def operator(self, relation: plan.Aggregate, window_id: str | None) -> GroupOperator:
        """Return the operator of an aggregate over this window alone."""

    def spans_of(self, time: int) -> tuple[tuple[int, int], ...]:
        return ()


def ends_of(relation: plan.Relation, times: Int64Array) -> Int64Array:
    """Return the end of the first window's pane that each time is in."""
    assert isinstance(relation, plan.Aggregate)
    window = relation.windows[0].window
    assert isinstance(window, PaneWindow)
    return window.pane_ends(times)


def kind_of(window: plan.Window) -> WindowKind:
    """Return a window of a plan as the kind that the engine evaluates.

    Raises:
        TypeError: The engine does not evaluate such windows.
    """
    if not isinstance(window, WindowKind):
        raise TypeError(f"the engine does not evaluate {type(window).__name__}")
    return window
