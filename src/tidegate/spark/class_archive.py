"""An archive of Spark's classes, with which Java starts in about half the processor time.

Java spends most of a start on loading and checking some ten thousand classes. HotSpot can write the classes of a
process to a file as it ends, and map them from there in later ones (JEP 350, "Dynamic CDS Archives"; Java 13 and
later). It is named after what it was made of: the Java, the PySpark and its jars. Java itself compares these again, and
does without an archive that does not fit.

Writing costs more than one start saves. So a first start only leaves a mark in the cache folder, and the next one that
finds it writes the archive. Where the folder does not outlive a job, as in CI, nothing is ever written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

ARCHIVE_VARIABLE = "TIDEGATE_CLASS_ARCHIVE"
"""The environment variable that is ``off`` where Java is to start without an archive, and to write none."""

_UNFINISHED = ".new"
_MARK = ".started"
_LEFT_AFTER_S = 3600.0
# Where Java is killed each time before it has written, as a container's end does, writing is given up.
_MOST_ATTEMPTS = 3
_UNUSED_AFTER_S = 60 * 86_400.0
_MAGIC_BYTES = 4

# Unified logging would report on standard output each time an archive does not fit; what else it warns of stays.
_QUIET = ("-Xlog:disable", "-Xlog:gc*=warning,os*=warning:stdout")

# Options of a user's own that decide on archives, or with which Java would have other classes.
_CONFLICT = re.compile(
    r"-Xshare|SharedArchive|ArchiveClasses|SharedClassList|AOT|-javaagent|-agent(lib|path)|-Xbootclasspath"
    r"|-patch-module|system\.class\.loader|-Xlog:disable|-cp\b|class-?path"
)
# Each of these may put other jars or folders on the class path, or other options on Java's command line.
_CLASS_PATH_VARIABLES = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "CLASSPATH")
_OPTION_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "PYSPARK_SUBMIT_ARGS")
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")


def using(archive: Path) -> list[str]:
    """Return the options with which Java takes classes from an archive; it says nothing if the archive does not fit."""
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET]


def writing(archive: Path) -> list[str]:
    """Return the options with which Java writes its classes to an archive as it ends."""
    return [f"-XX:ArchiveClassesAtExit={archive}", *_QUIET]


def options_for(spark_home: Path, conf: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """Return the options for the Java of a driver: to use the archive that fits, or to write it.

    Nothing that goes wrong here keeps Java from starting; it then starts without an archive.

    Args:
        spark_home: the folder of Spark, whose jars are the class path.
        conf: the driver's Spark properties.

    Returns:
        No options if the user has turned archives off or sets options that conflict, if none can be kept, or if Java
        starts here for the first time.
    """
    if environment.get(ARCHIVE_VARIABLE, "").lower() == "off" or not _is_plain(spark_home, conf, environment):
        return []
    java = _java_home(environment)
    # Only HotSpot has this file, without which it cannot write an archive either.
    if java is None or not (java / "lib" / "server" / "classes.jsa").is_file():
        return []
    try:
        folder = _folder(environment)
        archive = folder / f"spark-{_digest(java, spark_home)}.jsa"
        _finish(archive)
        if archive.is_file():
            with contextlib.suppress(OSError):
                os.utime(archive)
            return using(archive) if os.access(archive, os.R_OK) else []
        # Each start without an archive leaves a byte.
        mark = archive.with_suffix(_MARK)
        starts = mark.stat().st_size if mark.is_file() else 0
        if not os.access(folder, os.W_OK) or starts > _MOST_ATTEMPTS:
            return []
        with mark.open("ab") as file:
            file.write(b".")
        if not starts:
            return []
        _delete_unused(folder)
        return writing(archive.with_name(f"{archive.stem}.{uuid.uuid4().hex}{_UNFINISHED}"))
    except OSError:
        return []


def _is_plain(spark_home: Path, conf: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Return whether Java gets Spark's own class path, and no options that decide on archives."""
    said = [conf.get(name, "") for name in _JAVA_OPTIONS] + [environment.get(name, "") for name in _OPTION_VARIABLES]
    if any(_CONFLICT.search(text) for text in said) or conf.get("spark.driver.extraClassPath"):
        return False
    # A folder with files on the class path keeps Java from writing an archive, and may hold other options.
    return not any(environment.get(name) for name in _CLASS_PATH_VARIABLES) and not any(spark_home.glob("conf/*"))


def _java_home(environment: Mapping[str, str]) -> Path | None:
    if home := environment.get("JAVA_HOME"):
        return Path(home).resolve()
    found = shutil.which("java", path=environment.get("PATH"))
    return None if found is None else Path(found).resolve().parent.parent


def _digest(java: Path, spark_home: Path) -> str:
    """Return a name for what an archive depends on.

    Raises:
        OSError: it cannot be read.
    """
    parts = [str(java), (java / "release").read_text(encoding="utf-8", errors="replace"), str(spark_home)]
    with os.scandir(spark_home / "jars") as jars:
        for jar in sorted(jars, key=lambda one: one.name):
            status = jar.stat()
            parts.append(f"{jar.name} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of archives, which is made if it is missing.

    Raises:
        OSError: it cannot be made, or others may write to it: an archive is code.
    """
    named = environment.get("XDG_CACHE_HOME", "")
    try:
        cache = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from error
    folder = cache / "tidegate"
    folder.mkdir(0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder} belongs to others, or others may write to it")
    return folder


def _finish(archive: Path) -> None:
    """Give the archive of a Java that has ended its name, and delete what a Java that was killed has left.

    Java writes the beginning last, so a file that has one is whole. Of several, which come from jobs that ran at the
    same time, one remains; they are as good as each other.
    """
    for path in archive.parent.glob(f"{archive.stem}.*{_UNFINISHED}"):
        with contextlib.suppress(FileNotFoundError):
            if _is_whole(path):
                path.replace(archive)
            elif time.time() - path.stat().st_mtime > _LEFT_AFTER_S:
                path.unlink()


def _delete_unused(folder: Path) -> None:
    """Delete what other versions of Java and Spark have left, and what nothing has used for months."""
    for path in folder.glob("spark-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _UNUSED_AFTER_S:
                path.unlink()


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        return any(file.read(_MAGIC_BYTES))
