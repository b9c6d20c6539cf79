"""LAST: the newest row of the key that passes WHEN, which may be the row itself.
https://learn.microsoft.com/stream-analytics-query/last-azure-stream-analytics

It is LAG with offset 0 among the rows that pass (`lag`).
"""

from __future__ import annotations

from tidegate.engine.stateful.analytics.lag import Lag
from tidegate.sql.plan.analytics import Role
from tidegate.sql.plan.signatures import read_signature


class Last(Lag):
    """The value of the newest row, the row itself included."""

    spelling = "LAST"
    signature = read_signature("value any, [default any]")
    description = "The value of the newest row, the row itself included."
    example = ("LAST(v) OVER (LIMIT DURATION(minute, 1))", "9")
    roles = (Role.DEFAULT,)
    offset = 0
