"""Sinks of Spark that need jars of their own, in a session of another process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.jars import class_path
from tests.kafka.cluster import cluster
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.soak, pytest.mark.spark]
JARS = Path(__file__).parents[2] / "server" / "kafka" / "spark"

TO_KAFKA = """
import glob, json, sys
from pyspark.sql import SparkSession
from tidegate.spark import stream

servers, log, jars, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.jars", ",".join(glob.glob(jars))).config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
query = '''SELECT device AS [key], CONCAT(CAST(COUNT(*) AS nvarchar(max)), ' by ',
    CAST(System.Timestamp() AS nvarchar(max))) AS value
INTO o FROM i GROUP BY device, TumblingWindow(second, 10)'''


def run():
    writer = stream(spark, query, inputs={"i": log}).format("kafka").trigger(availableNow=True)
    writer = writer.option("kafka.bootstrap.servers", servers).option("topic", "counts")
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()
    read = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "counts").load()
    found = read.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
    return sorted([one[0], one[1].split(" by ")[1][:19], int(one[1].split(" by ")[0])] for one in found)


print(json.dumps([run(), run()]))
"""


def test_results_go_to_kafka_by_sparks_own_sink(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    lines = [
        {"partition": 0, "arrival": f"2026-01-31T12:00:{second:02}Z", "body": json.dumps({"device": "ab"[second % 2]})}
        for second in range(40)
    ]
    log.write_text("\n".join(map(json.dumps, lines)))
    with cluster(nodes=1) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.clients["a"]})
        admin.create_topics([NewTopic("counts", 2)])["counts"].result(PATIENCE_S)
        arguments = [brokers.clients["a"], str(log), f"{class_path(JARS)}.jar", str(tmp_path / "checkpoint")]
        command = [sys.executable, "-c", TO_KAFKA, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    first, again = json.loads(done.stdout.splitlines()[-1])
    # The event at the end of a window is in it.
    ends = [-(-second // 10) * 10 for second in range(40)]
    counts = Counter(("ab"[second % 2], f"2026-01-31T12:00:{end:02}") for second, end in enumerate(ends))
    assert first == sorted([*key, count] for key, count in counts.items())
    assert again == first, "a query that resumes repeats nothing"
