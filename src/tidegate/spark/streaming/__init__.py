"""Results of a job as a stream of Spark: the steps of a query, which Spark's own queries write.

`step_source` has the idea: a step is planned durably before Spark may read it, so that a batch that is repeated has the
same rows and the same number. `steps` writes the plans, and `query` keeps Spark's half and ours together.
"""
