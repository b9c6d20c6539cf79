"""The windows of GROUP BY, by the names a query may use."""

from __future__ import annotations

WINDOWS: dict[str, str] = {
    "tumblingwindow": "TumblingWindow",
    "tumbling": "TumblingWindow",
    "hoppingwindow": "HoppingWindow",
    "hopping": "HoppingWindow",
    "slidingwindow": "SlidingWindow",
    "sliding": "SlidingWindow",
    "sessionwindow": "SessionWindow",
    "session": "SessionWindow",
    "windows": "Windows",
}
