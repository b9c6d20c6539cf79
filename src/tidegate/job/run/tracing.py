"""OpenTelemetry traces of a job's steps (the extra `tracing`): one trace a step, sent by OTLP over HTTP.

A span `step` has the spans `compute` (reading, stamping, evaluating) and `commit` (outputs, then the journal). Steps
that read nothing and emit nothing are left out: an idle job takes several a second. Spans leave in a thread of their
own, and a collector that is unavailable delays no step. OpenTelemetry is loaded only when traces are requested.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.connectors.model.errors import JobError
from tidegate.job.run.progress_report import StepTimes
from tidegate.job.runtime.step import Step, gauges
from tidegate.ordering import END_OF_TIME, NO_TIME, format_time

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

_NANOSECONDS_PER_TICK = 100
_PATH = "/v1/traces"


@dataclass(frozen=True, slots=True)
class _StepTracer:
    tracer: Tracer
    job: str

    def see(self, step: Step, times: StepTimes) -> None:
        """Record the spans of a step."""
        from opentelemetry.trace import set_span_in_context

        results = sum(len(rows) for rows in step.rows)
        if not step.events and not results:
            return
        attributes: dict[str, str | int | float] = {
            "tidegate.job": self.job,
            "tidegate.events": step.events,
            "tidegate.results": results,
            "tidegate.backlog": step.backlog,
        }
        if step.watermark not in (NO_TIME, END_OF_TIME):
            attributes["tidegate.watermark"] = format_time(step.watermark)
        for name, value in gauges(step, times.committed_ns // _NANOSECONDS_PER_TICK).items():
            if value is not None:
                attributes[f"tidegate.{name.lower().replace(' ', '_')}"] = value
        for rows in step.rows:
            attributes[f"tidegate.results.{rows.output}"] = len(rows)
        span = self.tracer.start_span("step", attributes=attributes, start_time=times.began_ns)
        within = set_span_in_context(span)
        for name, begin, end in (
            ("compute", times.began_ns, times.computed_ns),
            ("commit", times.computed_ns, times.committed_ns),
        ):
            self.tracer.start_span(name, within, start_time=begin).end(end)
        span.end(times.committed_ns)


@contextmanager
def traced(job: str, url: str, exporter: SpanExporter | None = None) -> Iterator[Callable[[Step, StepTimes], None]]:
    """Yield what records a step, for `RunHooks.timed`; spans that are left are sent at the end.

    Args:
        url: of the collector, such as http://127.0.0.1:4318; OTEL_EXPORTER_OTLP_HEADERS and its other variables apply.
        exporter: sends the spans; None: OTLP over HTTP.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "tidegate", "service.instance.id": job}))
    address = url if url.rstrip("/").endswith(_PATH) else url.rstrip("/") + _PATH
    provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter(endpoint=address)))
    try:
        yield _StepTracer(provider.get_tracer("tidegate.job"), job).see
    finally:
        provider.shutdown()


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
        for package in ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk.trace"):
            importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise JobError(f'traces need {error.name}: pip install "tidegate[tracing]"') from error
    with traced(job, url) as timed:
        yield timed
