"""Windows that come in panes: tumbling, hopping and snapshot windows.
https://learn.microsoft.com/stream-analytics-query/tumbling-window-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/hopping-window-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/snapshot-window-azure-stream-analytics
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.engine.aggregates.states.state import Summary
from tidegate.engine.values.vectors import Int64Array
from tidegate.engine.windows.hopping_panes import HoppingPanes
from tidegate.engine.windows.kind import Panes, PaneWindow, ceil_to, spans_of
from tidegate.ordering import short_time
from tidegate.sql.plan.explain import duration, offset
from tidegate.sql.plan.nodes import Length


@dataclass(frozen=True, slots=True)
class Tumbling(PaneWindow):
    """Ends at every multiple of ``size_ticks`` (from 0001-01-01) plus ``offset_ticks``."""

    names = ("TumblingWindow", "Tumbling")
    lengths = (Length("Duration"), Length("Offset", "offset", optional=True, signed=True))
    example = "TumblingWindow(second, 10)"
    description = "One window after the other, without gaps; each event is in one."
    word = "tumbling"

    size_ticks: int
    offset_ticks: int = 0

    @property
    def lookback_ticks(self) -> int:
        return self.size_ticks

    @property
    def windows_of_an_event(self) -> int:
        return 1

    @property
    def ends_are_known(self) -> bool:
        return True

    @property
    def pane_ticks(self) -> int:
        return self.size_ticks

    def pane_ends(self, times: Int64Array) -> Int64Array:
        return ceil_to(times, self.size_ticks, self.offset_ticks)

    def spans_of(self, time: int) -> tuple[tuple[int, int], ...]:
        return spans_of(time, self.size_ticks, self.size_ticks, self.offset_ticks)

    def describe(self) -> str:
        return f"tumbling({duration(self.size_ticks)}{offset(self.offset_ticks)})"


@dataclass(frozen=True, slots=True)
class Hopping(PaneWindow):
    """Ends at every multiple of ``hop_ticks`` (from 0001-01-01) plus ``offset_ticks``; looks back ``size_ticks``."""

    names = ("HoppingWindow", "Hopping")
    lengths = (Length("Duration"), Length("Hop", "hop"), Length("Offset", "offset", optional=True, signed=True))
    example = "HoppingWindow(second, 10, 5)"
    description = "Windows of one size, one at each hop; with a hop shorter than the size they overlap."
    word = "hopping"

    size_ticks: int
    hop_ticks: int
    offset_ticks: int = 0

    @property
    def lookback_ticks(self) -> int:
        return self.size_ticks

    @property
    def windows_of_an_event(self) -> int:
        return -(-self.size_ticks // self.hop_ticks)

    @property
    def panes(self) -> Panes:
        """Its panes, the longest there are."""
        return Panes.of(self.size_ticks, self.hop_ticks, self.offset_ticks)

    @property
    def ends_are_known(self) -> bool:
        return True

    @property
    def pane_ticks(self) -> int:
        return self.panes.pane_ticks

    @property
    def panes_a_window(self) -> int:
        return self.panes.panes_a_window

    def pane_ends(self, times: Int64Array) -> Int64Array:
        return self.panes.ends(times)

    def assembler(self, summaries: Sequence[Summary]) -> HoppingPanes | None:
        return None if self.size_ticks == self.hop_ticks else HoppingPanes(self.panes, summaries)

    def spans_of(self, time: int) -> tuple[tuple[int, int], ...]:
        return spans_of(time, self.size_ticks, self.hop_ticks, self.offset_ticks)

    @property
    def oddity(self) -> tuple[str, str] | None:
        if self.hop_ticks <= self.size_ticks:
            return None
        message = "events between these windows are in none of them: the hop is longer than the window"
        return message, "HoppingWindow(unit, size, hop)"

    def describe(self) -> str:
        return f"hopping({duration(self.size_ticks)}, hop {duration(self.hop_ticks)}{offset(self.offset_ticks)})"


@dataclass(frozen=True, slots=True)
class Snapshot(PaneWindow):
    """Rows with the same System.Timestamp."""

    names = ("System.Timestamp",)
    lengths = ()
    example = "System.Timestamp()"
    description = "The events of one instant."
    word = "snapshot"

    @property
    def lookback_ticks(self) -> int:
        return 0

    @property
    def windows_of_an_event(self) -> int:
        return 1

    def pane_ends(self, times: Int64Array) -> Int64Array:
        return times

    def spans_of(self, time: int) -> tuple[tuple[int, int], ...]:
        return ((time, time),)

    def describe_windows(self, time: int) -> str:
        return f"the snapshot of {short_time(time)}"

    def describe(self) -> str:
        return "snapshot"
