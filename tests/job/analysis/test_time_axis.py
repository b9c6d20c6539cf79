import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import ordering
from tidegate.job.analysis.picture import days, marks
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS

NOON = ordering.parse_time("2019-01-01T12:00:00Z")


@pytest.mark.parametrize(
    ("length", "labels"),
    [
        (20 * ordering.TICKS_PER_MINUTE, ["12:00", "12:05", "12:10", "12:15", "12:20"]),
        (4 * ordering.TICKS_PER_SECOND, ["12:00:00", "12:00:01", "12:00:02", "12:00:03", "12:00:04"]),
        (
            ordering.TICKS_PER_SECOND,
            ["12:00:00.0", "12:00:00.2", "12:00:00.4", "12:00:00.6", "12:00:00.8", "12:00:01.0"],
        ),
        (4, ["12:00:00.0000000", "12:00:00.0000001", "12:00:00.0000002", "12:00:00.0000003", "12:00:00.0000004"]),
        (ordering.TICKS_PER_DAY, ["12:00", "18:00", "00:00 2 Jan", "06:00", "12:00"]),
        (4 * ordering.TICKS_PER_DAY, ["2 Jan", "3 Jan", "4 Jan", "5 Jan"]),
        (400 * ordering.TICKS_PER_DAY, ["2019-01-31", "2019-05-02", "2019-08-01", "2019-10-31", "2020-01-30"]),
    ],
)
def test_marks_stand_at_times_that_a_clocks_reader_expects(length: int, labels: list[str]) -> None:
    assert [mark.label for mark in marks(NOON, NOON + length, 6)] == labels


@given(st.integers(FIRST_TICKS, LAST_TICKS), st.integers(0, 100 * 366 * ordering.TICKS_PER_DAY), st.integers(2, 20))
def test_marks_are_few_and_inside(first: int, length: int, most: int) -> None:
    last = min(LAST_TICKS, first + length)
    found = marks(first, last, most)
    assert len(found) <= most
    assert all(first <= mark.ticks <= last for mark in found)
    # A time of day may come again on the next day, which its first mark names; else every label is another.
    distinct = {(mark.label, mark.ticks // ordering.TICKS_PER_DAY) for mark in found}
    assert len(distinct) == len(found)


def test_the_days_of_an_axis() -> None:
    assert days(NOON, NOON + 1) == "2019-01-01"
    assert days(NOON, NOON + ordering.TICKS_PER_DAY) == "2019-01-01 to 2019-01-02"
