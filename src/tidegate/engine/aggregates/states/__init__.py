"""What is kept of groups of rows: states as columns, and the summaries that make them.

A `Summary` says what is kept (an exact sum of `x`), a `State` is that for many groups at once. Aggregates that need
the same summary share it. What only one family of aggregates keeps stands with them, in `engine.aggregates.functions`.
"""
