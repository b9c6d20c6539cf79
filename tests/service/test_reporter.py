"""What the process of a job reports to the service."""

from __future__ import annotations

import json
import queue
import time
from typing import Any

import pytest

from tests.job.logs import RevealedLog, TravellingTasks, prepared
from tests.patience import PATIENCE_S
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.job.runtime.step import Stepper
from tidegate.ordering import TICKS_PER_SECOND, Policy
from tidegate.service import channel
from tidegate.service.worker.reporter import Reporter

BEHIND_S = 30


@pytest.mark.slow
def test_an_operator_is_behind_by_its_own_delay_and_that_of_what_it_reads() -> None:
    """Rows without a match are known a second less a tick later; a window of them is no later than they are."""
    program = prepared(
        "WITH pairs AS (SELECT a.k FROM i a LEFT JOIN i b ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 5) "
        "SELECT k, COUNT(*) AS n INTO joined FROM pairs GROUP BY k, TumblingWindow(second, 2) "
        "SELECT COUNT(*) AS n INTO counted FROM i GROUP BY TumblingWindow(second, 2)"
    )
    policy = Policy.seconds()
    # A watermark that is half a minute behind now.
    arrival = time.time_ns() // 100 - BEHIND_S * TICKS_PER_SECOND
    log = RevealedLog(RecordedLog([RecordedEvent("0", arrival, json.dumps({"k": "x", "v": 1}).encode())]))
    log.clock = arrival
    step = Stepper(program, policy, {"i": log}, TravellingTasks(program, policy)).step()
    sent: queue.Queue[dict[str, Any]] = queue.Queue()
    reporter = Reporter("job", sent.put, program)
    reporter.see(step, {}, {})
    reporter.begin()
    try:
        report = next(message for _ in range(5) if channel.MEASURED in (message := sent.get(timeout=PATIENCE_S)))
    finally:
        reporter.end()
    assert report[channel.MEASURED]["partitions"]["Watermark Delay i/0"] >= BEHIND_S
    assert report[channel.MEASURED]["partitions"]["Events Read i/0"] == step.timelines["i", "0"].position
    operators = report[channel.MEASURED]["operators"]
    watermark_delay = report[channel.MEASURED]["metrics"]["Watermark Delay"]
    assert watermark_delay >= BEHIND_S
    lags = sorted(one["delaySeconds"] - watermark_delay for one in operators)
    assert lags == pytest.approx([0, 1, 1], abs=0.001)
