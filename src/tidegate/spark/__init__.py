"""The only code that uses Spark: the `eventhubs` data source for Spark's own users, and the runner of a job's tasks."""

from tidegate.spark.queries.evaluation import sql
from tidegate.spark.queries.frame_events import EventsOfFrame, events
from tidegate.spark.run import run_job_on_spark
from tidegate.spark.runner import SparkRunner
from tidegate.spark.session import end_java, spark_context
from tidegate.spark.stream import ResultStreamWriter, stream
from tidegate.spark.streaming.query import StreamingQuery

__all__ = [
    "EventsOfFrame",
    "ResultStreamWriter",
    "SparkRunner",
    "StreamingQuery",
    "end_java",
    "events",
    "run_job_on_spark",
    "spark_context",
    "sql",
    "stream",
]
