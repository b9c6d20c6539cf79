"""The metrics of running jobs over time: what each said about itself, every few seconds, for the charts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tidegate.service import Jobs, JobState

_logger = logging.getLogger(__name__)

EVERY_S = 5.0
FINE = 720
COARSE = 1440
COARSE_S = 60.0
RANGES = {"1h": 3600, "24h": 86_400}

Sample = tuple[float, Mapping[str, float | None]]


class MetricsHistory:
    """An hour of samples of each job at full resolution, and a day of one a minute. Kept in memory."""

    def __init__(self, jobs: Jobs, now_s: Callable[[], float] = time.time) -> None:
        self._jobs = jobs
        self._now_s = now_s
        self._fine: dict[str, deque[Sample]] = {}
        self._coarse: dict[str, deque[Sample]] = {}

    def begin(self) -> None:
        """Take samples from now on, as long as the event loop runs."""
        loop = asyncio.get_running_loop()

        def take() -> None:
            loop.run_in_executor(None, self.sample).add_done_callback(taken)

        def taken(done: asyncio.Future[None]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                _logger.error("portal: the metrics of the jobs could not be read; trying again", exc_info=error)
            loop.call_later(EVERY_S, take)

        loop.call_later(EVERY_S, take)

    def sample(self) -> None:
        """Take a sample of every job that runs, and forget jobs that are gone."""
        now_s = self._now_s()
        known = set()
        for job in self._jobs.list():
            known.add(job.job_id)
            if job.state in (JobState.RUNNING, JobState.DEGRADED):
                with contextlib.suppress(Exception):
                    self._keep(job.job_id, now_s, self._jobs.metrics(job.name))
        for kept in (self._fine, self._coarse):
            for job_id in [one for one in kept if one not in known]:
                del kept[job_id]

    def _keep(self, job_id: str, now_s: float, metrics: Mapping[str, float | None]) -> None:
        if not metrics:
            return
        self._fine.setdefault(job_id, deque(maxlen=FINE)).append((now_s, metrics))
        coarse = self._coarse.setdefault(job_id, deque(maxlen=COARSE))
        if not coarse or now_s - coarse[-1][0] >= COARSE_S:
            coarse.append((now_s, metrics))

    def series(self, job_id: str, range_name: str) -> dict[str, Any]:
        """Return the samples of a range: `times`, and for each metric its values; counters as events a second."""
        length_s = RANGES[range_name]
        kept = (self._fine if range_name == "1h" else self._coarse).get(job_id, ())
        samples = [one for one in kept if one[0] >= self._now_s() - length_s]
        names = sorted({name for _, metrics in samples for name in metrics})
        times = [round(at, 1) for at, _ in samples]
        return {
            "range": range_name,
            "times": times,
            "metrics": {name: [metrics.get(name) for _, metrics in samples] for name in names},
            "rates": {name: _rates(name, samples) for name in names},
        }


def _rates(name: str, samples: list[Sample]) -> list[float | None]:
    """Return how much a counter grew a second since the sample before; None where it is not known."""
    rates: list[float | None] = [None] if samples else []
    for (before_s, before), (after_s, after) in itertools.pairwise(samples):
        first, last = before.get(name), after.get(name)
        if first is None or last is None or last < first or after_s <= before_s:
            rates.append(None)  # it was started again in between
        else:
            rates.append(round((last - first) / (after_s - before_s), 3))
    return rates
