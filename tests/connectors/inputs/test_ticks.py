"""Ticks: an idle input whose clock nobody tells still lets results out, and the same ones however it is run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job.estimates import SilentLog, SteppingClock, remember
from tests.job.logs import EPOCH, RevealedLog, TravellingTasks, logs, policies, prepared
from tidegate.connectors.inputs.kinds import ArrivalEstimate
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.inputs.ticks import TickedLog, Ticks
from tidegate.connectors.model.errors import JobError
from tidegate.engine import Program
from tidegate.job.runtime.step import Progress, Stepper, StepSettings
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND, Policy, read_from

SECOND = TICKS_PER_SECOND
COUNTING = (
    "SELECT k, COUNT(*) AS n, System.Timestamp() AS ts FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 3)"
)
PASSING = "SELECT k, v, System.Timestamp() AS ts FROM i TIMESTAMP BY t"
ARRIVING = "SELECT COUNT(*) AS n, System.Timestamp() AS ts FROM i GROUP BY TumblingWindow(second, 3)"
OVER = COUNTING.replace("BY t", "BY t OVER k")


def event(second: float, time: float | None = None, key: str = "a") -> RecordedEvent:
    stamp = '"2026-01-01T00:00:%09.6fZ"' % (second if time is None else time)
    return RecordedEvent(
        "0", EPOCH + round(second * SECOND), b'{"t":%s,"k":"%s","v":1}' % (stamp.encode(), key.encode())
    )


def ticked(
    events: list[RecordedEvent], folder: Path | None = None, idle_after_s: float | None = 1
) -> tuple[SilentLog, TickedLog, Ticks, SteppingClock]:
    log, ticks, clock = SilentLog(RecordedLog(events)), Ticks(folder), SteppingClock()
    return log, TickedLog(log, "I", ticks, ArrivalEstimate(idle_after_s), clock=clock), ticks, clock


def test_the_clock_of_an_idle_partition_goes_on_from_its_last_arrival() -> None:
    log, shown, _, clock = ticked([event(1), event(2)])
    log.clock = EPOCH + 10 * SECOND
    assert shown.ends()["0"].arrival_lower_bound is None
    clock.now += SECOND // 2
    assert shown.ends()["0"].arrival_lower_bound is None  # not idle for long enough
    clock.now += 4 * SECOND
    assert shown.ends()["0"].arrival_lower_bound == EPOCH + 2 * SECOND + 9 * SECOND // 2
    clock.now -= 3 * SECOND  # a calendar that is set back moves nothing back
    assert shown.ends()["0"].arrival_lower_bound == EPOCH + 2 * SECOND + 9 * SECOND // 2


def test_an_estimate_stays_behind_by_what_may_be_seen_late() -> None:
    log, _, ticks, clock = ticked([event(1)])
    shown = TickedLog(log, "i", ticks, ArrivalEstimate(1, 2), clock)
    log.clock = EPOCH + 2 * SECOND
    shown.ends()
    for idle, reached in ((1, 1), (2, 1), (5, 4)):
        clock.now = EPOCH + idle * SECOND
        assert shown.ends()["0"].arrival_lower_bound == EPOCH + reached * SECOND


def test_a_promise_of_the_log_is_better_than_any_estimate() -> None:
    revealed = RevealedLog(RecordedLog([event(1)]))
    clock = SteppingClock()
    shown = TickedLog(revealed, "i", Ticks(), ArrivalEstimate(0), clock=clock)
    revealed.clock = EPOCH + 3 * SECOND
    for _ in range(3):
        clock.now += 60 * SECOND
        assert shown.ends()["0"].arrival_lower_bound == EPOCH + 3 * SECOND


def test_an_event_that_falls_below_an_estimate_is_measured_by_it() -> None:
    log, shown, ticks, clock = ticked([event(1), event(4, 4), event(30)])
    program, policy = prepared(PASSING), Policy.seconds(late=1)
    stepper = Stepper(program, policy, {"i": shown}, TravellingTasks(program, policy))
    log.clock = EPOCH + 2 * SECOND
    stepper.step()
    stepper.step()
    clock.now += 20 * SECOND
    assert len(stepper.step().rows[0].timestamps) == 1  # estimated: 00:00:21
    log.clock = EPOCH + 5 * SECOND
    step = stepper.step()
    assert step.counters["Out-of-Order Events"] == 1
    assert stepper.looked_at == EPOCH + 21 * SECOND
    assert ticks.of("i", "0") == [(1, EPOCH + 21 * SECOND)]
    log.clock = EPOCH + 31 * SECOND
    rows = [row for _ in range(3) for rows in stepper.step().rows for row in rows.to_dicts()]
    assert [row["ts"] for row in rows] == ["2026-01-01T00:00:20.0000000Z"]
    # Where it starts reading, a tick counts as an arrival.
    assert shown.first_at("0", EPOCH + 10 * SECOND) == 1
    assert shown.first_at("0", EPOCH + 25 * SECOND) == 2


def test_after_an_event_far_below_an_estimate_the_clock_goes_on_from_the_estimate() -> None:
    log, shown, _, clock = ticked([event(1), event(4)])
    log.clock = EPOCH + 2 * SECOND
    shown.ends()
    clock.now += 3600 * SECOND
    assert shown.ends()["0"].arrival_lower_bound == EPOCH + 3601 * SECOND
    log.clock = EPOCH + 5 * SECOND  # such as a file that was modified an hour before it came
    shown.ends()
    clock.now += 5 * SECOND
    assert shown.ends()["0"].arrival_lower_bound == EPOCH + 3606 * SECOND


def test_ticks_without_effect_are_thrown_away() -> None:
    log, shown, ticks, clock = ticked([event(second) for second in range(0, 400, 4)])
    for second in range(0, 400):
        log.clock = EPOCH + second * SECOND
        clock.now = log.clock
        shown.ends()
        assert len(ticks.of("i", "0")) <= 2
    log, shown, ticks, clock = ticked([event(second) for second in range(0, 400, 4)])
    for second in range(0, 1000):
        log.clock = EPOCH + second * SECOND
        clock.now += 3 * SECOND // 2  # runs ahead: every estimate overshoots
        shown.ends()
    assert len(ticks.of("i", "0")) > 90
    ticks.forget_before(EPOCH + 2000 * SECOND)
    assert not ticks.of("i", "0")


def test_ticks_are_read_back_and_go_on(tmp_path: Path) -> None:
    log, shown, ticks, clock = ticked([event(1)], tmp_path)
    log.clock = EPOCH + 2 * SECOND
    shown.ends()
    clock.now += 5 * SECOND
    assert shown.ends()["0"].arrival_lower_bound == EPOCH + 6 * SECOND
    ticks.write()
    again = TickedLog(log, "i", Ticks(tmp_path), None)
    assert again.ends()["0"].arrival_lower_bound == EPOCH + 6 * SECOND
    # A job that was stopped for ten seconds without events continues as if it had been running.
    clock.now += 10 * SECOND
    later = TickedLog(log, "i", Ticks(tmp_path), ArrivalEstimate(1), clock=clock)
    later.ends()
    assert later.ends()["0"].arrival_lower_bound == EPOCH + 16 * SECOND


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    for content in ("{", "[]", '{"version":9}', '{"version":1,"ticks":{"i":{"0":[1]}}}', '{"version":1,"ticks":[]}'):
        (tmp_path / "ticks.json").write_text(content)
        with pytest.raises(JobError, match=r"ticks\.json"):
            Ticks(tmp_path)


def test_a_changed_digit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "ticks.json"
    ticks = Ticks(tmp_path)
    ticks.tick("i", "0", 4, 180)
    ticks.write()
    assert Ticks(tmp_path).of("i", "0") == [(4, 180)]
    text = path.read_text()
    path.write_text(text.replace("180", "181"))
    with pytest.raises(JobError, match=r"ticks\.json is damaged: its checksum differs from its content; restore"):
        Ticks(tmp_path)


@given(
    log=logs(),
    policy=policies,
    sql=st.sampled_from([COUNTING, PASSING, ARRIVING, OVER]),
    steps=st.lists(
        st.tuples(
            st.integers(0, 6).map(lambda halves: halves * SECOND // 2),  # how far the hub's clock goes
            st.integers(-3, 6).map(lambda halves: halves * SECOND // 2),  # and how much further that of this machine
            st.sampled_from(["go on", "go on", "go on", "die before", "die between", "die after"]),
        ),
        max_size=25,
    ),
    max_events=st.integers(1, 9),
    prune=st.booleans(),
)
def test_results_are_those_of_the_log_with_its_ticks(
    tmp_path_factory: pytest.TempPathFactory,
    log: RecordedLog,
    policy: Policy,
    sql: str,
    steps: list[tuple[int, int, str]],
    max_events: int,
    prune: bool,
) -> None:
    """Whatever is killed when: what left is what one look at the log and the ticks gives."""
    folder = tmp_path_factory.mktemp("state")
    program = prepared(sql)
    silent, clock = SilentLog(log), SteppingClock()
    silent.clock = EPOCH
    out: list[tuple[int, bytes]] = []
    progress = Progress()
    every = Ticks()

    def begin() -> tuple[Ticks, Stepper]:
        ticks = Ticks(folder)
        shown = TickedLog(silent, "i", ticks, ArrivalEstimate(0.25), clock=clock)
        placement = TravellingTasks(program, policy)
        return ticks, Stepper(program, policy, {"i": shown}, placement, progress, StepSettings(max_events))

    ticks, stepper = begin()
    for hub, more, fate in [*steps, (END_OF_TIME // 4, 0, "go on"), (0, 0, "go on")]:
        silent.clock += hub
        clock.now += max(0, min(hub, 100 * SECOND) + more)
        for _ in range(1000 if hub > 100 * SECOND else 2):
            step = stepper.step()
            rows = [
                pair
                for rows in step.rows
                for pair in zip(rows.timestamps.tolist(), rows.to_json_lines().splitlines(), strict=True)
            ]
            # Before rows leave, and before the journal says how far results have left.
            if fate != "die before":
                if prune and progress.released != NO_TIME:
                    ticks.forget_before(read_from(progress.released, program.lookback_ticks, policy))
                ticks.write()
                remember(every, "i", log, ticks)
            if fate in ("go on", "die after"):
                out += rows
                progress = stepper.progress
            if fate != "go on":
                ticks, stepper = begin()
                break
            if step.caught_up and hub > 100 * SECOND:
                break
    ticks.write()
    remember(every, "i", log, ticks)
    # One look at everything, with the ticks that were ever written down, and with those that the state folder keeps.
    kept = Ticks(folder, with_past=True)
    for ticks_of_all in (every, kept):
        _check(out, progress, program, policy, TickedLog(silent, "i", ticks_of_all, None))


def _check(out: list[tuple[int, bytes]], progress: Progress, program: Program, policy: Policy, last: TickedLog) -> None:
    """Check what left against one look at a log with its ticks."""
    whole = Stepper(program, policy, {"i": last}, TravellingTasks(program, policy))
    expected = [
        pair
        for rows in whole.step().rows
        for pair in zip(rows.timestamps.tolist(), rows.to_json_lines().splitlines(), strict=True)
    ]
    assert out == expected[: len(out)]
    assert all(time >= progress.released for time, _ in expected[len(out) :])


def test_ticks_that_no_restart_reads_are_kept_for_replays(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path)
    for place in range(5):
        ticks.tick("i", "0", place, EPOCH + place)
    ticks.forget_before(EPOCH + 3)
    ticks.write()
    assert Ticks(tmp_path).of("i", "0") == [(3, EPOCH + 3), (4, EPOCH + 4)]
    assert Ticks(tmp_path, with_past=True).of("i", "0") == [(place, EPOCH + place) for place in range(5)]
    assert Ticks(tmp_path, with_past=True).between("i", "0", 1, 3) == [(1, EPOCH + 1), (2, EPOCH + 2)]


def test_a_replay_long_after_an_estimate_finds_the_rows_that_left(tmp_path: Path) -> None:
    log, shown, ticks, clock = ticked([event(1), event(4, 4), event(50)], tmp_path)
    program, policy = prepared(PASSING), Policy.seconds(early=2, late=1)
    stepper = Stepper(program, policy, {"i": shown}, TravellingTasks(program, policy))
    left = []
    for arrived, idle_s in ((2, 0), (2, 20), (5, 0), (51, 0), (51, 0), (59, 5)):
        log.clock = EPOCH + arrived * SECOND
        clock.now += idle_s * SECOND
        for _ in range(2):
            left += [row["ts"] for rows in stepper.step().rows for row in rows.to_dicts()]
        ticks.forget_before(read_from(stepper.progress.released, program.lookback_ticks, policy))
        ticks.write()
    assert [text[17:19] for text in left] == ["01", "20", "50"]  # the second fell below an estimate of 00:00:21
    assert (1, EPOCH + 21 * SECOND) not in Ticks(tmp_path).of("i", "0")
    whole = TickedLog(log, "i", Ticks(tmp_path, with_past=True))
    again = Stepper(program, policy, {"i": whole}, TravellingTasks(program, policy))
    rows = [row["ts"] for _ in range(3) for rows in again.step().rows for row in rows.to_dicts()]
    assert rows == left
