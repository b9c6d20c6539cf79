"""Runs one job in this process as the service ordered it, and says how it ended."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from tidegate import outbound
from tidegate.connectors.model.errors import UnavailableError
from tidegate.connectors.model.retry_policy import WaitingNotice
from tidegate.connectors.model.state_file import read_state, write_state
from tidegate.job import Job, JobError, JobQueryError
from tidegate.job.config.definition import definition_of
from tidegate.job.prepare.loading import prepare_job
from tidegate.job.run.opening import AnotherProcess, OpenRun, open_run
from tidegate.job.run.placement_policy import RunLocation
from tidegate.job.run.progress_report import StepTimes
from tidegate.job.run.run import (
    Ending,
    Placements,
    RunHooks,
    RunSettings,
    RunSummary,
    run_steps,
)
from tidegate.job.run.run_log import RunLog
from tidegate.job.run.tracing import traced_to
from tidegate.job.runtime.step import Step
from tidegate.ordering import parse_time
from tidegate.service import channel
from tidegate.service.supervision import ExitKind
from tidegate.service.worker.reporter import Reporter
from tidegate.service.worker.sharing import SharedPlacements, SparkRequests

_INTERRUPT_AFTER_S = 3.0
_TRY_LOCK_EVERY_S = 0.2
_SAY_AFTER_S = 5.0
_START_VERSION = 1

Send = Callable[[dict[str, Any]], None]
_logger = logging.getLogger("tidegate.job")


class Stop:
    """A request to stop: between two steps, or within one that takes longer or waits for something."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.is_asked = self._asked.is_set
        self._over = False
        signal.signal(signal.SIGTERM, self._interrupt)

    def ask(self) -> None:
        """Ask for it; called in any thread."""
        self._asked.set()
        threading.Thread(target=self._insist, name="tidegate-stop", daemon=True).start()

    def over(self) -> None:
        """Stop interrupting: the run has ended."""
        self._over = True

    def _insist(self) -> None:
        # An interrupted step is computed again, with the same results.
        time.sleep(_INTERRUPT_AFTER_S)
        os.kill(os.getpid(), signal.SIGTERM)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._asked.set()
        if not self._over:
            raise KeyboardInterrupt


def work(order: Mapping[str, Any], send: Send, stop: Stop, requests: SparkRequests) -> None:
    """Run the job of an order until it ends, and send why it ended."""
    try:
        summary = _run(order, send, stop, requests)
        stop.over()
        kind = ExitKind.ASKED if summary.why is Ending.STOPPED else ExitKind.COMPLETE
        message = "" if kind is ExitKind.ASKED else "its inputs have ended, and all results have left"
    except KeyboardInterrupt:
        stop.over()
        kind, message = ExitKind.ASKED, ""
    except JobError as error:
        stop.over()
        requests.await_verdict()
        # What was unavailable for too long may be back later; anything else will be as wrong the next time.
        may_pass = isinstance(error, UnavailableError) or isinstance(error.__cause__, UnavailableError)
        kind, message = ExitKind.UNAVAILABLE if may_pass else ExitKind.FATAL, str(error)
        _logger.error("%s", message)
    except MemoryError:
        stop.over()
        kind, message = ExitKind.CRASHED, "it needed more memory than it may use"
        _logger.exception("out of memory")
    except Exception as error:
        stop.over()
        requests.await_verdict()
        kind, message = ExitKind.CRASHED, f"an internal error: {type(error).__name__}: {error}; its log has more"
        _logger.exception("the job stopped because of an internal error")
    send({channel.ENDED: {"kind": kind.name, "message": message}})


def problems_of(content: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a job file."""
    try:
        _prepared(content)
    except JobQueryError as error:
        return [
            f"line {one.line}, column {one.column}: {one.message}{f'; {one.hint}' if one.hint else ''}"
            for one in error.diagnostics
        ] or [str(error)]
    except UnavailableError:
        return []  # such as reference data whose file is not there yet: the job waits for it
    except JobError as error:
        return [str(error)]
    return []


def _start(order: Mapping[str, Any], job: Job) -> int | None:
    """Return where to begin: at the ordered time, unless an earlier process has begun there and could not say so."""
    if order["start"] is None:
        return None
    begun = read_state(_start_file(job), _START_VERSION)
    return None if begun is not None and begun["asked"] == order["start_asked"] else parse_time(order["start"])


def _start_file(job: Job) -> Path:
    return (job.definition.state_dir or Path()) / "start.json"


def _prepared(content: Mapping[str, Any]) -> Job:
    name = str(content.get("name"))
    missing = [part for part in ("query", "inputs") if not content.get(part) and not content.get(f"{part}_file")]
    if missing:
        raise JobError(f"job '{name}' is incomplete: it has no {' and no '.join(missing)}")
    return prepare_job(definition_of(dict(content), Path(f"job '{name}'")), f"job '{name}'")


def _check_addresses(content: Mapping[str, Any]) -> None:
    """Raise JobError for a host that the hub's operator does not let jobs connect to."""
    for kind in ("inputs", "outputs", "functions"):
        for name, section in content.get(kind, {}).items():
            try:
                outbound.check_settings(section)
            except outbound.AddressRefused as error:
                raise JobError(f"{kind[:-1]} '{name}': {error}") from None


def _run(order: Mapping[str, Any], send: Send, stop: Stop, requests: SparkRequests) -> RunSummary:
    job = _prepared(order["content"])
    _check_addresses(order["content"])
    log = RunLog(job)
    reporter = Reporter(job.definition.name, send, job.program, job.event_hubs())

    def notice(text: str) -> None:
        log.notice(text)
        reporter.notice(text)

    start = _start(order, job)
    settings = RunSettings(max_events_per_step=order["max_events_per_step"], parallelism=order["parallelism"])
    with traced_to(job.definition.name, order["traces"]) as timed, _opened(job, start, notice, stop) as opened:
        if start is not None:
            write_state(_start_file(job), {"version": _START_VERSION, "asked": order["start_asked"]})

        def measured(step: Step, times: StepTimes) -> None:
            reporter.timed(step, times)
            if timed is not None:
                timed(step, times)

        with contextlib.ExitStack() as started:
            placements, placed = _placements(opened, log, started, notice, requests)
            hooks = RunHooks(log.step, [reporter.see], stop.is_asked, measured, notice=notice, placed=placed)
            send({channel.BEGUN: True})
            reporter.begin()
            started.callback(reporter.end)
            summary = run_steps(opened, placements, settings, hooks)
    log.end(summary)
    return summary


def _placements(
    opened: OpenRun,
    log: RunLog,
    started: contextlib.ExitStack,
    notice: Callable[[str], None],
    requests: SparkRequests,
) -> tuple[Placements, Callable[[RunLocation], None]]:
    """Return where a job runs: in this process, or on Spark; and what to call when it has moved.

    A job with a Spark of its own has a Java process of its own, too. All others share one.
    """
    spark = opened.job.definition.spark
    if SharedPlacements.suits(spark):
        shared = SharedPlacements(opened, requests)

        def placed(where: RunLocation) -> None:
            log.place(where)
            shared.moved(where)

        return shared.of_run(), placed
    from tidegate.spark.run import SparkPlacements

    return SparkPlacements(opened.job, opened, spark, started, log.spark_ui, notice).of_run(), log.place


@contextlib.contextmanager
def _opened(job: Job, start: int | None, notice: Callable[[str], None], stop: Stop) -> Iterator[OpenRun]:
    """Open the job, once no other process runs it: the one before may not have ended quite yet."""
    began, said = time.monotonic(), False
    with contextlib.ExitStack() as stack:
        while True:
            try:
                opened = stack.enter_context(open_run(job, start=start, goes_back=True, notice=notice))
                break
            except AnotherProcess as error:
                if stop.is_asked():
                    raise KeyboardInterrupt from error
                if not said and time.monotonic() - began > _SAY_AFTER_S:
                    said = True
                    notice(WaitingNotice(f"waiting: {error}"))
                time.sleep(_TRY_LOCK_EVERY_S)
        yield opened
