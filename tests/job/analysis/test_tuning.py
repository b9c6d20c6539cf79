"""Tuning says of each pair of tolerances what a run with them counts; its smallest pairs suffice and are smallest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job.logs import EPOCH, TravellingTasks, logs, policies, prepared
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.model.events import Events, LogRange
from tidegate.connectors.model.metrics import (
    EARLY_INPUT_EVENTS,
    INPUT_DESERIALIZATION_ERRORS,
    LATE_INPUT_EVENTS,
    OUT_OF_ORDER_EVENTS,
)
from tidegate.engine import Format
from tidegate.job import JobError, Stepper
from tidegate.job.analysis.replay_source import ReplaySource
from tidegate.job.analysis.stretch_picture import stretch_svg
from tidegate.job.analysis.tuning import tuned
from tidegate.ordering import TICKS_PER_SECOND, Policy, TuningOutcome, format_time

PLAIN = "SELECT System.Timestamp() AS ts INTO out FROM i TIMESTAMP BY t"
OVER = "SELECT System.Timestamp() AS ts INTO out FROM i TIMESTAMP BY t OVER k"


def counted(source: ReplaySource, outcome: TuningOutcome) -> dict[str, int]:
    """What a run with the outcome's tolerances counts."""
    policy = replace(source.policy, late_ticks=outcome.late_ticks, out_of_order_ticks=outcome.out_of_order_ticks)
    return Stepper(source.program, policy, source.logs, TravellingTasks(source.program, policy)).step().counters


@pytest.mark.slow
@given(
    log=logs(),
    policy=policies,
    sql=st.sampled_from([PLAIN, OVER]),
    lates=st.lists(st.sampled_from([0, 1, 5, 10, 11, 3600]), min_size=1, max_size=3, unique=True),
    orders=st.lists(st.sampled_from([0, 1, 3, 20, 400]), min_size=1, max_size=3, unique=True),
)
def test_every_outcome_is_what_a_run_with_those_tolerances_counts(
    log: RecordedLog, policy: Policy, sql: str, lates: list[int], orders: list[int]
) -> None:
    source = ReplaySource("random", prepared(sql), policy, {"i": log})
    tuning = tuned(
        source,
        late_ticks=[late * TICKS_PER_SECOND for late in lates],
        out_of_order_ticks=[order * TICKS_PER_SECOND for order in orders],
    )
    outcomes = [tuning.current, *(outcome for row in tuning.grid for outcome in row)]
    assert len(outcomes) == 1 + len(lates) * len(orders)
    for outcome in outcomes:
        counters = counted(source, outcome)
        assert tuning.early == counters.get(EARLY_INPUT_EVENTS, 0)
        assert tuning.unreadable == counters.get(INPUT_DESERIALIZATION_ERRORS, 0)
        assert outcome.late == counters.get(LATE_INPUT_EVENTS, 0)
        out_of_order = outcome.out_of_order if policy.adjusts else outcome.out_of_order_dropping
        assert out_of_order == counters.get(OUT_OF_ORDER_EVENTS, 0)


@given(log=logs(), sql=st.sampled_from([PLAIN, OVER]), keep=st.sampled_from([0.5, 0.9, 0.999, 1.0]))
def test_the_smallest_tolerances_suffice_and_smaller_ones_do_not(log: RecordedLog, sql: str, keep: float) -> None:
    source = ReplaySource("random", prepared(sql), Policy.seconds(), {"i": log})
    for outcome in tuned(source, keep=keep).smallest:
        assert outcome.share_untouched >= keep - 1e-9
        if outcome.late_ticks:
            (row,) = tuned(
                source,
                late_ticks=[outcome.late_ticks - TICKS_PER_SECOND],
                out_of_order_ticks=[outcome.out_of_order_ticks or 0],
            ).grid
            assert row[0].share_untouched < keep


def test_without_event_times_there_is_nothing_to_tune() -> None:
    source = ReplaySource(
        "arrival", prepared("SELECT 1 AS x INTO out FROM i"), Policy.seconds(), {"i": RecordedLog([])}
    )
    with pytest.raises(JobError, match="nothing to tune"):
        tuned(source)


def test_an_empty_log_has_nothing_touched() -> None:
    tuning = tuned(ReplaySource("empty", prepared(PLAIN), Policy.seconds(), {"i": RecordedLog([])}))
    assert tuning.events == 0
    assert tuning.current.share_untouched == 1
    json.dumps(tuning.as_json())


class CsvLog(RecordedLog):
    """A log of bodies in CSV."""

    def range(self, partition: str, start: int, end: int) -> Any:
        """As the log has it, and what its bodies are."""
        return CsvRange(start, end, super().range(partition, start, end))


@dataclass(frozen=True)
class CsvRange:
    start: int
    end: int
    inner: LogRange

    def read_events(self, batch_events: int) -> Iterator[Events]:
        for events in self.inner.read_events(batch_events):
            yield replace(events, format=Format(kind="csv", columns=("t", "k")))


def test_bodies_of_another_format_are_read_as_the_job_reads_them() -> None:
    log = CsvLog(
        RecordedEvent("0", EPOCH + second * TICKS_PER_SECOND, f"{format_time(EPOCH)},{key}\r\n".encode())
        for second, key in ((0, "a"), (3, "b"), (4, "a"))
    )
    source = ReplaySource("csv", prepared(OVER), Policy.seconds(late=2), {"i": log})
    found = tuned(source)
    assert (found.events, found.unreadable, found.current.late) == (3, 0, 2)
    picture = stretch_svg(source)
    assert ">a<" in picture
    assert ">b<" in picture
