"""ISO 8601 text to ticks: the column at a time against one text at a time, and that against the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.values.datetimes import datetime_texts, parse_datetime, parse_datetimes
from tidegate.ordering import format_time
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ticks_of(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1) * 10


def parse(*texts: str | None) -> list[int | None]:
    ticks, valid = parse_datetimes(pa.array(texts, pa.large_string()))
    return [tick if ok else None for tick, ok in zip(ticks.tolist(), valid.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("2026-02-28", "2026-02-28T00:00:00.0000000Z"),
        ("2026-02-28T23:59", "2026-02-28T23:59:00.0000000Z"),
        ("2026-02-28 23:59:58", "2026-02-28T23:59:58.0000000Z"),
        ("2026-02-28t23:59:58z", "2026-02-28T23:59:58.0000000Z"),
        ("2026-02-28T23:59:58.1", "2026-02-28T23:59:58.1000000Z"),
        ("2026-02-28T23:59:58.1234567Z", "2026-02-28T23:59:58.1234567Z"),
        ("2026-02-28T23:59:58+05:30", "2026-02-28T18:29:58.0000000Z"),
        ("2026-02-28T23:59:58.25-0130", "2026-03-01T01:29:58.2500000Z"),
        ("2026-02-28T23:59:58-14:00", "2026-03-01T13:59:58.0000000Z"),
        ("  2026-02-28T23:59:58Z ", "2026-02-28T23:59:58.0000000Z"),
        ("2026-02-28T23:59:58.12345674999Z", "2026-02-28T23:59:58.1234567Z"),
        ("2026-02-28T23:59:58.1234567500001Z", "2026-02-28T23:59:58.1234568Z"),
        pytest.param(f"2026-02-28T23:59:58.12345665{'0' * 5000}Z", "2026-02-28T23:59:58.1234566Z", id="tie"),
        pytest.param(f"2026-02-28T23:59:58.12345665{'0' * 5000}1Z", "2026-02-28T23:59:58.1234567Z", id="above"),
        ("2026-02-28T23:59:58,25Z", "2026-02-28T23:59:58.2500000Z"),
        ("2026-02-28T23:59:59.99999999Z", "2026-03-01T00:00:00.0000000Z"),
        ("0001-01-01", "0001-01-01T00:00:00.0000000Z"),
        ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z"),
    ],
)
def test_what_is_a_datetime(text: str, same_as: str) -> None:
    (ticks,) = parse(text)
    assert ticks is not None
    assert format_time(ticks) == same_as


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "2026", "2026-02", "2026-02-29", "2026-13-01", "2026-00-01", "2026-01-00", "0000-01-01"),
        *("2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z", "2026-01-01T00"),
        *("2026-01-01T00:00:00+14:01", "2026-01-01T00:00:00+01:60", "0001-01-01T00:00:00+00:01"),
        *("9999-12-31T23:59:59-00:01", "2026-01-01X00:00:00Z", "2026/01/01", "２０２６-01-01", "2026-01-01T00:00:00.Z"),
        *("9999-12-31T23:59:59.99999999Z", "noon", "2026-01-01T00:00:00Zulu", "1767225600"),
    ],
)
def test_what_is_not(text: str) -> None:
    assert parse(text) == [None]
    # Nor when texts of the same length are read together with it.
    assert parse(text, "2026-01-01T00:00:00Z", text)[::2] == [None, None]


def test_an_arrow_null_is_not_a_datetime() -> None:
    assert parse(None, "2026-01-01") == [None, parse_datetime("2026-01-01")]
    assert parse() == []


MOMENTS = st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29))
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.lists(st.tuples(MOMENTS, OFFSETS, st.sampled_from(["minutes", "seconds", "milliseconds", "microseconds"]))))
def test_texts_of_all_forms_together(moments: list[tuple[datetime, timezone, str]]) -> None:
    texts, expected = [], []
    for moment, zone, precision in moments:
        local = moment.replace(tzinfo=zone)
        text = local.isoformat(timespec=precision)
        texts.append(text)
        expected.append(ticks_of(datetime.fromisoformat(text)))
    assert parse(*texts) == expected


@given(st.lists(st.text(alphabet="0123456789-:.TZtz +", max_size=36)))
def test_a_column_is_read_as_its_texts_are(texts: list[str]) -> None:
    assert parse(*texts) == [parse_datetime(text) for text in texts]


@given(st.lists(st.integers(FIRST_TICKS, LAST_TICKS)))
def test_texts_read_back(ticks: list[int]) -> None:
    texts = datetime_texts(np.array(ticks, dtype=np.int64))
    assert parse(*texts.to_pylist()) == ticks
