"""The metrics of a running job for Prometheus: the service's names, following Prometheus's naming rules.

Counters of inputs count from the start of the process, by input and partition; those of outputs count over the life of
the job. Rates and sums are left to queries. The watermark delay depends on the clock and is computed at each scrape.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest, make_wsgi_app, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.metrics import (
    EARLY_INPUT_EVENTS,
    FAILED_FUNCTION_REQUESTS,
    FUNCTION_EVENTS,
    FUNCTION_REQUESTS,
    INPUT_DESERIALIZATION_ERRORS,
    INPUT_EVENT_BYTES,
    INPUT_EVENTS,
    INPUT_SOURCES_RECEIVED,
    LATE_INPUT_EVENTS,
    OUT_OF_ORDER_EVENTS,
    RUNTIME_ERRORS,
)
from tidegate.connectors.outputs import OutputCounts
from tidegate.job.runtime.step import Step, Timeline, TimelineState
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND

COUNTERS = {
    INPUT_EVENTS: ("tidegate_job_input_events", "Events deserialized"),
    INPUT_SOURCES_RECEIVED: ("tidegate_job_input_sources_received", "Events of hubs and files read"),
    INPUT_EVENT_BYTES: ("tidegate_job_input_event_bytes", "Bytes of their bodies"),
    EARLY_INPUT_EVENTS: ("tidegate_job_early_input_events", "Events ahead of their arrival by more than allowed"),
    LATE_INPUT_EVENTS: ("tidegate_job_late_input_events", "Events behind their arrival by more than allowed"),
    OUT_OF_ORDER_EVENTS: ("tidegate_job_out_of_order_events", "Events below the watermark"),
    INPUT_DESERIALIZATION_ERRORS: ("tidegate_job_input_deserialization_errors", "Events that could not be read"),
    RUNTIME_ERRORS: ("tidegate_job_runtime_errors", "Rows whose evaluation failed; no partition: after a window"),
    FUNCTION_REQUESTS: ("tidegate_job_function_requests", "Calls of registered functions"),
    FAILED_FUNCTION_REQUESTS: ("tidegate_job_failed_function_requests", "Those that raised, or returned no value"),
    FUNCTION_EVENTS: ("tidegate_job_function_events", "Rows passed to registered functions"),
}
"""By metric name of a job: the counter (Prometheus adds _total) and its help."""

_PARTLY_AFTER_WINDOWS = (RUNTIME_ERRORS, FUNCTION_REQUESTS, FAILED_FUNCTION_REQUESTS, FUNCTION_EVENTS)

OUTPUT_EVENTS = ("tidegate_job_output_events", "Results that left")
DATA_CONVERSION_ERRORS = ("tidegate_job_data_conversion_errors", "Results that an output could not hold")
STEPS = ("tidegate_job_steps", "Steps taken, those that found nothing included")
BACKLOG = ("tidegate_job_backlogged_input_events", "Events in the log that have not been read")
WATERMARK = ("tidegate_job_watermark_timestamp_seconds", "The watermark, Unix time")
WATERMARK_DELAY = ("tidegate_job_watermark_delay_seconds", "How far the watermark is behind the clock")

_NAMESPACE = "tidegate_job"

NAMES = (
    *(f"{name}_total" for name, _ in (*COUNTERS.values(), OUTPUT_EVENTS, DATA_CONVERSION_ERRORS, STEPS)),
    *(name for name, _ in (BACKLOG, WATERMARK, WATERMARK_DELAY)),
    *(f"{_NAMESPACE}_process_{name}" for name in ("cpu_seconds_total", "resident_memory_bytes")),
)
"""Every metric, as it appears in the reply to a scrape."""

JOB_LABEL = "job_name"
"""Not `job`, which is Prometheus's own label of a scrape: what a target says under that name it renames."""

_NOWHERE: Timeline = ("", "")
_Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class JobCollector(Collector):
    """The metrics of one run: ``see`` is called after each step, and ``collect`` by a scrape in another thread."""

    def __init__(
        self, job: str, event_hubs: Mapping[str, str] | None = None, now_s: Callable[[], float] = time.time
    ) -> None:
        """`event_hubs`: the hubs or topics that its inputs read, by the input's name in lower case."""
        self._job = job
        self._event_hubs = event_hubs or {}
        self._now_s = now_s
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, Timeline]] = Counter()
        self._outputs: Mapping[str, OutputCounts] = {}
        self._steps = 0
        self._timelines: Mapping[Timeline, TimelineState] = {}

    def see(self, step: Step, totals: Mapping[str, int], outputs: Mapping[str, OutputCounts]) -> None:
        """Record a step."""
        with self._lock:
            self._steps += 1
            self._timelines = step.timelines
            for timeline, state in step.timelines.items():
                for name in COUNTERS:
                    self._counts[name, timeline] += state.counters.get(name, 0)
            # What is computed after a window, on the driver, belongs to no single partition.
            for name in _PARTLY_AFTER_WINDOWS:
                in_tasks = sum(state.counters.get(name, 0) for state in step.timelines.values())
                self._counts[name, _NOWHERE] += step.counters.get(name, 0) - in_tasks
            self._outputs = outputs

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, each with the label ``job_name``."""
        with self._lock:
            counts, outputs = dict(self._counts), dict(self._outputs)
            timelines, steps = dict(self._timelines), self._steps
        labels = [JOB_LABEL, "input", "event_hub", "partition"]
        for metric, (name, text) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=labels)
            for (of, timeline), count in counts.items():
                if of == metric and (timeline != _NOWHERE or count):
                    counter.add_metric(self._where(timeline), count)
            yield counter
        left = CounterMetricFamily(*OUTPUT_EVENTS, labels=[JOB_LABEL, "output"])
        refused = CounterMetricFamily(*DATA_CONVERSION_ERRORS, labels=[JOB_LABEL, "output"])
        for output, of_output in outputs.items():
            left.add_metric([self._job, output], of_output.events)
            refused.add_metric([self._job, output], of_output.conversion_errors)
        taken = CounterMetricFamily(*STEPS, labels=[JOB_LABEL])
        taken.add_metric([self._job], steps)
        yield from (left, refused, taken, *self._gauges(timelines, labels))

    def _where(self, timeline: Timeline) -> list[str]:
        name, partition = timeline
        return [self._job, name, self._event_hubs.get(name.lower(), ""), partition]

    def _gauges(self, timelines: Mapping[Timeline, TimelineState], labels: list[str]) -> Iterator[Metric]:
        backlog = GaugeMetricFamily(*BACKLOG, labels=labels)
        watermark = GaugeMetricFamily(*WATERMARK, labels=labels)
        delay = GaugeMetricFamily(*WATERMARK_DELAY, labels=labels)
        for timeline, state in timelines.items():
            where = self._where(timeline)
            backlog.add_metric(where, state.backlog)
            if state.watermark not in (NO_TIME, END_OF_TIME):
                seconds = state.watermark / TICKS_PER_SECOND
                watermark.add_metric(where, seconds)
                delay.add_metric(where, self._now_s() - seconds)
        yield from (backlog, watermark, delay)


def render(collector: JobCollector) -> bytes:
    """Return the reply to a scrape."""
    return generate_latest(_registry(collector))


@contextmanager
def served(collector: JobCollector, host: str, port: int, status: Callable[[], object] | None = None) -> Iterator[str]:
    """Answer scrapes on an address in a separate thread, and yield the address's URL. Port 0 is any free one.

    Args:
        status: returns the content of /status, served as JSON; None: only metrics are served.

    Raises:
        JobError: the port cannot be listened on.
    """
    try:
        server, thread = start_http_server(port, host, _registry(collector))
    except OSError as error:
        raise JobError(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
    if status is not None:
        server.set_app(_with_status(make_wsgi_app(_registry(collector)), status))
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _with_status(metrics: _Application, status: Callable[[], object]) -> _Application:
    def answer(request: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if request["PATH_INFO"] != "/status":
            return metrics(request, start_response)
        start_response("200 OK", [("Content-Type", "application/json"), ("Cache-Control", "no-store")])
        return [json.dumps(status(), ensure_ascii=False).encode()]

    return answer


def _registry(collector: JobCollector) -> CollectorRegistry:
    """Return a registry with the job's metrics and nothing else."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(namespace=_NAMESPACE, registry=registry)
    return registry
