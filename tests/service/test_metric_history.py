"""The history of a job's metrics: bounded in memory and on disk, and there again after a restart."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tidegate.service.metric_history import OF_PARTITIONS, MetricHistory, Resolution, Thinning

NOW_S = 1_700_000_000.0
SECOND, MINUTE = Resolution.SECOND, Resolution.MINUTE


def test_an_hour_by_the_second_and_a_day_by_the_minute_are_kept(tmp_path: Path) -> None:
    history = MetricHistory(tmp_path)
    for at in range(9000):
        history.add(NOW_S + at, {"Input Events": at, "Watermark Delay": None})
    seconds = history.since(SECOND, 0)
    assert (len(seconds), seconds[-1]) == (3600, (NOW_S + 8999, {"Input Events": 8999.0, "Watermark Delay": None}))
    assert [at - NOW_S for at, _ in history.since(MINUTE, NOW_S + 8800)] == [8820, 8880, 8940]
    assert len(history.since(SECOND, NOW_S + 8989)) == 10


def test_a_chart_of_an_hour_gets_the_last_of_each_five_seconds_with_the_largest_delay(tmp_path: Path) -> None:
    history = MetricHistory(tmp_path)
    for at in range(3600):
        history.add(
            NOW_S + at, {"Input Events": at, "Watermark Delay": 90.0 if at == 1002 else None if at < 10 else 1.0}
        )
    thinned = history.since(SECOND, 0, thinning=Thinning(5, {"Watermark Delay"}))
    assert len(thinned) == 720
    assert [at - NOW_S for at, _ in thinned[:3]] == [4, 9, 14]
    assert thinned[0][1] == {"Input Events": 4.0, "Watermark Delay": None}
    assert [(at - NOW_S, one["Watermark Delay"]) for at, one in thinned if one["Watermark Delay"] == 90] == [(1004, 90)]
    # Samples that are further apart than that are all there.
    assert len(history.since(MINUTE, 0, thinning=Thinning(5, ()))) == 60


def test_reports_that_are_a_little_early_are_kept_and_others_are_not(tmp_path: Path) -> None:
    history = MetricHistory(tmp_path)
    for at in (0.0, 0.9, 1.0, 1.95):
        history.add(NOW_S + at, {"n": at})
    assert [at - NOW_S for at, _ in history.since(SECOND, 0)] == pytest.approx([0.0, 0.9, 1.9], abs=0.11)


def test_it_survives_a_restart(tmp_path: Path) -> None:
    history = MetricHistory(tmp_path)
    for at in range(100):
        history.add(NOW_S + at, {"a": at / 3} if at < 50 else {"a": at, "b": None})
    history.flush()
    again = MetricHistory(tmp_path)
    assert [at for at, _ in again.since(SECOND, 0)] == [NOW_S + at for at in range(100)]
    assert again.since(SECOND, NOW_S + 98) == [(NOW_S + 99, {"a": 99.0, "b": None})]
    assert again.since(SECOND, 0)[1][1]["a"] == pytest.approx(1 / 3, abs=0.001)
    again.add(NOW_S + 200, {"a": 1})
    assert len(MetricHistory(tmp_path).since(SECOND, 0)) == 100
    assert len(again.since(SECOND, 0)) == 101


def test_after_a_crash_all_but_the_last_seconds_are_there(tmp_path: Path) -> None:
    history = MetricHistory(tmp_path)
    for at in range(95):
        history.add(NOW_S + at, {"a": at})
    with (tmp_path / "metrics-second.jsonl").open("a") as file:
        file.write("[17000")
    assert len(MetricHistory(tmp_path).since(SECOND, 0)) == 90


@pytest.mark.slow
def test_its_file_stays_small(tmp_path: Path) -> None:
    history = MetricHistory(tmp_path)
    names = [f"Metric {number}" for number in range(12)]
    for at in range(12_000):
        history.add(NOW_S + at, dict.fromkeys(names, 123_456 + at))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1_000_000
    assert len(MetricHistory(tmp_path).since(SECOND, 0)) == 3600


def test_a_disk_that_refuses_is_said_once_and_a_deleted_job_not_at_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = MetricHistory(tmp_path / "deleted")
    gone.add(NOW_S, {"a": 1})
    gone.flush()
    assert not (tmp_path / "deleted").exists()
    (tmp_path / "metrics-second.jsonl").mkdir()
    history = MetricHistory(tmp_path)
    with caplog.at_level(logging.WARNING):
        for at in range(25):
            history.add(NOW_S + at, {"a": at})
    assert [record.message.count("metrics-second.jsonl") for record in caplog.records] == [1]
    assert len(history.since(SECOND, 0)) == 25


def test_some_metrics_can_be_asked_for_alone(tmp_path: Path) -> None:
    history = MetricHistory(tmp_path)
    history.add(NOW_S, {"a": 1, "b": 2})
    history.add(NOW_S + 1, {"b": None})
    assert history.since(SECOND, 0, ("a", "c")) == [(NOW_S, {"a": 1.0}), (NOW_S + 1, {})]


def test_of_partitions_every_tenth_second_is_kept_in_files_of_their_own(tmp_path: Path) -> None:
    history = MetricHistory(tmp_path, "partitions", OF_PARTITIONS)
    for at in range(4000):
        history.add(NOW_S + at, {"Events Read i/0": at})
    history.flush()
    again = MetricHistory(tmp_path, "partitions", OF_PARTITIONS)
    found = again.since(Resolution.TEN_SECONDS, 0)
    assert (len(found), found[-1]) == (360, (NOW_S + 3990, {"Events Read i/0": 3990.0}))
    assert again.since(Resolution.MINUTE, NOW_S + 3900)[0][0] == NOW_S + 3960
    assert MetricHistory(tmp_path).since(Resolution.MINUTE, 0) == []
