"""Ticks: the unit in which everything here counts time.

A tick is 100 ns, counted as int64 from 1970-01-01T00:00:00Z (the resolution of the service's datetime type). All of
the calendar that datetime knows, years 1 to 9999, lies well inside int64, so the two ends of int64 are free to mean
"no time yet" and "the end of time".
"""

from __future__ import annotations

import re
from datetime import date

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

TICKS_PER_MICROSECOND = 10
TICKS_PER_MILLISECOND = 10_000
TICKS_PER_SECOND = 10_000_000
TICKS_PER_MINUTE = 60 * TICKS_PER_SECOND
TICKS_PER_HOUR = 60 * TICKS_PER_MINUTE
TICKS_PER_DAY = 24 * TICKS_PER_HOUR

NO_TIME = -(2**63)
END_OF_TIME = 2**63 - 1

FIRST_TICKS = -719_162 * TICKS_PER_DAY
"""0001-01-01T00:00:00.0000000Z, the first instant of datetime and the origin from which windows are aligned."""
LAST_TICKS = 2_932_897 * TICKS_PER_DAY - 1
"""9999-12-31T23:59:59.9999999Z, the last instant of datetime."""

TEXT_LENGTH = 28

_ISO_8601 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})"
    r"(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,7}))?)?\s?(Z|z|[+-]\d{2}:?\d{2})?)?"
)


def text_of_ticks(ticks: Times) -> npt.NDArray[np.uint8]:
    """Return the ISO 8601 text of each time as ASCII: uint8[n, 28], one row like ``2019-01-01T12:07:00.0000000Z``.

    A fixed width, so that the matrix is at once the data of a string column. Raises ValueError for a time outside
    years 1 to 9999 (NO_TIME and END_OF_TIME have no text).
    """
    ticks = np.asarray(ticks, dtype=np.int64)
    if ticks.size and (int(ticks.min()) < FIRST_TICKS or int(ticks.max()) > LAST_TICKS):
        raise ValueError("a time outside years 1 to 9999 has no text")
    text = np.empty((ticks.size, TEXT_LENGTH), dtype=np.uint8)
    days, of_day = np.divmod(ticks, TICKS_PER_DAY)
    # A stretch of events touches few days, so the calendar is asked once a day and not once an event.
    distinct_days, which = np.unique(days, return_inverse=True)
    dates = "".join(date.fromordinal(int(day) + 719_163).isoformat() for day in distinct_days)
    text[:, :10] = np.frombuffer(dates.encode(), dtype=np.uint8).reshape(-1, 10)[which]
    seconds, fraction = np.divmod(of_day, TICKS_PER_SECOND)
    minutes, second = np.divmod(seconds, 60)
    hour, minute = np.divmod(minutes, 60)
    for column, number, digits in ((11, hour, 2), (14, minute, 2), (17, second, 2), (20, fraction, 7)):
        rest = number
        for place in range(column + digits - 1, column - 1, -1):
            rest, digit = np.divmod(rest, 10)
            text[:, place] = digit + ord("0")
    for place, sign in ((10, "T"), (13, ":"), (16, ":"), (19, "."), (27, "Z")):
        text[:, place] = ord(sign)
    return text


def format_ticks(ticks: Times) -> list[str]:
    """Return the ISO 8601 text of each time, as :func:`text_of_ticks` but as Python strings."""
    joined = text_of_ticks(ticks).tobytes().decode("ascii")
    return [joined[start : start + TEXT_LENGTH] for start in range(0, len(joined), TEXT_LENGTH)]


def format_time(ticks: int) -> str:
    """Return the ISO 8601 text of one time, with seven digits. Raises ValueError outside years 1 to 9999."""
    if not FIRST_TICKS <= ticks <= LAST_TICKS:
        raise ValueError("a time outside years 1 to 9999 has no text")
    days, of_day = divmod(ticks, TICKS_PER_DAY)
    seconds, fraction = divmod(of_day, TICKS_PER_SECOND)
    day = date.fromordinal(days + 719_163).isoformat()
    return f"{day}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:07}Z"


def short_time(ticks: int) -> str:
    """Return a time for a sentence: `format_time` without trailing zeros; ``none yet`` for NO_TIME."""
    if ticks == NO_TIME:
        return "none yet"
    if not FIRST_TICKS <= ticks <= LAST_TICKS:
        return f"{ticks} ticks"
    whole, fraction = format_time(ticks)[:-1].split(".")
    digits = fraction.rstrip("0")
    return f"{whole}.{digits}Z" if digits else f"{whole}Z"


def parse_time(text: str) -> int:
    """Return the ticks of one ISO 8601 text; a text without an offset is UTC.

    Raises ValueError for anything else, for a date that does not exist, and for more than seven digits of a second
    (rather than rounding silently).
    """
    match = _ISO_8601.fullmatch(text)
    if match is None:
        raise ValueError(f"not an ISO 8601 time with at most seven digits of a second: {text!r}")
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - 719_163
    except ValueError as error:
        raise ValueError(f"no such date: {text!r}") from error
    if int(hour or 0) > 23 or int(minute or 0) > 59 or int(second or 0) > 59:
        raise ValueError(f"no such time of day: {text!r}")
    seconds = (int(hour or 0) * 60 + int(minute or 0)) * 60 + int(second or 0)
    ticks = days * TICKS_PER_DAY + seconds * TICKS_PER_SECOND + int((fraction or "").ljust(7, "0"))
    if offset and offset not in "Zz":
        digits = offset[1:].replace(":", "")
        ahead = (int(digits[:2]) * 60 + int(digits[2:])) * TICKS_PER_MINUTE
        ticks += -ahead if offset[0] == "+" else ahead
    if not FIRST_TICKS <= ticks <= LAST_TICKS:
        raise ValueError(f"outside years 1 to 9999: {text!r}")
    return ticks


def format_duration(ticks: int) -> str:
    """Return a length of time for people: ``5 min``, ``1 h 30 min``, ``2.5 s``, ``0 s``."""
    sign, rest = ("-", -ticks) if ticks < 0 else ("", ticks)
    parts = []
    for unit, name in ((TICKS_PER_DAY, "d"), (TICKS_PER_HOUR, "h"), (TICKS_PER_MINUTE, "min")):
        count, rest = divmod(rest, unit)
        if count:
            parts.append(f"{count} {name}")
    if rest or not parts:
        seconds, fraction = divmod(rest, TICKS_PER_SECOND)
        digits = f".{fraction:07d}".rstrip("0") if fraction else ""
        parts.append(f"{seconds}{digits} s")
    return sign + " ".join(parts)
