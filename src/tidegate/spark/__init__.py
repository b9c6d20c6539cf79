"""The only code that uses Spark: the `eventhubs` data source for Spark's own users, and the runner of a job's tasks."""

from tidegate.spark.run import run_job_on_spark
from tidegate.spark.runner import SparkRunner
from tidegate.spark.session import end_java, spark_context

__all__ = ["SparkRunner", "end_java", "run_job_on_spark", "spark_context"]
