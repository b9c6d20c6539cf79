"""The `eventhubs` source: `format("eventhubs")` with nothing but the package installed."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.patience import PATIENCE_S
from tests.spark.publishing import publish
from tidegate.connectors.inputs.hub_log import Segments
from tidegate.server import BackgroundServer
from tidegate.spark.streaming.read_limits import BATCHES_CAN_BE_LIMITED

pytestmark = pytest.mark.spark
SOAK = pytest.mark.soak


def read(spark: SparkSession, hub: BackgroundServer, name: str, **options: Any) -> DataFrame:
    return (
        (spark.read.format("eventhubs").option("connectionString", hub.connection_string + f";EntityPath={name}"))
        .options(**options)
        .load()
    )


@pytest.fixture(scope="module")
def published(hub: BackgroundServer) -> str:
    """Numbers 0 to 599, a third in each partition, in order."""
    for partition in range(3):
        bodies = [{"n": n} for n in range(partition * 200, partition * 200 + 200)]
        publish(hub.connection_string, "read", bodies, partition_id=str(partition))
    return "read"


def test_columns_are_the_ones_event_hubs_users_know(spark: SparkSession, hub: BackgroundServer, published: str) -> None:
    rows = read(spark, hub, published).orderBy("partition", "sequenceNumber").collect()
    assert [row.sequenceNumber for row in rows] == list(range(200)) * 3
    assert [row.body.decode() for row in rows] == [f'{{"n": {n}}}' for n in range(600)]
    first = rows[0]
    assert first.partition == "0"
    assert first.properties == {"n": "1", "kind": "test"}
    assert first.publisher is None
    offsets = [int(row.offset) for row in rows[:200]]
    assert offsets == sorted(set(offsets))
    times = [row.enqueuedTime for row in rows[:200]]
    assert times == sorted(times)


def test_order_within_a_partition_is_kept_without_sorting(
    spark: SparkSession, hub: BackgroundServer, published: str
) -> None:
    tasks = read(spark, hub, published, eventsPerTask="64").select("partition", "sequenceNumber").rdd.glom().collect()
    assert len(tasks) == 3 * 4
    for task in tasks:
        assert len({row.partition for row in task}) == 1
        numbers = [row.sequenceNumber for row in task]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.parametrize(
    ("position", "first"),
    [
        ("earliest", 0),
        pytest.param('{"seqNo": 150}', 150, marks=SOAK),
        ('{"seqNo": 150, "isInclusive": false}', 151),
        pytest.param('{"offset": "-1"}', 0, marks=SOAK),
        pytest.param("1999-01-01T00:00:00Z", 0, marks=SOAK),
        pytest.param("2999-01-01T00:00:00Z", None, marks=SOAK),
        ("latest", None),
    ],
)
def test_starting_positions(
    spark: SparkSession, hub: BackgroundServer, published: str, position: str, first: int | None
) -> None:
    rows = read(spark, hub, published, startingPosition=position).agg(f.min("sequenceNumber")).collect()
    assert rows[0][0] == first


def test_starting_at_an_offset_and_at_a_time(spark: SparkSession, hub: BackgroundServer, published: str) -> None:
    row = read(spark, hub, published).where("partition = '1' and sequenceNumber = 77").collect()[0]
    for inclusive, first in ((True, 77), (False, 78)):
        position = f'{{"1": {{"offset": "{row.offset}", "isInclusive": {str(inclusive).lower()}}}}}'
        rows = read(spark, hub, published, startingPositions=position).where("partition = '1'")
        assert rows.agg(f.min("sequenceNumber")).collect()[0][0] == first
    everything = read(spark, hub, published).where("partition = '1'").collect()
    time = everything[-1].enqueuedTime
    # Spark gives the time of this machine's zone.
    position = time.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    expected = sum(other.enqueuedTime >= time for other in everything)
    at_time = read(spark, hub, published, startingPosition=position).where("partition = '1'")
    assert at_time.count() == expected


def test_over_the_network_rows_are_the_same(
    spark: SparkSession, hub: BackgroundServer, published: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = read(spark, hub, published).orderBy("partition", "sequenceNumber").collect()
    # The planner names the folder of segments; without the name a task has only the network, as on another machine.
    far = read(spark, hub, published, segments="never").orderBy("partition", "sequenceNumber").collect()
    assert far == near
    assert not Segments("/nowhere", "id").are_here()


def test_a_stream_goes_on_where_its_checkpoint_is(spark: SparkSession, hub: BackgroundServer, tmp_path: Path) -> None:
    def run() -> list[int]:
        stream = (
            spark.readStream.format("eventhubs")
            .option("connectionString", hub.connection_string + ";EntityPath=available")
            .option("maxEventsPerTrigger", 70)
            .load()
        )
        query = (
            stream.selectExpr("CAST(CAST(body AS string) AS int) AS n")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(3 * PATIENCE_S)
        sizes.extend(progress["numInputRows"] for progress in query.recentProgress)
        return sorted(row.n for row in spark.read.schema("n int").parquet(str(tmp_path / "out")).collect())

    sizes: list[int] = []
    publish(hub.connection_string, "available", [str(n) for n in range(200)])
    assert run() == list(range(200))
    publish(hub.connection_string, "available", [str(n) for n in range(200, 260)])
    assert run() == list(range(260))
    assert max(sizes) <= (70 if BATCHES_CAN_BE_LIMITED else 200)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"connectionString": "nonsense"}, "connection string"),
        # How options are read is tested without Spark.
        pytest.param({"eventsPerTask": "many"}, "eventsPerTask", marks=SOAK),
        ({"startingPositions": '{"0": "latest", "7": "earliest"}'}, "no partition '7'; there are 0, 1, 2"),
        ({"startingPositon": "earliest"}, "did you mean startingPosition"),
        pytest.param({"startingPosition": "yesterday"}, "startingPosition", marks=SOAK),
        ({"consumerGroup": "nobody"}, "nobody"),
    ],
)
def test_a_wrong_option_is_named(
    spark: SparkSession, hub: BackgroundServer, published: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, hub, published, **{"segments": "never", **options}).count()
    assert told in str(caught.value)
    assert "SAS_KEY_VALUE" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
