"""Traces of a run. OpenTelemetry is loaded only when they are requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidegate.connectors.model.errors import JobError
from tidegate.job.run.step_times import StepTimes
from tidegate.job.runtime.step import Step


@contextmanager
def traced_to(job: str, url: str | None) -> Iterator[Callable[[Step, StepTimes], None] | None]:
    """Yield what sends each step of a job to a collector, for `RunHooks.timed`; None without an address.

    Raises:
        JobError: the packages for it are not installed.
    """
    if url is None:
        yield None
        return
    try:
        from tidegate.job.run.tracing import traced
    except ModuleNotFoundError as error:
        raise JobError(f'traces need {error.name}: pip install "tidegate[tracing]"') from error
    with traced(job, url) as timed:
        yield timed
