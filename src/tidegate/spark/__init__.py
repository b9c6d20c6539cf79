"""The only code that uses Spark: the `eventhubs` data source for Spark's own users, and what runs jobs on it."""

from typing import TYPE_CHECKING, Any

from tidegate.lazy import lazy_names


class PySparkTooOld(ImportError):
    """The installed PySpark is older than those that Tidegate works with."""


def _check_pyspark() -> None:
    import pyspark

    version = pyspark.__version__
    if version.partition(".")[0].isdecimal() and int(version.partition(".")[0]) < 4:
        raise PySparkTooOld(
            f'PySpark {version} is installed, and Tidegate needs 4.0 to 4.3: pip install "tidegate[spark]", and a '
            "cluster of the same version"
        )


if TYPE_CHECKING:
    from tidegate.spark.queries.evaluation import rejected, sql
    from tidegate.spark.queries.frame_events import EventsOfFrame, events
    from tidegate.spark.queries.reference_frames import ReferenceOfFrame, reference
    from tidegate.spark.run import placements_on_spark, run_job_on_spark
    from tidegate.spark.session import end_java, spark_context
    from tidegate.spark.stream_writer import ResultStreamWriter, stream
    from tidegate.spark.streaming.checkpoint import CheckpointMismatch
    from tidegate.spark.streaming.query import EvaluatedQuery, StreamingQueryFailed
    from tidegate.spark.streaming.sinks import UnknownFormat
else:
    _find, __dir__ = lazy_names(__name__)

    def __getattr__(name: str) -> Any:
        if not name.startswith("__"):
            _check_pyspark()
        return _find(name)


__all__ = [
    "CheckpointMismatch",
    "EvaluatedQuery",
    "EventsOfFrame",
    "PySparkTooOld",
    "ReferenceOfFrame",
    "ResultStreamWriter",
    "StreamingQueryFailed",
    "UnknownFormat",
    "end_java",
    "events",
    "placements_on_spark",
    "reference",
    "rejected",
    "run_job_on_spark",
    "spark_context",
    "sql",
    "stream",
]
