"""A Spark context for a job's steps.

The steps are small and many, so the settings differ from those of a batch program: no web UI unless requested, no
progress bar over a person's output, and Python workers kept from step to step. The executors run the driver's own
interpreter, or Spark would start whichever ``python3`` it finds first.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext

from tidegate.connectors.model.errors import UnavailableError
from tidegate.durable_files import DirectoryLock, DirectoryLocked
from tidegate.job import JobError
from tidegate.job.config.spark_settings import DEFAULT_MASTER, SparkSettings
from tidegate.spark.calls import StepThread
from tidegate.spark.executors import ExecutorWatch, check_executors
from tidegate.spark.java import forget_ended_java, start_java, was_java_killed
from tidegate.spark.streaming.causes import cause_of, first_line

_STOP_WHEN_BROKEN_OFF_S: float | None = 0.5
_REACHED_WITHIN_S = 5.0
_SOCKETS = "tidegate-sockets-"
_TMP = Path("/tmp")
"""Where executors have a folder for sockets: Java's own, as in a container of YARN, may have too long a path."""
_DAEMON = "tidegate.spark.daemon"


@contextlib.contextmanager
def spark_context(
    settings: SparkSettings,
    name: str,
    *,
    log_file: Path | None = None,
    notice: Callable[[str], None] = lambda text: None,
) -> Iterator[SparkContext]:
    """Yield a context on the settings' master, which is stopped at the end.

    Args:
        settings: the master, Spark's own properties, and whether Spark's web UI is served (``uiWebUrl`` is then set).
        name: the application's name, unless a property sets it.
        log_file: where Java's output goes; None: a temporary file, kept only if something fails.
        notice: called while the cluster has no executor for the application.

    Raises:
        JobError: Java is missing, the master cannot be reached, or Spark rejects a property.
        UnavailableError: Java did not start for a reason that may pass, such as a lack of memory.
    """
    master = settings.master or DEFAULT_MASTER
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # A laptop's host name often does not resolve; the driver then cannot be found even by its own machine.
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # py4j's complaints when its other end ends first are of no interest to the person who stopped it.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    # A configuration asks Java if there is one.
    forget_ended_java()
    conf = SparkConf()
    if hasattr(socket, "AF_UNIX"):
        # Over loopback TCP, each task of Python waits 40 ms for a delayed acknowledgement (Spark 4.1 and later).
        conf.set("spark.python.unix.domain.socket.enabled", "true")
        conf.set("spark.python.unix.domain.socket.dir", str(_sockets().path if master.startswith("local") else _TMP))
    if master.startswith("local") and _is_this_python(os.environ["PYSPARK_PYTHON"]):
        # Elsewhere it may be missing, and then no task would run.
        conf.set("spark.python.daemon.module", _DAEMON)
    elif conf.get("spark.python.daemon.module", "") == _DAEMON:
        # Java has kept it from a context before.
        conf.set("spark.python.daemon.module", "pyspark.daemon")
    (
        conf.setMaster(master)
        .setAppName(name)
        .set("spark.ui.enabled", "true" if settings.ui else "false")
        .set("spark.ui.showConsoleProgress", "false")
        .set("spark.python.worker.reuse", "true")
        .set("spark.log.level", "ERROR")
        # A shard is better late than on an executor that does not have its state.
        .set("spark.locality.wait", "30s")
        .setAll(list(settings.conf.items()))
    )
    path = log_file or Path(tempfile.gettempdir()) / f"tidegate-spark-{os.getpid()}.log"
    _check_reachable(master)
    try:
        context = _start(conf, path)
    except Exception as error:
        raise _not_started(master, error, path) from error
    context.setLogLevel(settings.conf.get("spark.log.level", "ERROR"))
    _silence_accumulators(context)
    if not master.startswith("local"):
        try:
            StepThread(ExecutorWatch(context, notice)).call(lambda: check_executors(context))
        except BaseException:
            context.stop()
            raise
    # Ctrl-C should stop the job quickly; running tasks would keep Spark alive for seconds.
    patience_s = _STOP_WHEN_BROKEN_OFF_S
    try:
        yield context
        patience_s = None
        if log_file is None:
            path.unlink(missing_ok=True)
    finally:
        stopping = threading.Thread(target=_stop, args=(context,), daemon=True)
        stopping.start()
        stopping.join(patience_s)


def _not_started(master: str, error: Exception, log_file: Path) -> JobError:
    """Return the error for a start that has failed; an `UnavailableError` if another one may succeed."""
    cause = cause_of(error)
    why = cause.text if isinstance(error, JobError | Py4JError) else first_line(str(error)) or repr(error)
    killed = isinstance(error, OSError | Py4JError) and was_java_killed()
    may_pass = killed or isinstance(error, UnavailableError) or cause.code == "DISK_FULL"
    kind = UnavailableError if may_pass else JobError
    said = "Java was killed" if killed else why
    return kind(f"Spark did not start on {master}: {said}{_look_at(log_file)}")


def _is_this_python(command: str) -> bool:
    """Return whether a command starts the Python of this environment, which has several names there."""
    found, own = Path(shutil.which(command) or ""), Path(sys.executable)
    return found.parent.resolve() == own.parent.resolve() and found.resolve() == own.resolve()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether py4j did not write a record of the root logger, to which it reports calls that fail."""
    return record.module != "java_gateway"


def _silence_accumulators(context: SparkContext) -> None:
    """Keep PySpark's server of accumulators from printing a traceback when Java dies; the step that fails says so."""
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    print_error = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            print_error(request, address)

    server.handle_error = handle_error


def _stop(context: SparkContext) -> None:
    # Java may have ended before.
    with contextlib.suppress(ConnectionError, Py4JError):
        context.stop()


@functools.cache
def _sockets() -> _SocketFolder:
    """Return the folder for sockets of this process.

    Java keeps the first setting that it was started with, so later contexts in the same Java need the same folder.
    """
    folder = _SocketFolder()
    atexit.register(folder.delete)
    return folder


class _SocketFolder:
    """A folder for the Unix sockets of Python workers, which nobody deletes when a driver or a worker is killed.

    It is locked while its process lives. A new one deletes those that nobody has locked.
    """

    def __init__(self) -> None:
        # The path of a socket has at most about a hundred bytes, and that of a temporary folder may be long.
        root = _TMP
        root = root if os.access(root, os.W_OK) else Path(tempfile.gettempdir())
        for left in root.glob(f"{_SOCKETS}*"):
            with contextlib.suppress(DirectoryLocked, OSError):
                lock = DirectoryLock(left)
                shutil.rmtree(left, ignore_errors=True)
                lock.release()
        # Under another name until it is locked.
        made = Path(tempfile.mkdtemp(prefix="tidegate-new-", dir=root))
        self._lock = DirectoryLock(made)
        self.path = made.rename(root / f"{_SOCKETS}{made.name.rpartition('-')[2]}")

    def delete(self) -> None:
        """Delete it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


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


def _check_reachable(master: str) -> None:
    """Check that something listens where a standalone master should; Spark would say after a minute that it gives up.

    Raises:
        JobError: nothing does.
    """
    if not master.startswith("spark://"):
        return
    refusals = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            return  # Spark says what a URL has to be
        try:
            socket.create_connection((host.strip("[]"), int(port)), _REACHED_WITHIN_S).close()
            return
        except OSError as error:
            refusals.append(f"{address}: {error.strerror or error}")
    raise JobError(f"Spark did not start on {master}: no master answers at {'; '.join(refusals)}")


def _start(conf: SparkConf, log_file: Path) -> SparkContext:
    """Start a context in a thread of its own, so that a signal interrupts the wait and not the start.

    An interrupted start removes the folder in which Java is to write its port. Java then neither continues nor ends,
    not even with this process, which ends any other Java.
    """
    started: Future[SparkContext] = Future()

    def start() -> None:
        try:
            started.set_result(SparkContext(conf=conf, gateway=start_java(conf, log_file)))
        except BaseException as error:
            started.set_exception(error)

    threading.Thread(target=start, name="tidegate-spark", daemon=True).start()
    try:
        return started.result()
    except KeyboardInterrupt:
        # The process may continue.
        started.add_done_callback(lambda future: None if future.exception() else future.result().stop())
        raise


def _look_at(path: Path) -> str:
    """Return where Java's output is, as the end of a message; nothing if there is none, as where there is no Java."""
    with contextlib.suppress(OSError):
        if path.stat().st_size:
            return f"; its output is in {path}"
        path.unlink()
    return ""
