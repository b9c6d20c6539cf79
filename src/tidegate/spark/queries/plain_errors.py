"""Errors of the source and the sink that Spark shows without a traceback, as their messages say what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.connectors.model.errors import JobError

_HIDE = "SPARK_HIDE_TRACEBACK"
_OF_WORKERS = "PYTHON_WORKER_FACTORY_"


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let a worker of Spark report an error of Tidegate's by its message alone."""
    try:
        yield
    except JobError as error:
        if any(name.startswith(_OF_WORKERS) for name in os.environ):
            # PySpark looks this up as it reports an error, which is the last that a worker does.
            os.environ[_HIDE] = "1"
        raise error.with_traceback(None) from None
