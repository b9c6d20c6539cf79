"""Labels and Spark's own hash."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession, functions

from tidegate.spark.queries.hash_partitions import labels


def test_labels_are_known_without_spark() -> None:
    """Spark's hash of 0 is 933211791, of 1 -559580957: both are odd, so 0 and 1 share partition 1 of 2."""
    assert labels(1) == (0,)
    assert labels(2) == (2, 0)
    assert len(set(labels(400))) == 400


@pytest.mark.spark
@pytest.mark.parametrize("count", [1, 2, 3, 7, 32])
def test_spark_puts_label_n_into_partition_n(spark: SparkSession, count: int) -> None:
    rows = spark.createDataFrame([(label,) for label in labels(count)], "label int").repartition(count, "label")
    found = rows.select(functions.spark_partition_id(), "label").collect()
    assert sorted(map(tuple, found)) == [*enumerate(labels(count))]
