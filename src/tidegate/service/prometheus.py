"""The metrics of all jobs for Prometheus: what their processes measured, and what the service knows of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.service.jobs import Jobs
from tidegate.service.processes import usage_of
from tidegate.service.states import JobState

STATE = ("tidegate_job_state", "1 for the state that the job is in, 0 for the others")
RESTARTS = ("tidegate_job_restarts", "Times the job's process was started again since the job was started")
MEMORY = ("tidegate_job_process_resident_memory_bytes", "Memory of the job's process, without files")
CPU = ("tidegate_job_process_cpu_seconds", "Processor time of the job's process")
SPARK_MEMORY = (
    "tidegate_shared_spark_resident_memory_bytes",
    "Memory of the Spark that jobs share, without files: its process, Java and Python workers; 0 if it does not run",
)
SPARK_CPU = ("tidegate_shared_spark_cpu_seconds", "Processor time of the Spark that jobs share, since it was started")
JOB_LABEL = "job_name"
"""Not `job`, which is the label that Prometheus gives every series for where it was scraped."""
NAMES = (STATE[0], f"{RESTARTS[0]}_total", MEMORY[0], f"{CPU[0]}_total", SPARK_MEMORY[0], f"{SPARK_CPU[0]}_total")
"""Every metric of the service's own, as it appears in the reply to a scrape."""

_WATERMARK, _DELAY = "tidegate_job_watermark_timestamp_seconds", "tidegate_job_watermark_delay_seconds"


class JobsCollector(Collector):
    """Collects the metrics of all jobs, when a scrape asks for them, in any thread."""

    def __init__(self, jobs: Jobs, now_s: Callable[[], float] = time.time) -> None:
        self._jobs = jobs
        self._now_s = now_s

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, each family once, with the samples of all jobs."""
        yield from self._measured()
        states = GaugeMetricFamily(*STATE, labels=[JOB_LABEL, "state"])
        restarts = CounterMetricFamily(*RESTARTS, labels=[JOB_LABEL])
        memory = GaugeMetricFamily(*MEMORY, labels=[JOB_LABEL])
        cpu = CounterMetricFamily(*CPU, labels=[JOB_LABEL])
        for job in self._jobs.summaries():
            for state in JobState:
                states.add_metric([job.name, state.value], float(state is job.state))
            restarts.add_metric([job.name], job.restarts)
            usage = None if job.process is None else usage_of(job.process)
            if usage is not None:
                memory.add_metric([job.name], usage.memory_bytes)
                cpu.add_metric([job.name], usage.cpu_s)
        yield from (states, restarts, memory, cpu)
        shared = self._jobs.spark_usage()
        yield GaugeMetricFamily(*SPARK_MEMORY, value=0.0 if shared is None else shared.memory_bytes)
        yield CounterMetricFamily(*SPARK_CPU, value=0.0 if shared is None else shared.cpu_s)

    def _measured(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for measured in self._jobs.samples().values():
            watermarks = {}
            for family in measured["families"]:
                metric = families.setdefault(family["name"], Metric(family["name"], family["help"], family["type"]))
                for name, labels, value in family["samples"]:
                    place = tuple(sorted(labels.items()))
                    if name == _WATERMARK:
                        watermarks[place] = value
                    # A process that waits does not say so every second, and its delay grows all the same.
                    late = name == _DELAY and place in watermarks
                    metric.add_sample(name, labels, self._now_s() - watermarks[place] if late else value)
        yield from families.values()
