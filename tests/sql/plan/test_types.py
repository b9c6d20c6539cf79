"""What texts convert, and which mistakes are certain."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine import CATALOG
from tidegate.sql.plan import types
from tidegate.sql.plan.names import INSTEAD
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import ArgumentKind

OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=st.one_of(st.none(), OFFSETS)), st.sampled_from("T "))
def test_every_iso_8601_datetime_is_one(moment: datetime, separator: str) -> None:
    assert types.is_datetime_text(moment.isoformat(separator))
    assert types.is_datetime_text(moment.date().isoformat())


@pytest.mark.parametrize(
    "text",
    ["2021-10-26T10:15:01.1234567Z", "2021-10-26T10:15Z", "2021-10-26 10:15:01", "1900-01-01", " 2020-02-29 "],
)
def test_forms_of_iso_8601(text: str) -> None:
    assert types.is_datetime_text(text)


@pytest.mark.parametrize(
    "text", ["", "today", "2021-02-30", "2021-13-01", "10/26/2021", "2021-10-26T25:00:00", "2021-1-1", "20211026"]
)
def test_what_is_no_date(text: str) -> None:
    assert not types.is_datetime_text(text)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_every_number_is_one(value: float) -> None:
    assert types.is_number_text(repr(value))


@pytest.mark.parametrize("text", ["", "NaN", "1,5", "one", "0x1F", "1e", "--1", "7.0L"])
def test_what_is_no_number(text: str) -> None:
    assert not types.is_number_text(text)


@pytest.mark.parametrize("kind", ["number", "integer", "datetime", "text", "ordered", "record", "array", "any"])
def test_nothing_is_refused_of_what_is_not_known(kind: str) -> None:
    assert types.refusal(kind, Type.ANY, None) is None


def test_text_may_be_anything_at_run_time_but_a_constant_is_known() -> None:
    assert types.refusal(ArgumentKind.NUMBER, Type.NVARCHAR, None) is None
    assert types.refusal(ArgumentKind.NUMBER, Type.NVARCHAR, "12.5") is None
    assert types.refusal(ArgumentKind.NUMBER, Type.NVARCHAR, "twelve")
    assert types.refusal(ArgumentKind.DATETIME, Type.NVARCHAR, None) is None
    assert types.refusal(ArgumentKind.DATETIME, Type.BIGINT, 5)
    assert types.refusal(ArgumentKind.RECORD, Type.ARRAY, None) == "an array is not a record"


def test_every_function_is_known_to_hints() -> None:
    assert {name.lower() for name in CATALOG.every_name()} >= {"upper", "getarrayelements", *CATALOG.aggregates} - {
        "uda"
    }
    assert not [name for name in INSTEAD if CATALOG.has(name)]
