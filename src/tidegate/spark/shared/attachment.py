"""Attaches this process to the Spark context of another one, through its py4j gateway.

A process that starts a Spark context starts Java for it. An attached process has a `SparkContext` and a session of its
own in Java that runs already. The owner of the attachment is the name under which everything is found that it leaves:
its jobs are one job group, and its cached data and states bear the name.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.clientserver import ClientServer
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidegate.connectors.model.errors import UnavailableError
from tidegate.spark.failures import FAILURES
from tidegate.spark.java import connect

OWNER = "TIDEGATE_SPARK_OWNER"
"""The environment variable of Python workers that run tasks of one owner only."""


@dataclass(frozen=True, slots=True)
class SparkAddress:
    """Where a shared Spark is, and as whom this process uses it.

    Attributes:
        port: of the gateway, on this machine only.
        secret: of the gateway; it gives control over Spark.
        owner: a name that no other attachment has, of letters, digits and underscores.
        folder: for files of this attachment; it is deleted with it.
    """

    port: int
    secret: str = field(repr=False)
    owner: str
    folder: Path


class Attachment:
    """This process's part of a shared Spark; there is one at a time."""

    def __init__(self, session: SparkSession, gateway: ClientServer, address: SparkAddress) -> None:
        self.session = session
        self.owner = address.owner
        self._gateway = gateway
        self._folder = address.folder

    @classmethod
    def to(cls, address: SparkAddress, *, own_workers: bool) -> Attachment:
        """Attach to a shared Spark; the calling thread makes its calls from then on.

        Args:
            own_workers: whether its tasks run in Python processes of their own: code of users that is imported into
                one may meet that of another there.

        Raises:
            UnavailableError: it cannot be reached.
        """
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        try:
            gateway = connect(address.port, address.secret)
            context = _context_of(gateway)
            address.folder.mkdir(parents=True, exist_ok=True)
            _use_folder(context, address.folder)
            if own_workers:
                # Spark has workers for each environment.
                context.environment[OWNER] = address.owner
            session = SparkSession(context).newSession()
        except FAILURES as error:
            raise UnavailableError(
                f"the Spark that the jobs of this service share cannot be reached: {error or type(error).__name__}"
            ) from error
        return cls(session, gateway, address)

    def detach(self) -> None:
        """Give up the context of this process; the shared one stays."""
        context = self.session.sparkContext
        server: Any = getattr(context, "_accumulatorServer", None)
        if server is not None:
            server.shutdown()
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = None
        with contextlib.suppress(*FAILURES, OSError):
            self._gateway.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _context_of(gateway: ClientServer) -> SparkContext:
    # Not by its constructor alone: that would make another context in Java, which allows one.
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java_context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(running)
    return SparkContext(gateway=gateway, jsc=java_context, conf=SparkConf(_jconf=java_context.getConf()))


def _use_folder(context: Any, folder: Path) -> None:
    """Put what PySpark writes for Java into a folder, instead of one that only the end of Java deletes."""
    shutil.rmtree(context._temp_dir, ignore_errors=True)
    context._temp_dir = str(folder)
