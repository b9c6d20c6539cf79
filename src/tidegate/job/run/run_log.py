"""What the run of a job logs: notices, a summary of the steps every few seconds, and how the run ended.

Lines go to standard error with their time and level; results go to the outputs. With --log-format json each line
is an object, with the figures as fields of their own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from tidegate.connectors.model.metrics import (
    DATA_CONVERSION_ERRORS,
    DATA_ERRORS_FILE,
    EARLY_INPUT_EVENTS,
    INPUT_DESERIALIZATION_ERRORS,
    LATE_INPUT_EVENTS,
    OUT_OF_ORDER_EVENTS,
    RUNTIME_ERRORS,
    WATERMARK_DELAY,
)
from tidegate.job.analysis.query_plan import plan_of
from tidegate.job.prepare.functions import registered_functions
from tidegate.job.prepare.loading import Job
from tidegate.job.run.placement_policy import RunLocation
from tidegate.job.run.run import RunSummary, StepReport
from tidegate.job.runtime.data_error_tally import DataErrorTally
from tidegate.ordering import END_OF_TIME, NO_TIME, format_time

_SUMMARY_EVERY_S = 5.0
_LOST = (INPUT_DESERIALIZATION_ERRORS, RUNTIME_ERRORS, DATA_CONVERSION_ERRORS)
_logger = logging.getLogger("tidegate.job")


class RunLog:
    """The log of one run."""

    def __init__(
        self, job: Job, monotonic_s: Callable[[], float] = time.monotonic, *, shows_events: bool = False
    ) -> None:
        """
        Args:
            shows_events: at its end, log for each reason how many events could not be used, and the first of them.
        """
        folder = job.definition.state_dir
        assert folder is not None
        self._name = job.definition.name
        self._data_errors = folder / DATA_ERRORS_FILE
        self._errors = DataErrorTally(keeps_samples=False) if shows_events else None
        self._monotonic_s = monotonic_s
        self._summed_up_at_s: float | None = None
        self._last: StepReport | None = None
        self._steps = self._events = self._results = 0
        _logger.info("%s: %s", self._name, job.policy.describe())
        plan = plan_of(job.program.query, registered_functions(job.definition.functions))
        for doubt in plan.warnings:
            hint = f" ({doubt.hint})" if doubt.hint else ""
            _logger.warning("the query, line %d, column %d: %s%s", doubt.line, doubt.column, doubt.message, hint)
        for kept in plan.kept():
            _logger.info("keeps for %s", kept)

    def metrics(self, address: str) -> None:
        """Log where the metrics are served."""
        _log(logging.INFO, f"metrics: {address}", {"metrics": address})

    def spark_ui(self, address: str) -> None:
        """Log where Spark's web UI is served."""
        _log(logging.INFO, f"Spark UI: {address}", {"spark_ui": address})

    def place(self, where: RunLocation) -> None:
        """Log where the job runs, as it begins and whenever that changes."""
        _log(logging.INFO, str(where), {"placement": where.as_json()})

    def notice(self, text: str) -> None:
        """Log a warning, or what the run waits for."""
        _logger.warning("%s", text)

    def step(self, report: StepReport) -> None:
        """Add a step to the summary, and log it if it is due."""
        self._last = report
        if self._errors is not None:
            self._errors.take(report.step)
        self._steps += 1
        self._events += report.step.events
        self._results += report.step.result_count
        now_s = self._monotonic_s()
        if self._summed_up_at_s is None or now_s - self._summed_up_at_s >= _SUMMARY_EVERY_S:
            self._summed_up_at_s = now_s
            self._sum_up()

    def end(self, summary: RunSummary) -> None:
        """Log how the run ended."""
        self._sum_up()
        self._end(str(summary.why), summary.watermark, summary.totals, summary.gauges)

    def interrupted(self) -> None:
        """Log the end of a run that was stopped within a step, or while it waited."""
        self._sum_up()
        last = self._last
        if last is not None:
            self._end("stopped", last.step.watermark, last.totals, last.gauges())
        _log(logging.INFO, "stopped; the next run resumes after the last committed result", {"ended": "stopped"})

    def _sum_up(self) -> None:
        """Log the steps since the last summary, if there are any."""
        report = self._last
        if report is None or not self._steps:
            return
        delay_s = report.watermark_delay_s
        delay = "" if delay_s is None else f", {delay_s:.1f} s behind the clock"
        totals = report.totals
        shown = shown_time(report.step.watermark)
        _log(
            logging.INFO,
            f"{_counted(self._steps, 'step')}: {_counted(self._events, 'event')}, {_counted(self._results, 'result')}; "
            f"watermark {shown or 'none yet'}{delay}; early {totals[EARLY_INPUT_EVENTS]:,}, late "
            f"{totals[LATE_INPUT_EVENTS]:,}, out of order {totals[OUT_OF_ORDER_EVENTS]:,}",
            {
                "step": report.number,
                "steps": self._steps,
                "events": self._events,
                "results": self._results,
                "backlog": report.step.backlog,
                "watermark": shown,
                "watermarkDelayS": delay_s,
                "metrics": {**totals, **report.gauges()},
            },
        )
        self._steps = self._events = self._results = 0

    def _end(self, why: str, watermark: int, totals: Mapping[str, int], now: Mapping[str, float | None]) -> None:
        gauges = {
            name: f"{value:,.1f} s" if name == WATERMARK_DELAY else f"{value:,}" for name, value in now.items() if value
        }
        counted = [f"{name} {count:,}" for name, count in totals.items() if count]
        counted += [f"{name} {value}" for name, value in gauges.items()]
        shown = None if watermark == NO_TIME else shown_time(watermark)
        _log(
            logging.INFO,
            f"{why}: {', '.join(counted) or 'nothing read'}",
            {"ended": why, "watermark": shown, "metrics": {**totals, **now}},
        )
        lost = sum(totals.get(name, 0) for name in _LOST)
        if lost:
            what = "1 event or result" if lost == 1 else f"{lost:,} events or results"
            _logger.warning("%s could not be used; samples are in %s", what, self._data_errors)
        for one in () if self._errors is None else self._errors.counts():
            _logger.warning("%s", one)


def shown_time(ticks: int) -> str | None:
    """Return a time for people; None if there is none."""
    if ticks == END_OF_TIME:
        return "the end of the log"
    return None if ticks == NO_TIME else format_time(ticks)


def _log(level: int, message: str, fields: Mapping[str, Any]) -> None:
    _logger.log(level, "%s", message, extra={"fields": dict(fields)})


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
