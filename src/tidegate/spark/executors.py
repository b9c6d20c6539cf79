"""Checks that executors have the Tidegate of the driver, and says what to do where they do not.

Without it, Spark shows pages of traceback that end in ``No module named 'tidegate'``, or a result is silently that of
another version. The functions that run on executors travel by value, because a module of Tidegate may not be there.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, cloudpickle

from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.retry_policy import WaitingNotice, WaitOver

# By name: an import of the whole package would be one of every layer.
_VERSION: str = importlib.import_module("tidegate").__version__
_by_value: Any = cloudpickle
_by_value.register_pickle_by_value(sys.modules[__name__])
_SHARDS_AT_EASE = 64
"""On more cores than this, shards are fewer than cores: every one is a task of every stage, and gets a blob from every
task."""

_SAY_AFTER_S = 5.0
_SAY_AGAIN_AFTER_S = 30.0


class ReachesExecutors:
    """A base for objects that are pickled for executors, where their first use checks the version."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (_VERSION, _by_value.dumps((type(self), self.__getstate__())))


class ExecutorWatch:
    """Says that a call waits because the cluster has no executor for the application; Spark waits in silence."""

    def __init__(
        self,
        context: SparkContext,
        notice: Callable[[str], None],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            notice: called with a `WaitingNotice` when there has been no executor for some seconds and from time to time
                after that, and with a `WaitOver` when there is one.
        """
        self._context = context
        self._notice = notice
        self._monotonic_s = monotonic_s
        self._none_since_s: float | None = None
        self._said_at_s: float | None = None

    def look(self) -> None:
        """Count the executors, and say so if the wait for one has become long, or is over."""
        count = executors_of(self._context)
        if count is None:
            return
        now_s, master = self._monotonic_s(), self._context.master
        if count:
            if self._said_at_s is not None and self._none_since_s is not None:
                self._notice(WaitOver(f"{master} has executors for this job after {now_s - self._none_since_s:.0f} s"))
            self._none_since_s = self._said_at_s = None
            return
        if self._none_since_s is None:
            self._none_since_s = now_s
        waited_s = now_s - self._none_since_s
        if waited_s < _SAY_AFTER_S or (self._said_at_s is not None and now_s - self._said_at_s < _SAY_AGAIN_AFTER_S):
            return
        self._said_at_s = now_s
        memory = self._context.getConf().get("spark.executor.memory", "1g")
        why = f"{master} has had none free for this job for {waited_s:.0f} s"
        self._notice(
            WaitingNotice(
                f"waiting for executors: {why}; the job continues when it gets one: start a worker with {memory} of "
                "free memory (spark.executor.memory), or end other applications"
            )
        )


def executors_of(context: SparkContext) -> int | None:
    """Return how many executors an application has; None if Spark does not say."""
    with contextlib.suppress(Py4JError, ConnectionError, AttributeError):
        # The driver is one of them.
        return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1
    return None


def shards_for(cores: int) -> int:
    """Return how many shards a job has on so many cores, if its owner does not say.

    Spark's scheduler takes a millisecond or two for each, in each of a step's stages, and a step of a second should
    not be spent with that.
    """
    return max(1, min(cores, max(_SHARDS_AT_EASE, 4 * math.isqrt(cores))))


def executors_for_shards(context: SparkContext | None, shards: int | None) -> int:
    """Return how many executors may have shards.

    Args:
        context: None over Spark Connect, which does not say.
        shards: how many there are; None for `shards_for`.

    Returns:
        0 if the number is not known or, on a local master, always the same.
    """
    if context is None or str(context.master).startswith("local"):
        return 0
    found = executors_of(context) or 0
    return min(found, shards or shards_for(context.defaultParallelism))


def check_executors(context: SparkContext) -> None:
    """Check that every executor has the driver's version.

    Raises:
        JobError: one has another version, or none; the message says where, and what to do.
    """
    version = _VERSION
    tasks = max(2, context.defaultParallelism)
    try:
        problems = context.parallelize(range(tasks), tasks).map(lambda _: _problem_here(version)).collect()
    except Py4JJavaError as error:
        lines = str(error.java_exception.getMessage()).splitlines()
        said = [line.strip() for line in lines if line.startswith(("pyspark.errors", "[", "ImportError", "OSError"))]
        raise JobError(
            f"the executors cannot run Python tasks: {(said or lines or ['no reason given'])[-1]}; they need the "
            "driver's version of Python and of PySpark"
        ) from error
    found = sorted({problem for problem in problems if problem is not None})
    if found:
        raise JobError(found[0])


def _restored(version: str, content: bytes) -> Any:
    """Return the object that was pickled, on an executor."""
    import pickle

    problem = _problem_here(version)
    if problem is not None:
        raise ImportError(problem)
    kind, state = pickle.loads(content)
    made = object.__new__(kind)
    made.__dict__.update(state)
    return made


def _problem_here(version: str) -> str | None:
    """Return what is wrong with the Tidegate of this Python, if anything."""
    import importlib
    import platform
    import sys

    where = f"{sys.executable} on {platform.node()}, where an executor runs,"
    todo = (
        f"install tidegate[spark]=={version} there, or set spark.pyspark.python to a Python that has it "
        "(PYSPARK_PYTHON where that machine starts Spark)"
    )
    try:
        found = getattr(importlib.import_module("tidegate"), "__version__", "of no version")
        if found != version:
            return f"{where} has Tidegate {found}, and the driver has {version}; {todo}"
        importlib.import_module("tidegate.job")
    except ImportError as error:
        what = "has no Tidegate" if error.name == "tidegate" else f"has a Tidegate without what it needs ({error})"
        return f"{where} {what}; {todo}"
    return None
