"""What holds results back is the slowest timeline, and what is said to release it does so, to the tick."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job.logs import EPOCH, RevealedLog, TravellingTasks, logs, policies, prepared
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.model.errors import JobError
from tidegate.durable_files import encode_checked
from tidegate.job import Stepper
from tidegate.job.analysis.replay import fresh_look
from tidegate.job.analysis.replay_source import ReplaySource
from tidegate.job.run.status import StatusFile, read_status
from tidegate.job.runtime.placement import DriverPlacement
from tidegate.job.runtime.watermark_blockers import watermark_report
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND, Policy, format_time

PLAIN = "SELECT System.Timestamp() AS ts INTO out FROM i TIMESTAMP BY t"
OVER = "SELECT System.Timestamp() AS ts INTO out FROM i TIMESTAMP BY t OVER k"
ARRIVAL = "SELECT System.Timestamp() AS ts INTO out FROM i"


def event(partition: str, arrival: int, time: int, key: str = "a") -> RecordedEvent:
    return RecordedEvent(partition, arrival, json.dumps({"t": format_time(time), "k": key}).encode())


def seen(sql: str, policy: Policy, events: list[RecordedEvent], clock: int) -> ReplaySource:
    log = RevealedLog(RecordedLog(events))
    log.clock = clock
    return ReplaySource("here", prepared(sql), policy, {"i": log})


def at(seconds: float) -> int:
    return EPOCH + round(seconds * TICKS_PER_SECOND)


@given(
    log=logs(),
    policy=policies,
    sql=st.sampled_from([PLAIN, OVER, ARRIVAL]),
    clock=st.integers(0, 60).map(lambda seconds: at(seconds)),
)
def test_a_fresh_look_stands_where_a_job_that_has_read_everything_stands(
    log: RecordedLog, policy: Policy, sql: str, clock: int
) -> None:
    revealed = RevealedLog(log)
    revealed.clock = clock
    program = prepared(sql)
    step = Stepper(program, policy, {"i": revealed}, TravellingTasks(program, policy)).step()
    running = watermark_report(step.timelines, program, policy)
    fresh = fresh_look(ReplaySource("here", program, policy, {"i": revealed}))
    assert fresh.watermark == running.watermark
    assert [(one.partition, one.watermark, one.unblocked_by) for one in fresh.timelines] == [
        (one.partition, one.watermark, one.unblocked_by) for one in running.timelines
    ]


def test_the_idle_partition_holds_back_until_the_clock_is_past_the_late_tolerance() -> None:
    events = [event("0", at(100), at(99)), event("1", at(50), at(49))]
    policy = Policy.seconds(late=30, out_of_order=2)
    look = fresh_look(seen(PLAIN, policy, events, at(100.5)))
    (slowest,) = [one for one in look.timelines if one.partition == "1"]
    assert look.blockers == (slowest,)
    assert slowest.watermark == look.watermark == at(70.5)
    assert slowest.at_clock == at(100.5)
    assert slowest.after_event == at(72.5)

    later = fresh_look(seen(PLAIN, policy, events, at(100.5) + 1))
    assert later.watermark == look.watermark + 1
    same = fresh_look(seen(PLAIN, policy, [*events, event("1", at(100.4), at(72.5))], at(100.5)))
    assert same.watermark == look.watermark
    moved = fresh_look(seen(PLAIN, policy, [*events, event("1", at(100.4), at(72.5) + 1)], at(100.5)))
    assert moved.watermark == look.watermark + 1


def test_without_a_late_tolerance_nothing_but_an_event_releases() -> None:
    look = fresh_look(seen(PLAIN, Policy.seconds(late=-1), [event("0", at(1), at(0)), event("1", at(9), at(9))], at(5)))
    (idle,) = look.blockers
    assert (idle.partition, idle.at_clock, look.watermark) == ("1", None, NO_TIME)
    assert "nothing else" in idle.unblocked_by


def test_substreams_are_named_the_slowest_first() -> None:
    events = [event("0", at(10), at(10), "x"), event("0", at(11), at(8), "y"), event("0", at(12), at(12), "z")]
    (timeline,) = fresh_look(seen(OVER, Policy.seconds(late=60), events, at(20))).timelines
    assert [(one.key, one.watermark) for one in timeline.substreams] == [("y", at(8)), ("x", at(10)), ("z", at(12))]


def test_a_log_that_has_ended_holds_nothing_back() -> None:
    look = fresh_look(
        ReplaySource("here", prepared(PLAIN), Policy.seconds(), {"i": RecordedLog([event("0", at(1), at(1))])})
    )
    assert look.watermark == END_OF_TIME
    assert look.blockers == ()
    assert look.as_json()["watermark"] == "end"


def status_of(folder: Path, clock: int, now: list[int], file: StatusFile | None = None) -> StatusFile:
    source = seen(PLAIN, Policy.seconds(late=30), [event("0", at(1), at(1)), event("1", at(90), at(90))], clock)
    step = Stepper(source.program, source.policy, source.logs, DriverPlacement(source.program, source.policy)).step()
    file = file or StatusFile(folder, source.program, source.policy, lambda: now[0])
    file.update(step, {"Input Events": 1})
    return file


def test_a_status_says_since_when_a_watermark_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.job.run.status._WRITE_EVERY_S", 0)
    now = [at(5)]
    file = status_of(tmp_path, at(5), now)
    now[0] = at(6)
    status_of(tmp_path, at(5), now, file)
    status: dict[str, Any] | None = read_status(tmp_path)
    assert status is not None
    assert status["updated"] == format_time(at(6))
    assert {one["since"] for one in status["timelines"]} == {format_time(at(5))}
    now[0] = at(7)
    status_of(tmp_path, at(80), now, file)
    moved = read_status(tmp_path)
    assert moved is not None
    assert {one["since"] for one in moved["timelines"]} == {format_time(at(7))}
    # The slowest watermark is 30 s behind the hub's clock, which was at 80 when this machine's was at 7.
    assert moved["metrics"] == {"Input Events": 1, "Backlogged Input Events": 0, "Watermark Delay": 7 - (80 - 30)}


def test_a_status_says_of_the_slowest_substreams_since_when_and_what_moves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.job.run.status._WRITE_EVERY_S", 0)
    policy, now = Policy.seconds(late=30, out_of_order=2), [at(0)]
    events = [event("0", at(1), at(1), "x"), event("0", at(2), at(1), "y"), event("0", at(8), at(8), "x")]
    program = prepared(OVER)
    file = StatusFile(tmp_path, program, policy, lambda: now[0])
    for clock in (5, 6, 9):
        now[0] = at(clock)
        source = seen(OVER, policy, events, at(clock))
        file.update(Stepper(program, policy, source.logs, TravellingTasks(program, policy)).step(), {})
    status = read_status(tmp_path)
    assert status is not None
    assert status["bySubstream"]
    y, x = status["timelines"][0]["substreams"]
    assert y == {
        "key": "y",
        "watermark": format_time(at(-1)),
        "releasedByEventAfter": format_time(at(1)),
        "releasedByClockAfter": format_time(at(29)),
        "since": format_time(at(5)),
    }
    assert (x["key"], x["watermark"], x["since"]) == ("x", format_time(at(6)), format_time(at(9)))


def test_the_status_of_a_process_that_is_gone_is_none(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    status_of(tmp_path, at(5), [at(5)])
    assert read_status(tmp_path) is not None
    path = tmp_path / "status.json"
    gone = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(gone, 0)
    content = {**json.loads(path.read_text()), "process": gone}
    del content["checksum"]
    path.write_bytes(encode_checked(content))
    assert read_status(tmp_path) is None


def test_a_damaged_status_is_refused(tmp_path: Path) -> None:
    status_of(tmp_path, at(5), [at(5)])
    path = tmp_path / "status.json"
    whole = path.read_text()
    for damaged in (whole[:-7], whole.replace('"backlog": 0', '"backlog": 7'), "{"):
        assert damaged != whole
        path.write_text(damaged)
        with pytest.raises(JobError, match=r"status\.json is damaged: .*delete the file"):
            read_status(tmp_path)
