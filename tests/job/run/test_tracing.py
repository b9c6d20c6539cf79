"""Traces of steps: what a collector receives, over a real connection and as spans."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.job.logs import travelling
from tests.job.run.test_run import write_job
from tidegate.job import load_job
from tidegate.job.run.opening import open_run
from tidegate.job.run.run import RunHooks, RunSettings, run_steps
from tidegate.job.run.tracing import traced


def run_traced(folder: Path, url: str, exporter: InMemorySpanExporter | None = None) -> None:
    """Run a job of 60 events, 20 a step."""
    job = load_job(write_job(folder, 60))
    with traced(job.definition.name, url, exporter) as timed, open_run(job) as opened:
        settings = RunSettings(max_events_per_step=20)
        run_steps(opened, travelling(job), settings, RunHooks(timed=timed))


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A collector that keeps the requests it receives: their paths and bodies."""
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_step_is_a_trace_of_what_it_computed_and_committed(tmp_path: Path) -> None:
    exporter = InMemorySpanExporter()
    run_traced(tmp_path, "http://127.0.0.1:9", exporter)
    spans = exporter.get_finished_spans()
    steps = [span for span in spans if span.name == "step"]
    assert sum(span.attributes["tidegate.events"] for span in steps) == 60
    assert sum(span.attributes["tidegate.results"] for span in steps) == sum(
        len((tmp_path / f"{name}.jsonl").read_bytes().splitlines()) for name in ("counted", "large")
    )
    for step in steps:
        within = [span for span in spans if span.parent is not None and span.parent.span_id == step.context.span_id]
        assert [span.name for span in within] == ["compute", "commit"]
        assert [within[0].start_time, within[1].end_time] == [step.start_time, step.end_time]
        assert within[0].end_time == within[1].start_time
        assert step.attributes["tidegate.job"] == "crash"


def test_traces_reach_a_collector_over_http(tmp_path: Path) -> None:
    with collector() as (url, received):
        run_traced(tmp_path, url)
    assert {path for path, _ in received} == {"/v1/traces"}
    body = b"".join(content for _, content in received)
    assert b"tidegate.watermark" in body
    assert b"compute" in body
