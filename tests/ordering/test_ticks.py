from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import ordering
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
times = st.integers(FIRST_TICKS, LAST_TICKS)


@given(times)
def test_a_time_and_its_text_are_the_same_thing(ticks: int) -> None:
    text = ordering.format_time(ticks)
    assert ordering.parse_time(text) == ticks
    # The calendar is held against Python's, whose resolution is a microsecond.
    microseconds, rest = divmod(ticks, 10)
    expected = EPOCH + timedelta(microseconds=microseconds)
    assert text == expected.strftime("%Y").zfill(4) + expected.strftime("-%m-%dT%H:%M:%S.%f") + f"{rest}Z"


@given(st.lists(times, max_size=20))
def test_a_column_reads_as_its_times_one_by_one(column: list[int]) -> None:
    assert ordering.format_ticks(np.array(column, dtype=np.int64)) == [ordering.format_time(ticks) for ticks in column]
    assert ordering.text_of_ticks(np.array(column, dtype=np.int64)).shape == (len(column), 28)


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("1970-01-01T00:00:00.0000000Z", 0),
        ("1970-01-01T00:00:00.0000001Z", 1),
        ("1969-12-31T23:59:59.9999999Z", -1),
        ("1970-01-01", 0),
        ("1970-01-01 00:01", 600_000_000),
        ("1970-01-01T00:00:01.5", 15_000_000),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T22:00:00-0200", 0),
        ("0001-01-01T00:00:00Z", FIRST_TICKS),
        ("9999-12-31T23:59:59.9999999Z", LAST_TICKS),
        ("2020-02-29T00:00:00Z", 18321 * ordering.TICKS_PER_DAY),
    ],
)
def test_iso_8601_is_read(text: str, ticks: int) -> None:
    assert ordering.parse_time(text) == ticks


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2019-02-29T00:00:00Z",
        "2019-01-01T24:00:00Z",
        "2019-01-01T00:60:00Z",
        "2019-01-01T00:00:00.12345678Z",
        "2019-01-01T00:00:00Zulu",
        "0001-01-01T00:00:00+01:00",
        "0000-01-01T00:00:00Z",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|date|years"):
        ordering.parse_time(text)


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    try:
        ticks = ordering.parse_time(text)
    except ValueError:
        return
    assert FIRST_TICKS <= ticks <= LAST_TICKS


@pytest.mark.parametrize("ticks", [ordering.NO_TIME, ordering.END_OF_TIME, FIRST_TICKS - 1, LAST_TICKS + 1])
def test_a_time_outside_the_calendar_has_no_text(ticks: int) -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        ordering.format_time(ticks)


@pytest.mark.parametrize(
    ("ticks", "text"),
    [
        (0, "0 s"),
        (1, "0.0000001 s"),
        (5 * ordering.TICKS_PER_MINUTE, "5 min"),
        (90 * ordering.TICKS_PER_MINUTE, "1 h 30 min"),
        (25_000_000, "2.5 s"),
        (-ordering.TICKS_PER_SECOND, "-1 s"),
        (1_814_399 * ordering.TICKS_PER_SECOND, "20 d 23 h 59 min 59 s"),
    ],
)
def test_durations_read_well(ticks: int, text: str) -> None:
    assert ordering.format_duration(ticks) == text
