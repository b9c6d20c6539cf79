"""Writing DataFrames with `format("eventhubs")`: columns, partitions, limits, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from tests.spark.hub_content import content
from tidegate.hub.placement import partition_for_key
from tidegate.server import BackgroundServer


def write(data: DataFrame, hub: BackgroundServer, name: str, **options: Any) -> None:
    writer = data.write.format("eventhubs").mode("append")
    writer.option("connectionString", f"{hub.connection_string};EntityPath={name}").options(**options).save()


def test_every_column_arrives(spark: SparkSession, hub: BackgroundServer) -> None:
    rows = [
        (b"\x00\xffbinary", "key", None, {"a": "1", "none": None}),
        (b"text", None, "2", {}),
        (b"", None, None, None),
        (b"x" * 300, None, 1, {"b": "2"}),
    ]
    schema = "body binary, partitionKey string, partition string, properties map<string,string>"
    write(spark.createDataFrame(rows, schema), hub, "sink-columns")
    found = {event.body: event for event in content(hub, "sink-columns")}
    assert set(found) == {body for body, *_ in rows}
    keyed = found[b"\x00\xffbinary"]
    assert (keyed.key, keyed.partition) == ("key", str(partition_for_key("key", 3)))
    assert keyed.properties == {"a": "1"}
    assert (found[b"text"].partition, found[b"text"].properties) == ("2", {})
    assert (found[b"x" * 300].partition, found[b"x" * 300].properties) == ("1", {"b": "2"})


def test_names_and_types_that_people_use_are_taken(spark: SparkSession, hub: BackgroundServer) -> None:
    data = spark.range(3).selectExpr(
        "'text' AS BODY", "CAST(id AS int) AS partitionId", "map('n', id) AS properties", "NULL AS partitionKey"
    )
    write(data.withColumn("partitionKey", f.lit(None).cast("string")), hub, "sink-names")
    events = content(hub, "sink-names")
    assert sorted((event.partition, event.properties["n"]) for event in events) == [("0", "0"), ("1", "1"), ("2", "2")]


def test_rows_without_a_place_are_spread_and_keep_the_order_of_their_task(
    spark: SparkSession, hub: BackgroundServer
) -> None:
    write(spark.range(0, 3000, 1, 2).selectExpr("CAST(id AS string) AS body"), hub, "sink-spread")
    events = content(hub, "sink-spread")
    assert Counter(event.partition for event in events) == {"0": 1000, "1": 1000, "2": 1000}
    for first in (0, 1500):
        for partition in "012":
            numbers = [int(event.body) for event in events if event.partition == partition]
            of_task = [number for number in numbers if first <= number < first + 1500]
            assert of_task == sorted(of_task)
    assert sorted(int(event.body) for event in events) == list(range(3000))


def test_batches_are_filled_up_to_the_hubs_limit(spark: SparkSession, hub: BackgroundServer) -> None:
    """Five rows of 200,000 bytes fill a batch of 1 MiB, and 40 of them several of what a task sends at once."""
    data = spark.range(0, 40, 1, 1).selectExpr("repeat(CAST(id % 10 AS string), 200000) AS body", "'1' AS partition")
    write(data, hub, "sink-large")
    assert [event.body[:1] for event in content(hub, "sink-large")] == [b"%d" % (n % 10) for n in range(40)]


def test_a_transaction_is_written_once_and_the_next_one_too(spark: SparkSession, hub: BackgroundServer) -> None:
    """The names are Delta's, so a `foreachBatch` that writes to both has one way to say it."""
    data = spark.range(0, 50, 1, 2).selectExpr("CAST(id AS string) AS body")
    for version in (7, 7, 8):
        write(data, hub, "sink-transaction", txnAppId="app", txnVersion=version)
    write(data, hub, "sink-transaction", txnAppId="another", txnVersion=7)
    counted = Counter(event.body for event in content(hub, "sink-transaction"))
    assert counted == {b"%d" % n: 3 for n in range(50)}
    with pytest.raises(PySparkException) as caught:
        write(data, hub, "sink-transaction", txnAppId="app", txnVersion=7)
    assert "producer-epoch-stolen" in str(caught.value)


def test_a_transaction_in_another_order_is_completed(spark: SparkSession, hub: BackgroundServer) -> None:
    """A shuffle has no order, so a repeated task may have the same rows otherwise; here half of them are stored."""
    rows = [Row(body=f"{n % 30}", properties={"n": str(n % 7)}) for n in range(210)]
    for some in (rows[:100], rows[::-1]):
        write(spark.createDataFrame(some).coalesce(1), hub, "sink-order", txnAppId="order", txnVersion=1)
    counted = Counter((event.body, event.properties["n"]) for event in content(hub, "sink-order"))
    assert counted == Counter((row.body.encode(), row.properties["n"]) for row in rows)


def test_rows_that_differ_in_a_repetition_are_counted(spark: SparkSession, hub: BackgroundServer) -> None:
    for _ in range(2):
        data = spark.range(0, 30, 1, 1).selectExpr("uuid() AS body")
        write(data, hub, "sink-uuid", txnAppId="uuid", txnVersion=1)
    assert len(content(hub, "sink-uuid")) == 30


def test_a_stream_is_written(spark: SparkSession, hub: BackgroundServer, tmp_path: Path) -> None:
    write(spark.range(100).selectExpr("CAST(id AS string) AS body"), hub, "sink-from")

    def run() -> None:
        stream = (
            spark.readStream.format("eventhubs")
            .option("connectionString", f"{hub.connection_string};EntityPath=sink-from")
            .load()
        )
        query = (
            stream.select("body", "partition")
            .writeStream.format("eventhubs")
            .option("connectionString", f"{hub.connection_string};EntityPath=sink-to")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    write(spark.range(100, 130).selectExpr("CAST(id AS string) AS body"), hub, "sink-from")
    run()
    # What is committed is not written again, even where a batch is repeated whole.
    (tmp_path / "commits" / "1").unlink()
    (tmp_path / "commits" / ".1.crc").unlink(missing_ok=True)
    run()
    sent = [(event.partition, event.body) for event in content(hub, "sink-from")]
    assert [(event.partition, event.body) for event in content(hub, "sink-to")] == sent
    assert len(sent) == 130


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["id"], "an event has no column 'id': it has body, partitionKey, partition (or partitionId), properties"),
        (["id AS bodi"], "did you mean 'body'?"),
        (["'k' AS partitionKey"], "an event needs a column 'body'"),
        (["id AS body"], "column 'body' is bigint; expected string or binary"),
        (["'' AS body", "id AS partitionKey"], "column 'partitionKey' is bigint; expected string"),
        (["'' AS body", "array(1) AS properties"], "column 'properties' is array<int>; expected map<string,string>"),
        (["'' AS body", "id AS partition", "id AS partitionId"], "'partition' and 'partitionId' mean the same"),
        (["'' AS body", "'9' AS partition"], "has no partition '9'; there are 0, 1, 2"),
        (["'' AS body", "'1' AS partition", "'k' AS partitionKey"], "has both a partition (1) and a partitionKey"),
        (["CAST(NULL AS string) AS body"], "body is NULL"),
        (["repeat('x', 2000000) AS body"], "is larger than the"),
    ],
)
def test_what_cannot_be_an_event_is_named(
    spark: SparkSession, hub: BackgroundServer, columns: list[str], told: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(spark.range(0, 1, 1, 1).selectExpr(*columns), hub, "sink-refused")
    assert told in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert content(hub, "sink-refused") == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"txnAppId": "a"}, "txnAppId and txnVersion belong together"),
        ({"txnAppId": "a", "txnVersion": "one"}, "option txnVersion: expected a whole number"),
        ({"partitionkey": "a"}, "option partitionkey: no such option"),
        ({"eventHub": "other"}, "EntityPath is sink-refused, but event_hub is other"),
    ],
)
def test_a_wrong_option_is_named(
    spark: SparkSession, hub: BackgroundServer, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(spark.range(1).selectExpr("'' AS body"), hub, "sink-refused", **options)
    assert told in str(caught.value)
    assert "SAS_KEY_VALUE" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_hub_is_not_overwritten(spark: SparkSession, hub: BackgroundServer, tmp_path: Path) -> None:
    data = spark.range(1).selectExpr("'' AS body")
    with pytest.raises(PySparkException) as caught:
        data.write.format("eventhubs").mode("overwrite").option("connectionString", hub.connection_string).save()
    assert "an event hub cannot be overwritten; use mode('append')" in str(caught.value)
