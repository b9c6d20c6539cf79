"""Units of time: their names in the query language, and how many ticks of 100 ns they hold."""

from __future__ import annotations

MICROSECOND = 10
MILLISECOND = 1_000 * MICROSECOND
SECOND = 1_000 * MILLISECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

# long form -> ticks, for the units that have a constant length
TICKS = {
    "microsecond": MICROSECOND,
    "millisecond": MILLISECOND,
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "week": WEEK,
}

# Those that windows, LIMIT DURATION and Offset take (Windowing functions, "timeunit").
WINDOW_UNITS = ("day", "hour", "minute", "second", "millisecond", "microsecond")

# Those that DATEADD and DATEDIFF take (Date and time functions, "datepart").
DATE_PARTS = (
    "year",
    "quarter",
    "month",
    "dayofyear",
    "day",
    "week",
    "weekday",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
)

# Those that DATENAME and DATEPART take, too.
NAMED_PARTS = (*DATE_PARTS, "nanosecond", "iso_week", "tzoffset")

_ABBREVIATIONS = {
    "yy": "year",
    "yyyy": "year",
    "qq": "quarter",
    "q": "quarter",
    "mm": "month",
    "m": "month",
    "dy": "dayofyear",
    "y": "dayofyear",
    "dd": "day",
    "d": "day",
    "wk": "week",
    "ww": "week",
    "dw": "weekday",
    "w": "weekday",
    "hh": "hour",
    "mi": "minute",
    "n": "minute",
    "ss": "second",
    "s": "second",
    "ms": "millisecond",
    "mcs": "microsecond",
    "ns": "nanosecond",
    "isowk": "iso_week",
    "isoww": "iso_week",
    "tz": "tzoffset",
}

INSTEAD = {"dayofweek": "weekday", "weekofyear": "week"}
"""What other languages call a unit, and its name here."""


def long_form(word: str) -> str | None:
    """Return "minute" for "mi", and None if no unit has that name."""
    lowered = word.lower()
    if lowered in NAMED_PARTS:
        return lowered
    # "hours", as in the examples of the percentiles.
    return lowered[:-1] if lowered[:-1] in TICKS and lowered.endswith("s") else _ABBREVIATIONS.get(lowered)
