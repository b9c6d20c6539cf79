"""Functions that are not Python: scripts in an embedded JavaScript engine, and models.

Each takes the rows of a batch at once, as `engine.expressions.registered_batches` asks, and can be pickled, so that it
runs wherever a job's tasks run.
"""
