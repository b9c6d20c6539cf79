"""Results of a job as Spark's own data: the steps of a query, handed to whatever Spark writes.

`steps` has the idea: a step is planned durably before it is handed over, so that it is handed over again with the same
rows and the same number. `sinks` and the modules beside it make a sink take each step once.
"""
