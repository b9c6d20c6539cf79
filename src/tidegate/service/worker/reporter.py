"""What the process of a job reports to the service: that it takes steps, what it waits for, and its metrics.

A thread sends the metrics about once a second. It says so if the current step has been running for long, which the
step itself cannot.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client.metrics_core import Metric

from tidegate.job.model.retry_policy import Waiting, WaitOver
from tidegate.job.outputs import OutputCounts
from tidegate.job.run.prometheus import JobCollector
from tidegate.job.runtime.step import Step
from tidegate.service import channel

_MEASURE_EVERY_S = 1.0
_LONG_STEP_S = 60.0


class Reporter:
    """The reports of one run."""

    def __init__(self, job: str, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._collector = JobCollector(job)
        self._stepped_at_s: float | None = None
        self._is_ready = False
        self._lock = threading.Lock()
        self._over = threading.Event()

    def see(self, step: Step, totals: Mapping[str, int], outputs: Mapping[str, OutputCounts]) -> None:
        """Note a step (`tidegate.job.run.run.Observer`)."""
        self._collector.see(step, totals, outputs)
        with self._lock:
            self._stepped_at_s = time.monotonic()
            if not self._is_ready:
                self._is_ready = True
                self._send({channel.READY: True})

    def notice(self, text: str) -> None:
        """Report what the run waits for; other notices are only logged."""
        with self._lock:
            if isinstance(text, Waiting):
                self._is_ready = False
                self._stepped_at_s = None
                self._send({channel.TROUBLE: str(text)})
            elif isinstance(text, WaitOver):
                self._stepped_at_s = time.monotonic()

    def begin(self) -> None:
        """Start sending metrics."""
        threading.Thread(target=self._measure, name="tidegate-reports", daemon=True).start()

    def end(self) -> None:
        """Send no more."""
        self._over.set()

    def _measure(self) -> None:
        while not self._over.wait(_MEASURE_EVERY_S):
            with self._lock:
                busy_s = 0.0 if self._stepped_at_s is None else time.monotonic() - self._stepped_at_s
                if busy_s > _LONG_STEP_S and self._is_ready:
                    self._is_ready = False
                    self._send({channel.TROUBLE: f"its present step has been running for {busy_s:,.0f} s"})
            self._send({channel.MEASURED: {"families": [_family(one) for one in self._collector.collect()]}})


def _family(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "help": metric.documentation,
        "type": metric.type,
        "samples": [[sample.name, sample.labels, sample.value] for sample in metric.samples],
    }


def cpu_seconds() -> float:
    """Return how much processor time this process has used."""
    times = os.times()
    return times.user + times.system
