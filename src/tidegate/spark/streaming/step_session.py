"""The session in which a query takes its steps, beside the user's own.

Steps need settings of their own, such as the number of partitions, which must not change what the user's session does.
"""

from __future__ import annotations

import contextlib
import copy
import uuid
from typing import Any

from pyspark.sql import SparkSession


def session_for_steps(spark: SparkSession) -> SparkSession:
    """Return another session of the same Spark; over Connect it keeps the files that the user's session has added."""
    if isinstance(spark, SparkSession):
        return spark.newSession()
    remote: Any = spark
    if hasattr(type(remote), "cloneSession"):
        cloned: SparkSession = remote.cloneSession()
        return cloned
    # PySpark 4.0 has no method for this.
    connection = copy.deepcopy(remote.client._builder)
    connection.set("session_id", str(uuid.uuid4()))
    opened: SparkSession = type(remote)(connection)
    return opened


def end_session(session: SparkSession) -> None:
    """Release a session that `session_for_steps` returned; classic Spark keeps nothing of it."""
    if isinstance(session, SparkSession):
        return
    remote: Any = session
    # The server may be gone.
    with contextlib.suppress(Exception):
        remote.client.release_session()
    with contextlib.suppress(Exception):
        remote.client.close()
