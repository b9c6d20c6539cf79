"""Spark's own `format("kafka")` on the hub, both ways: batch and stream, with keys, headers and offsets by time.

Spark joins no group: its checkpoint has the positions, and its tasks are given partitions by the driver.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubProducerClient

from tests.jars import class_path
from tests.patience import PATIENCE_S
from tests.server.conftest import receive_events
from tidegate.server import Server

pytestmark = [pytest.mark.soak, pytest.mark.spark]
FOLDER = Path(__file__).parent / "spark"

PROGRAM = """
import glob, json, sys
from pyspark.sql import SparkSession

servers, connection, source, target, jars, folder = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.jars", ",".join(glob.glob(jars))).config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username='$ConnectionString' password='%s';"
options = {
    "kafka.bootstrap.servers": servers,
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": jaas % connection,
}
rows = spark.sql(
    "SELECT CAST(id AS STRING) AS key, CONCAT('value ', id) AS value, "
    "ARRAY(NAMED_STRUCT('key', 'n', 'value', CAST('h' AS BINARY))) AS headers FROM RANGE(20)"
)
rows.write.format("kafka").options(**options).option("topic", source).option("kafka.compression.type", "zstd").save()
read = spark.read.format("kafka").options(**options).option("includeHeaders", "true").option("subscribe", source).load()
found = read.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "headers", "timestampType").collect()
assert [one[1] for one in found if one[0] is None] == ["of AMQP"], found
found = [one for one in found if one[0] is not None]
assert sorted((one[0], one[1]) for one in found) == sorted((str(n), f"value {n}") for n in range(20)), found
assert {(one[2][0].key, bytes(one[2][0].value), one[3]) for one in found} == {("n", b"h", 1)}, found[0]
by_time = spark.read.format("kafka").options(**options).option("subscribe", source).option("startingTimestamp", "0")
assert by_time.load().count() == 21
last = read.agg({"timestamp": "max"}).collect()[0][0].timestamp()
later = spark.read.format("kafka").options(**options).option("subscribe", source)
later = later.option("startingTimestamp", str(round(last * 1000) + 60_000))
later = later.option("startingOffsetsByTimestampStrategy", "latest")
assert later.load().count() == 0


def copied():
    stream = spark.readStream.format("kafka").options(**options).option("subscribe", source)
    query = (
        stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 7).load()
        .selectExpr("key", "CONCAT(CAST(value AS STRING), '!') AS value")
        .writeStream.format("kafka").options(**options).option("topic", target)
        .option("checkpointLocation", folder).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    copy = spark.read.format("kafka").options(**options).option("subscribe", target).load()
    return sorted(one[0] for one in copy.selectExpr("CAST(value AS STRING)").collect())


expected = ["of AMQP!", *(f"value {n}!" for n in range(20))]
assert copied() == sorted(expected)
more = rows.limit(1).selectExpr("key", "'more' AS value")
more.write.format("kafka").options(**options).option("topic", source).save()
assert copied() == sorted([*expected, "more!"])
print(json.dumps("done"))
"""


def test_spark_reads_and_writes_by_its_own_kafka_source(
    server: Server, connection: str, hub: str, tmp_path: Path
) -> None:
    with EventHubProducerClient.from_connection_string(connection, eventhub_name=hub) as producer:
        producer.send_batch([EventData("of AMQP")], partition_id="0")
    target = f"{hub}-copy"
    server.namespace.management.create_event_hub(
        server.namespace.event_hub(hub).config.model_copy(update={"name": target})
    )
    arguments = [f"127.0.0.1:{server.kafka_port}", server.connection_string(), hub, target]
    arguments += [f"{class_path(FOLDER)}.jar", str(tmp_path / "checkpoint")]
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == "done"
    events = receive_events(connection, hub, 22)
    found = {event.body_as_str(): (event.partition_key, event.properties) for event in events}
    assert found["value 7"] == (b"7", {b"n": b"h"})
    assert found["more"][1] == {}
