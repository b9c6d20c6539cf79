"""Queries in Spark programs: their arguments, the events of DataFrames, and results as rows with Spark's types."""
