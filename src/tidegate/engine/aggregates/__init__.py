"""Aggregates: the state kept per group, how two states merge, and the value a state yields.

`states` has the protocol of states, summaries and aggregates, `functions` the aggregates of the language, one module
for each family, and `aggregation` computes the aggregates of one GROUP BY together.
"""
