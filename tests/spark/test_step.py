"""Where Spark puts the shards of a job."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from tests.patience import eventually
from tests.spark.standalone import standalone
from tidegate.spark.queries.hash_partitions import labels
from tidegate.spark.step import anchor, configure, release

pytestmark = pytest.mark.spark


def executors_with(anchored: DataFrame) -> Counter[str]:
    """Return how many rows of an anchor each executor has cached."""
    store = anchored.sparkSession.sparkContext._jsc.sc().statusStore()
    cached = store.rddList(True)
    found: Counter[str] = Counter()
    for number in range(cached.size()):
        try:
            partitions = store.rdd(cached.apply(number).id()).partitions().get()
        except Py4JJavaError:
            # The store lags behind: it has forgotten this one since it listed it.
            continue
        for place in range(partitions.size()):
            executors = partitions.apply(place).executors()
            found.update(executors.apply(one) for one in range(executors.size()))
    return found


def anchored_on(spark: SparkSession, shards: int) -> Counter[str]:
    """Return how many shards each executor gets."""
    configure(spark, shards)
    anchored = anchor(spark, labels(shards), f"run-{shards}")
    seen: list[Counter[str]] = []

    def are_listed() -> bool:
        # What is asked for again may differ: the store is behind what it tells about.
        seen.append(executors_with(anchored))
        return seen[-1].total() >= shards

    eventually(are_listed)
    release(anchored, f"run-{shards}")
    eventually(lambda: not executors_with(anchored))
    return seen[-1]


@pytest.mark.soak
@pytest.mark.usefixtures("no_spark")
def test_shards_are_on_every_host_of_a_cluster(tmp_path: Path) -> None:
    with standalone(tmp_path, workers=0) as cluster:
        for host in ("127.0.0.2", "127.0.0.3"):
            cluster.start_worker(host)
        builder = SparkSession.builder.master(cluster.url).config("spark.ui.enabled", "false")
        settings = {"spark.driver.host": "127.0.0.1", "spark.locality.wait": "30s"}
        spark = builder.config(map=settings).getOrCreate()
        try:
            # The master knows executors before the driver does, whose parallelism is two without any.
            eventually(lambda: spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() == 3)
            for shards in (2, 8):
                assert sorted(anchored_on(spark, shards).values()) == [shards // 2, shards // 2]
        finally:
            spark.stop()
