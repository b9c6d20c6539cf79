"""Limits of what one batch of a stream reads: PySpark's own since 4.2, stand-ins for 4.0 and 4.1."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

BATCHES_CAN_BE_LIMITED = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether this PySpark asks a stream for a batch of limited size, and tells it where the batch begins."""

if TYPE_CHECKING or BATCHES_CAN_BE_LIMITED:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:

    class ReadLimit:
        """Any limit."""

    class ReadAllAvailable(ReadLimit):
        """No limit."""

    class ReadMaxRows(ReadLimit):
        """A number of rows."""

        def __init__(self, max_rows):
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:
        """A stream that can fix its end; older versions ask for the latest offset once, which does the same."""


__all__ = ["BATCHES_CAN_BE_LIMITED", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
