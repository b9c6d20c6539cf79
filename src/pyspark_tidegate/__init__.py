"""Lets Spark find the ``eventhubs`` data source by itself: it asks packages named ``pyspark_…`` for their
``DefaultSource``.

Spark imports every such package at its first look-up of any format, so nothing heavy may be imported here but the
source.
"""

from tidegate.spark.source import EventHubsDataSource as DefaultSource

__all__ = ["DefaultSource"]
