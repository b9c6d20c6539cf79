"""A Spark context for a job's steps.

The steps are small and many, so the settings differ from those of a batch program: no web page unless requested, no
progress bar over a person's output, and Python workers kept from step to step. The executors run the driver's own
interpreter, or Spark would start whichever ``python3`` it finds first.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

from pyspark import SparkConf, SparkContext

from tidegate.job import JobError

_STOP_WHEN_BROKEN_OFF_S: float | None = 0.5


@contextlib.contextmanager
def spark_context(master: str, name: str, *, log_file: Path | None = None) -> Iterator[SparkContext]:
    """Yield a context on ``master``, which is stopped at the end.

    ``log_file``: where Java's output goes; None: a temporary file, kept only if something fails.

    Raises:
        JobError: Java is missing or the master cannot be reached.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # A laptop's host name often does not resolve; the driver then cannot be found even by its own machine.
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # py4j's complaints when its other end ends first are of no interest to the person who stopped it.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    conf = (
        SparkConf()
        .setMaster(master)
        .setAppName(name)
        .set("spark.ui.enabled", "false")
        .set("spark.ui.showConsoleProgress", "false")
        .set("spark.python.worker.reuse", "true")
        .set("spark.log.level", "ERROR")
    )
    path = log_file or Path(tempfile.gettempdir()) / f"tidegate-spark-{os.getpid()}.log"
    try:
        with _stderr_to(path):
            context = _start(conf)
    except Exception as error:
        raise JobError(
            f"Spark did not start on {master}: {_reason(error)}; Java 17 or newer must be installed (java -version), "
            f"and its output is in {path}"
        ) from error
    context.setLogLevel("ERROR")
    # Ctrl-C should stop the job quickly; running tasks would keep Spark alive for seconds.
    patience_s = _STOP_WHEN_BROKEN_OFF_S
    try:
        yield context
        patience_s = None
        if log_file is None:
            path.unlink(missing_ok=True)
    finally:
        stopping = threading.Thread(target=context.stop, daemon=True)
        stopping.start()
        stopping.join(patience_s)


def end_java(patience_s: float = 10) -> None:
    """End the Java process that contexts of this process share, and wait for its end.

    It also ends by itself, but a second or two after this process.
    """
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)


def _start(conf: SparkConf) -> SparkContext:
    """Start a context in a thread of its own, so that a signal interrupts the wait and not the start.

    An interrupted start removes the folder in which Java is to write its port. Java then neither continues nor ends,
    not even with this process, which ends any other Java.
    """
    started: Future[SparkContext] = Future()

    def start() -> None:
        try:
            started.set_result(SparkContext(conf=conf))
        except BaseException as error:
            started.set_exception(error)

    threading.Thread(target=start, name="tidegate-spark", daemon=True).start()
    try:
        return started.result()
    except KeyboardInterrupt:
        # The process may continue.
        started.add_done_callback(lambda future: None if future.exception() else future.result().stop())
        raise


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect Java's output to a file: its process keeps the descriptor that it inherited when it started."""
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _reason(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
