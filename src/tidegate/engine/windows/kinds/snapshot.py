"""Snapshot windows: rows with the same System.Timestamp.
https://learn.microsoft.com/stream-analytics-query/snapshot-window-azure-stream-analytics
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.engine.values.vectors import Int64Array
from tidegate.engine.windows.kind import PaneWindow
from tidegate.ordering import short_time


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
