"""States of groups of rows, as columns, and the summaries that make them.

A `Summary` says what is kept (an exact sum of `x`), a `State` is that for many groups at once. Aggregates that need
the same summary share it. States of one family of aggregates are defined with it, in `engine.aggregates.functions`.
"""
