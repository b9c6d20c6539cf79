"""A second implementation of the language's semantics, and random jobs that both implementations must agree on.

`semantics` evaluates a query over a whole log, one row at a time, from the rules alone: docs/reference/query.md, the
event-ordering articles (see `tests.ordering.oracle`) and the query reference pages they cite. It shares no code with
the engine, knows no batches and keeps no state. `generation` draws a query, a log and a policy from a seed, and
`differential` runs both and compares the rows, their times and the metrics.

    python -m tests.oracle --cases 20000          as many random jobs, with a table of what they combined
    python -m tests.oracle --seed 4711            one job again, in full
"""
