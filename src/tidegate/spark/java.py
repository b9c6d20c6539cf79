"""The Java process of Spark: finding Java, starting it, and saying why it did not start.

PySpark reports that Java "exited before sending its port number". The reason is in what Java wrote: a virtual machine
that cannot start says so on its standard output, Spark and the scripts that start it on their standard error. Both go
to one file here, and its last lines into the error.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from tidegate.job import JobError

_launch: Any = launch_gateway
_NEEDED = "install Java 17 or newer (java -version)"
_PAUSE_S = 1.0
_MOST_LINES = 3

# What another moment may change: memory, processes and ports that others use, and a file that is being replaced.
_CAN_PASS = re.compile(
    r"insufficient memory|not enough space|cannot allocate|could not (reserve|allocate)|out of memory"
    r"|unable to create (new )?native thread|resource temporarily unavailable|text file busy"
    r"|address already in use|bindexception|fatal error has been detected",
    re.IGNORECASE,
)
_SAYS_WHY = re.compile(
    r"\b(Error|Exception|Invalid|Unrecognized|Could not|must be)\b|(Error|Exception):|insufficient memory|not set"
    r"|[Cc]annot|No such file|[Pp]ermission denied|No space left|unavailable|command not found"
)
_TOO_OLD = re.compile(r"UnsupportedClassVersionError|has been compiled by a more recent version of the Java Runtime")
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
    """
    log_file.write_bytes(b"")
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    find_java()
    for is_last in (False, True):
        try:
            # Appended to by several processes: Java, and the scripts before it.
            with log_file.open("ab") as output:
                return _launch(conf, {"stdout": output, "stderr": output})
        except PySparkRuntimeError as error:
            said = _written(log_file)
            if is_last or not can_pass(said):
                raise JobError(f"Java ended as it started{', twice' if is_last else ''}: {reason_of(said)}") from error
            time.sleep(_PAUSE_S)
    raise AssertionError("the last start has returned or raised")


def can_pass(said: str) -> bool:
    """Return whether a start that ended with this output may succeed a moment later.

    The system kills a process without a word, mostly for want of memory.
    """
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
        return "it said nothing, as when the system kills a process for want of memory"
    first = next((number for number, line in enumerate(lines) if _SAYS_WHY.search(line)), None)
    found = lines[-_MOST_LINES:] if first is None else lines[first : first + _MOST_LINES]
    return "; ".join(dict.fromkeys(found))


def _written(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
