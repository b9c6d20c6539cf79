"""ISO 8601 text to ticks, and back, a column at a time.

What is a datetime in text: a date ``yyyy-MM-dd``, then maybe ``T`` or a space and ``HH:mm``, ``:ss`` and a fraction,
    then maybe ``Z`` or an offset from UTC; without one the time is in UTC. Digits of a second beyond the seventh are
    rounded to nearest (half to even), for the resolution is 100 ns (query reference, "Data Types").

Texts of the same length and the same kind of offset have their digits in the same places, so they are read together,
column of digits by column of digits. Values of another form are parsed one by one, with a regular expression.
"""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine.values.vectors import TEXT, BoolArray, Int64Array, Texts
from tidegate.ordering import (
    TICKS_PER_DAY,
    TICKS_PER_HOUR,
    TICKS_PER_MINUTE,
    TICKS_PER_SECOND,
    text_of_ticks,
)
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS, TEXT_LENGTH

_PATTERN = re.compile(
    r"\s*(\d{4})-(\d{2})-(\d{2})"
    r"(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d+))?)?\s?(?:([Zz])|([+-])(\d{2})(?::?(\d{2}))?)?)?\s*",
    re.ASCII,
)
_LARGEST_OFFSET_TICKS = 14 * TICKS_PER_HOUR
_MOST_DIGITS = 30
_LONGEST = 33  # yyyy-MM-ddTHH:mm:ss.fffffff+HH:mm
_SHORTEST = 10
_ZERO = np.uint8(ord("0"))
_BLANKS = np.frombuffer(b" \t\n\r\x0b\x0c", dtype=np.uint8)
_BODY_LENGTHS = frozenset({10, 16, 19, *range(21, 28)})

Columns = npt.NDArray[np.uint8]


def parse_datetime(text: str) -> int | None:
    """Return the ticks of one text; None if it is not a datetime."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, offset_hours, offset_minutes = match.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - 719_163
    except ValueError:
        return None
    of_day = (int(hour or 0), int(minute or 0), int(second or 0))
    if of_day[0] > 23 or of_day[1] > 59 or of_day[2] > 59:
        return None
    ticks = days * TICKS_PER_DAY + ((of_day[0] * 60 + of_day[1]) * 60 + of_day[2]) * TICKS_PER_SECOND
    if fraction:
        # Of very many digits, which Python does not read, it matters alone whether any is not 0.
        digits = fraction[:_MOST_DIGITS] + ("1" if fraction[_MOST_DIGITS:].strip("0") else "")
        ticks += round(Fraction(int(digits) * TICKS_PER_SECOND, 10 ** len(digits)))
    if sign:
        minutes = int(offset_minutes or 0)
        offset = int(offset_hours) * TICKS_PER_HOUR + minutes * TICKS_PER_MINUTE
        if minutes > 59 or offset > _LARGEST_OFFSET_TICKS:
            return None
        ticks += -offset if sign == "+" else offset
    return ticks if FIRST_TICKS <= ticks <= LAST_TICKS else None


def parse_datetimes(texts: Texts) -> tuple[Int64Array, BoolArray]:
    """Return the ticks of n texts, int64[n], and which of them are datetimes; an Arrow null is not."""
    count = len(texts)
    ticks = np.zeros(count, dtype=np.int64)
    valid = np.zeros(count, dtype=np.bool_)
    if not count:
        return ticks, valid
    offsets, data = text_buffers(texts)
    lengths = np.diff(offsets)
    first_length = int(lengths[0])
    if bool((lengths == first_length).all()):
        groups: list[tuple[int, Int64Array | None]] = [(first_length, None)]
    else:
        fitting = np.flatnonzero(np.bincount(np.clip(lengths, 0, _LONGEST + 1), minlength=_LONGEST + 2))
        groups = [(int(length), np.flatnonzero(lengths == length)) for length in fitting if length <= _LONGEST]
    for length, rows in groups:
        if not _SHORTEST <= length <= _LONGEST:
            continue
        if rows is None:
            matrix = data[offsets[0] : offsets[-1]].reshape(count, length)
            ticks, valid = _parse_matrix(matrix)
        else:
            matrix = data[offsets[rows][:, None] + np.arange(length)]
            ticks[rows], valid[rows] = _parse_matrix(matrix)
    ticks[~valid] = 0
    worth = ~valid & (lengths >= _SHORTEST)
    if worth.any():
        # A datetime begins with a digit, unless blanks are before it.
        first = data[np.minimum(offsets[:-1], len(data) - 1)]
        worth &= (first - _ZERO <= 9) | np.isin(first, _BLANKS)
    for row in np.flatnonzero(worth).tolist():
        text = texts[row].as_py()
        parsed = None if text is None else parse_datetime(text)
        if parsed is not None:
            ticks[row], valid[row] = parsed, True
    return ticks, valid


def datetime_texts(ticks: Int64Array) -> Texts:
    """Return ``yyyy-MM-ddTHH:mm:ss.fffffffZ`` for each time within the years 1 to 9999."""
    data = text_of_ticks(ticks)
    offsets = np.arange(len(ticks) + 1, dtype=np.int64) * TEXT_LENGTH
    return pa.LargeStringArray.from_buffers(len(ticks), pa.py_buffer(offsets), pa.py_buffer(data.tobytes()))


def text_buffers(texts: Texts) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Return the UTF-8 of texts: offsets int64[n + 1] into the data."""
    if texts.type != TEXT:
        texts = texts.cast(TEXT)
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.zeros(0, dtype=np.uint8) if data_buffer is None else np.frombuffer(data_buffer, dtype=np.uint8)
    return offsets, data


def _parse_matrix(matrix: Columns) -> tuple[Int64Array, BoolArray]:
    """Parse texts of one length, uint8[n, length]."""
    length = matrix.shape[1]
    last = matrix[:, -1]
    zulu = (last == ord("Z")) | (last == ord("z"))
    if zulu.all():
        return _parse_layout(matrix, length - 1, offset=False)
    ticks = np.zeros(len(matrix), dtype=np.int64)
    valid = np.zeros(len(matrix), dtype=np.bool_)
    signed = ~zulu
    if length >= 22:
        sign = matrix[:, -6]
        signed &= (sign == ord("+")) | (sign == ord("-"))
    else:
        signed[:] = False
    for rows, body, offset in ((zulu, length - 1, False), (signed, length - 6, True), (~zulu & ~signed, length, False)):
        if rows.any():
            ticks[rows], valid[rows] = _parse_layout(matrix[rows], body, offset=offset)
    return ticks, valid


def _parse_layout(matrix: Columns, body: int, *, offset: bool) -> tuple[Int64Array, BoolArray]:
    """Parse texts whose date and time take ``body`` characters, before the offset."""
    count = len(matrix)
    if body not in _BODY_LENGTHS:
        return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    columns = np.ascontiguousarray(matrix.T)
    separators = {4: "-", 7: "-"}
    if body > 10:
        separators[13] = ":"
    if body > 16:
        separators[16] = ":"
    if body > 19:
        separators[19] = "."
    if offset:
        separators[body + 3] = ":"
    valid = np.ones(count, dtype=np.bool_)
    for place, separator in separators.items():
        valid &= columns[place] == ord(separator)
    if body > 10:
        between = columns[10]
        valid &= (between == ord("T")) | (between == ord(" ")) | (between == ord("t"))
    digits = columns - _ZERO
    places = [place for place in range(body) if place not in separators and place != 10]
    if offset:
        places += [body + 1, body + 2, body + 4, body + 5]
    worst = np.zeros(count, dtype=np.uint8)
    for place in places:
        np.maximum(worst, digits[place], out=worst)
    valid &= worst <= 9

    month = _pair(digits, 5)
    day = _pair(digits, 8)
    year = _pair(digits, 0).astype(np.int64) * 100 + _pair(digits, 2)
    valid &= (year > 0) & (month - np.uint8(1) < 12)
    slot = np.where(valid, year * 12 + month - 13, 0)
    valid &= (day > 0) & (day <= _MONTH_LENGTH[slot])
    ticks: Int64Array = (_DAYS_BEFORE_MONTH[slot] + day - 1) * TICKS_PER_DAY
    if body > 10:
        hour, minute = _pair(digits, 11), _pair(digits, 14)
        second = _pair(digits, 17) if body > 16 else np.zeros(count, dtype=np.uint8)
        valid &= (hour < 24) & (minute < 60) & (second < 60)
        seconds = hour.astype(np.int32) * 3600 + minute.astype(np.int32) * 60 + second
        if body > 19:
            fraction = np.zeros(count, dtype=np.int32)
            for place in range(20, body):
                fraction = fraction * np.int32(10) + digits[place]
            ticks += fraction * np.int32(10 ** (27 - body))
        ticks += seconds.astype(np.int64) * TICKS_PER_SECOND
    if offset:
        minutes = _pair(digits, body + 4)
        ahead = (_pair(digits, body + 1).astype(np.int64) * 60 + minutes) * TICKS_PER_MINUTE
        valid &= (minutes < 60) & (ahead <= _LARGEST_OFFSET_TICKS)
        ticks += np.where(columns[body] == ord("+"), -ahead, ahead)
        valid &= (ticks >= FIRST_TICKS) & (ticks <= LAST_TICKS)
    return ticks, valid


def _pair(digits: Columns, place: int) -> npt.NDArray[np.uint8]:
    pair: npt.NDArray[np.uint8] = digits[place] * np.uint8(10) + digits[place + 1]
    return pair


def _calendar() -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Return, by month since 0001-01, the days from 1970-01-01 to its first day, and its length."""
    years = np.arange(1, 10_000, dtype=np.int64)
    leap = (years % 4 == 0) & ((years % 100 != 0) | (years % 400 == 0))
    lengths = np.tile(np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64), (len(years), 1))
    lengths[:, 1] += leap
    flat = lengths.reshape(-1)
    before = np.concatenate([[0], np.cumsum(flat)[:-1]]) - 719_162
    return before, flat.astype(np.uint8)


_DAYS_BEFORE_MONTH, _MONTH_LENGTH = _calendar()
