"""The Java process of Spark: finding Java, starting it, and saying why it did not start.

`pyspark.java_gateway.launch_gateway` runs Python between fork and exec, which is not safe in a process that has threads
(https://docs.python.org/3/library/subprocess.html#subprocess.Popen, preexec_fn), and reports of a Java that did not
start that it "exited before sending its port number". Here Java is started without that, and the error says how it
ended and what it wrote: a virtual machine that cannot start says so on its standard output, Spark and the scripts that
start it on their standard error. Both go to one file, and its last lines into the error.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, BinaryIO

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import java_import
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from tidegate.connectors.model.errors import UnavailableError
from tidegate.job import JobError
from tidegate.spark.class_archive import options_for

# PySpark has no types for these.
_home: Any = _find_spark_home
_pyspark_launch: Any = launch_gateway
_read_int: Any = read_int
_Texts: Any = UTF8Deserializer
_NEEDED = "install Java 17 or newer (java -version)"
# What `pyspark.java_gateway.launch_gateway` imports.
_IMPORTED = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)
# The first Java of a start lives for half a second, in which it prints the command of the second.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PAUSE_S = 1.0
_LOOKED_AT_EVERY_S = 0.02
_MOST_LINES = 3
# A connection breaks a moment before its process has ended.
_ENDS_WITHIN_S = 0.5

# What another moment may change: memory, processes and ports that others use, and a file that is being replaced.
_CAN_PASS = re.compile(
    r"insufficient memory|not enough space|no space left|cannot allocate|could not (reserve|allocate)|out of memory"
    r"|unable to create (new )?native thread|resource temporarily unavailable|text file busy"
    r"|address already in use|bindexception|fatal error has been detected",
    re.IGNORECASE,
)
_SAYS_WHY = re.compile(
    r"\b(Error|Exception|Invalid|Unrecognized|Could not|must be)\b|(Error|Exception):|insufficient memory|not set"
    r"|[Cc]annot|No such file|[Pp]ermission denied|No space left|unavailable|command not found"
)
_TOO_OLD = re.compile(r"UnsupportedClassVersionError|has been compiled by a more recent version of the Java Runtime")
_THREAD = re.compile(r'^Exception in thread "[^"]*" [\w.$]+: ')
# Spark's script for starting Java trips over a launcher that wrote nothing, as one that was killed. That is no reason.
_TRIPPED = re.compile(r"^.*spark-class: line \d+: CMD: bad array subscript\n?", re.MULTILINE)
_NOISE = re.compile(
    r"^(at \S|\.\.\. \d+ more|WARNING: |Using Spark's default|Setting default log level|To adjust logging level"
    r"|\d\d/\d\d/\d\d \S+ (INFO|WARN) )|An error report file|hs_err_pid|VM warning: INFO: os::commit_memory"
)


def find_java() -> None:
    """Check that there is a Java to start.

    Raises:
        JobError: there is none, or JAVA_HOME is not the folder of one.
    """
    home = os.environ.get("JAVA_HOME")
    if not home:
        if shutil.which("java") is None:
            raise JobError(f"there is no Java: JAVA_HOME is not set, and PATH has no java; {_NEEDED}")
        return
    if shutil.which(str(Path(home) / "bin" / "java")) is None:
        raise JobError(
            f"JAVA_HOME is {home}, where there is no bin/java; set it to the folder of Java 17 or newer, or unset it "
            "to use the java of PATH"
        )


def forget_ended_java() -> None:
    """Let the next context have a Java process of its own if that of this process has ended; PySpark would use it."""
    running = getattr(SparkContext._gateway, "proc", None)
    if running is not None and running.poll() is not None:
        SparkContext._gateway = SparkContext._jvm = None


def was_java_killed() -> bool:
    """Return whether a signal has ended the Java process of this process, as the system does it without memory."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and (_status_of(process) or 0) < 0


def start_java(conf: SparkConf, log_file: Path) -> Any:
    """Start the Java process that the contexts of this process share.

    A start that fails for a reason that may pass is tried once more.

    Args:
        conf: given to it on the command line.
        log_file: where its output goes.

    Returns:
        The gateway to it, for the constructor of a context; None if it runs already, or another process started it.

    Raises:
        JobError: it ended as it started; the message has what it said.
        UnavailableError: the same, for a reason that may pass.
    """
    log_file.write_bytes(b"")
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    find_java()
    for is_last in (False, True):
        try:
            # Appended to by several processes: Java, and the scripts before it.
            with log_file.open("ab") as output:
                return _launch_on_windows(conf, output) if os.name == "nt" else _launch(conf, output)
        except _EndedError as error:
            said = _written(log_file)
            may_pass = error.was_killed or can_pass(said)
            if is_last or not may_pass:
                turns = ", twice" if is_last else ""
                kind = UnavailableError if may_pass else JobError
                raise kind(f"Java ended as it started{turns} ({error}): {reason_of(said)}") from error
            time.sleep(_PAUSE_S)
    raise AssertionError("the last start has returned or raised")


def connect(port: int, secret: str) -> Any:
    """Return a gateway to a Java process, with the names that PySpark expects of one."""
    java = JavaParameters(port=port, auth_token=secret, auto_convert=True)
    gateway = ClientServer(java_parameters=java, python_parameters=PythonParameters(port=0, eager_load=False))
    for name in _IMPORTED:
        java_import(gateway.jvm, name)
    return gateway


def _status_of(process: subprocess.Popen[bytes]) -> int | None:
    """Return how a process ended with which a connection has just failed; None if it lives."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(_ENDS_WITHIN_S)
    return None


class _EndedError(Exception):
    """Java ended before it listened; the message is how."""

    def __init__(self, status: int | None) -> None:
        self.was_killed = status is not None and status < 0
        if status is None:
            how = "exit code unknown"
        else:
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
        super().__init__(how)


def _launch(conf: SparkConf, output: BinaryIO) -> Any:
    """Run `spark-submit`, which becomes Java, and connect to it.

    Java ends when this process does, because its standard input then ends. It ignores the Ctrl-C of a terminal, which
    is for this process to handle, and stays in its process group, so that what ends the group ends both.
    """
    command = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "spark", os.path.join(_home(), "bin", "spark-submit")]
    for name, value in conf.getAll():
        command += ["--conf", f"{name}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    # Here Java writes which port it listens on, and the secret that opens it.
    folder = Path(tempfile.mkdtemp(prefix="tidegate-java-"))
    try:
        written = folder / "connection"
        variables = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(written)}
        environment = {"SPARK_LAUNCHER_OPTS": _SHORT_LIVED, **os.environ, **variables}
        if options := options_for(Path(_home()), dict(conf.getAll()), os.environ):
            # Before the user's own, which Java then prefers.
            environment["SPARK_SUBMIT_OPTS"] = " ".join(
                [*map(shlex.quote, options), os.environ.get("SPARK_SUBMIT_OPTS", "")]
            )
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment)
        while not written.is_file():
            status = process.poll()
            if status is not None and not written.is_file():
                raise _EndedError(status)
            time.sleep(_LOOKED_AT_EVERY_S)
        with written.open("rb") as info:
            port, secret = _read_int(info), _Texts().loads(info)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        gateway = connect(port, secret)
    except (OSError, Py4JError) as error:
        status = _status_of(process)
        if status is None:
            raise
        raise _EndedError(status) from error
    gateway.proc = process
    return gateway


def _launch_on_windows(conf: SparkConf, output: BinaryIO) -> Any:
    """Let PySpark start Java where it is started by a script that does not become it."""
    try:
        return _pyspark_launch(conf, {"stdout": output, "stderr": output})
    except PySparkRuntimeError as error:
        raise _EndedError(None) from error


def can_pass(said: str) -> bool:
    """Return whether a start that ended with this output may succeed a moment later; no output says nothing against."""
    return not said.strip() or _CAN_PASS.search(said) is not None


def reason_of(said: str) -> str:
    """Return the lines of an output that say why Java did not start, as one line.

    Without one that looks like a reason they are the last.
    """
    if _TOO_OLD.search(said):
        return f"it is too old for Spark; {_NEEDED}"
    lines = [line for line in (one.strip().lstrip("#").strip() for one in said.splitlines()) if line]
    lines = [line for line in lines if not _NOISE.search(line)]
    if not lines:
        return "it said nothing"
    first = next((number for number, line in enumerate(lines) if _SAYS_WHY.search(line)), None)
    found = lines[-_MOST_LINES:] if first is None else lines[first : first + _MOST_LINES]
    return "; ".join(dict.fromkeys(_THREAD.sub("", line) for line in found))


def _written(path: Path) -> str:
    try:
        return _TRIPPED.sub("", path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
