"""What the process of a job reports to the service: that it takes steps, what it waits for, and its metrics.

A thread sends the metrics about once a second. It says so if the current step has been running for long, which the
step itself cannot.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from prometheus_client.metrics_core import Metric

from tidegate.connectors.model.metrics import WATERMARK_DELAY
from tidegate.connectors.model.retry_policy import WaitingNotice, WaitOver
from tidegate.connectors.outputs import OutputCounts
from tidegate.engine import OperatorRows, Program
from tidegate.job.run.progress_report import StepTimes
from tidegate.job.run.prometheus import JobCollector
from tidegate.job.runtime.step import Step, gauges
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND
from tidegate.service import channel
from tidegate.service.metric_history import EVENTS_READ

_MEASURE_EVERY_S = 1.0
_LONG_STEP_S = 60.0
_TICKS_NS = 100
_SAMPLED_ROWS = 20
_LONGEST_SAMPLE = 2000
_MOST_PARTITIONS = 256


class Reporter:
    """The reports of one run."""

    def __init__(
        self,
        job: str,
        send: Callable[[dict[str, Any]], None],
        program: Program,
        event_hubs: Mapping[str, str] | None = None,
    ) -> None:
        self._send = send
        self._collector = JobCollector(job, event_hubs)
        self._figures = _Figures([program.delay(operator.relation) for operator in program.operators])
        self._stepped_at_s: float | None = None
        self._is_ready = False
        self._lock = threading.Lock()
        self._over = threading.Event()

    def see(self, step: Step, totals: Mapping[str, int], outputs: Mapping[str, OutputCounts]) -> None:
        """Note a step (`tidegate.job.run.run.Observer`)."""
        self._collector.see(step, totals, outputs)
        with self._lock:
            self._figures.see(step, totals, outputs)
            self._stepped_at_s = time.monotonic()
            if not self._is_ready:
                self._is_ready = True
                self._send({channel.READY: True})

    def timed(self, step: Step, times: StepTimes) -> None:
        """Note how long a step took (`tidegate.job.run.run.RunHooks.timed`)."""
        with self._lock:
            self._figures.times = times

    def notice(self, text: str) -> None:
        """Report what the run waits for; other notices are only logged."""
        with self._lock:
            if isinstance(text, WaitingNotice):
                self._is_ready = False
                self._stepped_at_s = None
                self._send({channel.TROUBLE: str(text)})
            elif isinstance(text, WaitOver):
                self._stepped_at_s = time.monotonic()

    def families(self) -> list[dict[str, Any]]:
        """Return the metrics for Prometheus, as the service takes them."""
        return [_family(one) for one in self._collector.collect()]

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
                figures = self._figures.as_json()
            self._send({channel.MEASURED: {"families": self.families(), **figures}})


class _Figures:
    """What the last step says for the portal: metrics, counts by input and output, and samples of rows."""

    def __init__(self, lags: Sequence[int]) -> None:
        """``lags``: how far the rows of each operator are behind the watermark, in ticks."""
        self.times: StepTimes | None = None
        self._lags = lags
        self._step: Step | None = None
        self._rows = OperatorRows()
        self._totals: Mapping[str, int] = {}
        self._outputs: Mapping[str, OutputCounts] = {}
        self._samples: dict[str, list[str]] = {}
        self._sampled_at_s = 0.0

    def see(self, step: Step, totals: Mapping[str, int], outputs: Mapping[str, OutputCounts]) -> None:
        """Note a step. Rows are sampled once a second at most, so that this costs a fast job nothing."""
        self._step = replace(step, rows=[], encoded=[], trace=[], data_errors=[])
        self._rows.add(step.operator_rows)
        self._totals, self._outputs = dict(totals), outputs
        if step.rows and time.monotonic() - self._sampled_at_s >= _MEASURE_EVERY_S:
            self._sampled_at_s = time.monotonic()
            self._samples |= dict(_samples(step))

    def as_json(self) -> dict[str, Any]:
        """Return it; nothing before the first step."""
        step = self._step
        if step is None:
            return {}
        inputs: dict[str, int] = {}
        for (name, _), state in step.timelines.items():
            inputs[name] = inputs.get(name, 0) + state.end.end - state.backlog
        now_ticks = time.time_ns() // _TICKS_NS
        now = gauges(step, now_ticks)
        found: dict[str, Any] = {
            "metrics": {**self._totals, **now},
            "partitions": _partitions(step, now_ticks),
            "inputs": inputs,
            "outputs": {name: counts.events for name, counts in self._outputs.items()},
            "samples": self._samples,
            "operators": self._operators(step, now[WATERMARK_DELAY]),
        }
        if step.state_bytes is not None:
            found["stateBytes"] = step.state_bytes
        if self.times is not None:
            found["computeSeconds"] = (self.times.computed_ns - self.times.began_ns) / 1e9
            found["commitSeconds"] = (self.times.committed_ns - self.times.computed_ns) / 1e9
        return found

    def _operators(self, step: Step, delay_s: float | None) -> list[dict[str, Any]]:
        """Return what each operator has done since this process began, in the order of their numbers.

        The delay of an operator is the time from now back to where its results are complete.
        """
        taken, released = self._rows.taken, self._rows.released
        sides: dict[int, list[int]] = {}
        for (number, _), rows in sorted(taken.items()):
            sides.setdefault(number, []).append(rows)
        return [
            {
                "operator": number,
                "rowsTaken": sides.get(number, []),
                "rowsReleased": released[number],
                "stateBytes": step.operator_bytes.get(number),
                "delaySeconds": None if delay_s is None else delay_s + lag / TICKS_PER_SECOND,
            }
            for number, lag in enumerate(self._lags)
        ]


def _partitions(step: Step, now: int) -> dict[str, float | None]:
    """Return the metrics of the partitions, of the first ones where there are very many; ``now`` in ticks."""
    found: dict[str, float | None] = {}
    for (name, partition), state in itertools.islice(step.timelines.items(), _MOST_PARTITIONS):
        is_known = state.watermark not in (NO_TIME, END_OF_TIME)
        delay_s = (now - state.watermark) / TICKS_PER_SECOND if is_known else None
        found[f"{WATERMARK_DELAY} {name}/{partition}"] = delay_s
        found[f"{EVENTS_READ} {name}/{partition}"] = state.position
    return found


def _samples(step: Step) -> Iterator[tuple[str, list[str]]]:
    for rows in step.rows:
        last = np.arange(max(0, len(rows) - _SAMPLED_ROWS), len(rows))
        if len(last):
            taken = replace(
                rows,
                timestamps=rows.timestamps[last],
                columns=tuple(column.take(last) for column in rows.columns),
                merge_keys=(),
            )
            yield rows.output, [json.dumps(row, default=str)[:_LONGEST_SAMPLE] for row in taken.to_dicts()]


def _family(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "help": metric.documentation,
        "type": metric.type,
        "samples": [[sample.name, sample.labels, sample.value] for sample in metric.samples],
    }
