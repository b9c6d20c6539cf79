"""The one order of rows that have the same System.Timestamp: the order in which their events arrived.

Rows are in the order of (System.Timestamp, arrival, partition, sequence number). The query reference says so of LAG
("if there are multiple events with the same timestamp, their order of arrival is used"), and it holds everywhere: LAG,
LAST, ISFIRST, aggregates OVER, Collect, the final tie of TopOne and CollectTop, MATCH_RECOGNIZE, sessions and results.
https://learn.microsoft.com/stream-analytics-query/lag-azure-stream-analytics

The order is made once, from the log (`arrival_order`), and rows carry it as int64 columns as long as each follows from
one event. Rows that agree in all of it (a UNION of an input with itself, two inputs) are in the order in which the
query mentions their inputs, rows of one event in their order there. Rows that follow from several events have no
arrival: results of a window are ordered by key, those of a join by their left and then by their right row, and those of
a UNION that has such rows by its branches.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.expressions.relations import streams_of
from tidegate.engine.values.vectors import Int64Array
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import relations_in


def arrival_order(
    arrivals: Int64Array, mention: int, partition: str, sequence_numbers: Int64Array, indices: Int64Array
) -> tuple[Int64Array, ...]:
    """Return the columns that order n rows of one partition among all rows with the same System.Timestamp.

    Args:
        arrivals: int64[n], ticks.
        mention: the number of the place where the query mentions the input.
        partition: a decimal number.
        sequence_numbers: int64[n].
        indices: int64[n], the place of each row in its event.
    """
    mentions, partitions = (np.full(len(arrivals), number, dtype=np.int64) for number in (mention, int(partition)))
    return (arrivals, partitions, sequence_numbers, mentions, indices)


def has_arrivals(relation: plan.Relation) -> bool:
    """Return whether each row of a relation follows from one event, so that it has the order of its arrival."""
    return not any(
        isinstance(one, plan.Aggregate | plan.Match) or (isinstance(one, plan.Join) and not one.reference)
        for one in relations_in(relation, sources=streams_of)
    )
