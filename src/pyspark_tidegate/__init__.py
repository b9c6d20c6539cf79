"""Lets Spark find the ``eventhubs`` data source by itself: it looks in packages named ``pyspark_…`` for a
``DefaultSource``.

Spark imports every such package when it first looks up any format, so nothing heavy may be imported here except the
source.
"""

from tidegate.spark.source import EventHubsDataSource as DefaultSource

__all__ = ["DefaultSource"]
