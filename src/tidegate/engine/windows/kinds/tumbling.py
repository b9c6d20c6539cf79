"""Tumbling windows: one after the other, each event in one.
https://learn.microsoft.com/stream-analytics-query/tumbling-window-azure-stream-analytics
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.engine.values.vectors import Int64Array
from tidegate.engine.windows.boundaries import ceil_to, spans_of
from tidegate.engine.windows.kind import PaneWindow
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
