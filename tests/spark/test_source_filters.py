"""Filters of a query become shorter ranges of the hub, and leave the rows that Spark's own filters leave."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, datasource

from tests.spark.publishing import publish
from tidegate.connectors.model.events import PartitionEnd
from tidegate.ordering import TICKS_PER_SECOND
from tidegate.server import BackgroundServer
from tidegate.spark.source_filters import SelectedEvents, filters_are_offered

pytestmark = pytest.mark.spark
PASSED = hasattr(datasource, "EqualTo")
"""Whether Spark passes filters to a source in Python, as it does from 4.1 on."""
SETTING = "spark.sql.python.filterPushdown.enabled"
T0 = datetime(2026, 1, 1, tzinfo=UTC)
T0_TICKS = 17_672_256_000_000_000


class Log:
    """Three partitions of a hundred events, one a second from `T0` on."""

    def __init__(self, bound: int | None = 0) -> None:
        self._end = PartitionEnd(0, 100, bound)

    def ends(self) -> dict[str, PartitionEnd]:
        return dict.fromkeys("012", self._end)

    def first_at(self, partition: str, arrival: int) -> int:
        return min(100, max(0, -(-(arrival - T0_TICKS) // TICKS_PER_SECOND)))


def selected(*filters: Any) -> tuple[SelectedEvents, list[bool]]:
    left, taken = SelectedEvents(), []
    for each in filters:
        left, fully = left.with_filter(each)
        taken.append(fully)
    return left, taken


def ranges(*filters: Any, bound: int | None = 0) -> dict[str, tuple[int, int]]:
    left, _ = selected(*filters)
    log: Any = Log(bound)
    first, stop = left.cut(log, dict.fromkeys("012", 10), dict.fromkeys("012", 90))
    return {partition: (first[partition], stop[partition]) for partition in stop}


def of(kind: str, column: str, *value: Any) -> Any:
    """Return a filter; PySpark 4.0 has none, so one that looks like it."""
    if PASSED:
        return getattr(datasource, kind)((column,), *value)
    return type(kind, (), {"attribute": (column,), **({"value": value[0]} if value else {})})()


def negated(child: Any) -> Any:
    return datasource.Not(child) if PASSED else type("Not", (), {"child": child})()


def test_partitions_are_read_or_not() -> None:
    every = (10, 90)
    assert ranges(of("EqualTo", "partition", "1")) == {"1": every}
    assert ranges(of("In", "partition", ("0", "2")), of("In", "partition", ("2", "7"))) == {"2": every}
    assert ranges(negated(of("EqualTo", "partition", "1"))) == {"0": every, "2": every}
    assert ranges(negated(of("In", "partition", ("1", "2")))) == {"0": every}
    _, taken = selected(of("EqualTo", "partition", "1"), negated(of("In", "partition", ("1", "2"))))
    assert taken == [True, True]


@pytest.mark.parametrize(
    ("kind", "value", "expected", "taken"),
    [
        ("GreaterThan", 50, (51, 90), True),
        ("GreaterThanOrEqual", 50, (50, 90), True),
        ("LessThan", 50, (10, 50), True),
        ("LessThanOrEqual", 50, (10, 51), True),
        ("EqualTo", 50, (50, 51), True),
        ("EqualNullSafe", 50, (50, 51), True),
        ("In", (20, 50, 30), (20, 51), False),
        ("LessThan", 10, None, True),
        ("EqualTo", None, (10, 90), False),
    ],
)
def test_sequence_numbers_bound_the_ranges(
    kind: str, value: Any, expected: tuple[int, int] | None, taken: bool
) -> None:
    given = of(kind, "sequenceNumber", value)
    assert ranges(given) == ({} if expected is None else dict.fromkeys("012", expected))
    assert selected(given)[1] == [taken]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("GreaterThan", (51, 90)),
        ("GreaterThanOrEqual", (50, 90)),
        ("LessThan", (10, 50)),
        ("LessThanOrEqual", (10, 51)),
        ("EqualTo", (50, 51)),
    ],
)
def test_times_bound_the_ranges_and_are_compared_again(kind: str, expected: tuple[int, int]) -> None:
    given = of(kind, "enqueuedTime", (T0 + timedelta(seconds=50)).astimezone())
    assert ranges(given) == dict.fromkeys("012", expected)
    assert selected(given)[1] == [False]


def test_times_that_may_go_back_leave_an_hour_more_to_read() -> None:
    before = of("LessThan", "enqueuedTime", T0 + timedelta(seconds=50))
    assert ranges(before, bound=None) == dict.fromkeys("012", (10, 90))
    long_before = of("LessThan", "enqueuedTime", T0 - timedelta(seconds=3550))
    assert ranges(long_before, bound=None) == dict.fromkeys("012", (10, 50))


def test_what_the_source_cannot_use_is_left_to_spark() -> None:
    others = [
        of("EqualTo", "body", b"x"),
        of("GreaterThan", "partition", "1"),
        negated(of("EqualTo", "sequenceNumber", 3)),
        of("IsNotNull", "partitionKey"),
        of("StringContains", "offset", "1"),
    ]
    assert selected(*others) == (SelectedEvents(), [False] * len(others))
    assert selected(of("IsNotNull", "sequenceNumber")) == (SelectedEvents(), [True])


@pytest.fixture(scope="module")
def published(hub: BackgroundServer) -> str:
    for partition in range(3):
        publish(hub.connection_string, "filtered", [str(n) for n in range(40)], partition_id=str(partition))
    return "filtered"


@pytest.mark.parametrize(
    ("condition", "tasks", "rows"),
    [
        pytest.param("partition = '1'", 4, 40, marks=pytest.mark.soak),
        ("partition IN ('0', '2') AND sequenceNumber BETWEEN 5 AND 12", 2, 16),
        pytest.param("partition != '1' AND sequenceNumber >= 35", 2, 10, marks=pytest.mark.soak),
        ("enqueuedTime > '2999-01-01'", 1, 0),
        pytest.param("enqueuedTime >= '2000-01-01' AND sequenceNumber < 20", 6, 60, marks=pytest.mark.soak),
        ("partition = '1' OR sequenceNumber = 3", 12, 42),
        pytest.param("sequenceNumber IN (1, 30) AND CAST(body AS string) = '30'", 9, 3, marks=pytest.mark.soak),
    ],
)
def test_spark_reads_only_what_its_filters_leave(
    spark: SparkSession, hub: BackgroundServer, published: str, condition: str, tasks: int, rows: int
) -> None:
    def read() -> DataFrame:
        source = spark.read.format("eventhubs").option("eventsPerTask", 10)
        return source.option("connectionString", f"{hub.connection_string};EntityPath={published}").load()

    def found(frame: DataFrame) -> list[Any]:
        return frame.select("partition", "sequenceNumber", "body").sort("partition", "sequenceNumber").collect()

    plain = found(read().where(condition))
    assert len(plain) == rows
    spark.conf.set(SETTING, "true")
    try:
        filtered = read().where(condition)
        assert filtered.rdd.getNumPartitions() == (tasks if PASSED else 12)
        assert found(filtered) == plain
        assert read().count() == 120
    finally:
        spark.conf.unset(SETTING)


def test_filters_are_taken_only_where_spark_plans_with_them() -> None:
    assert not filters_are_offered()
