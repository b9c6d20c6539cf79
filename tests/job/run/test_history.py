"""What became of the log of a resumed job: replaced, or shortened by retention; an error or a warning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.job.logs import EPOCH, prepared
from tests.patience import eventually
from tidegate.amqp import Message, encode_message
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import PartitionEnd
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.job import load_job, run_job
from tidegate.job.run.history import check_history, replaced_logs, without_logs
from tidegate.job.run.journal import Commit
from tidegate.ordering import NO_TIME, TICKS_PER_SECOND, Policy
from tidegate.server import BackgroundServer

POLICY = Policy.seconds(early=300, late=5)
PROGRAM = prepared("SELECT COUNT(*) AS n INTO out FROM i TIMESTAMP BY t GROUP BY TumblingWindow(second, 60)")


class ShortenedLog(RecordedLog):
    """An event a minute, of which retention has taken the first."""

    def __init__(self, gone: int) -> None:
        super().__init__([RecordedEvent("0", EPOCH + n * 60 * TICKS_PER_SECOND, b"{}") for n in range(20)])
        self._gone = gone

    def ends(self) -> dict[str, PartitionEnd]:
        return {partition: replace(end, begin=self._gone) for partition, end in super().ends().items()}


def commit_at(minutes: float, read: int) -> Commit:
    return Commit("j", "q", EPOCH + round(minutes * 60 * TICKS_PER_SECOND), positions={"i": {"0": read}})


def warnings(gone: int, commit: Commit, *, accept_missing: bool = False) -> list[str]:
    return check_history({"i": ShortenedLog(gone)}, commit, PROGRAM, POLICY, accept_missing=accept_missing)


def test_a_whole_log_is_no_matter() -> None:
    assert warnings(0, commit_at(10, 12)) == []


def test_what_is_older_than_the_read_back_is_not_missed() -> None:
    # Results from minute 10 on look back one minute and the five of the early rule: to minute 4.
    assert warnings(3, commit_at(10, 12)) == []
    assert warnings(4, commit_at(10, 12)) != []


def test_what_may_be_missed_is_a_warning_with_its_place() -> None:
    (warning,) = warnings(8, commit_at(10, 12))
    assert "input i, partition 0: the log begins with event 8" in warning
    assert "from 2026-01-01T00:04:00" in warning


def test_what_was_never_read_ends_the_job_unless_that_is_accepted() -> None:
    with pytest.raises(InputError, match=r"events 12 to 14 were removed .* \(3 are lost\).*--accept-missing"):
        warnings(15, commit_at(10, 12))
    (warning,) = warnings(15, commit_at(10, 12), accept_missing=True)
    assert "events 12 to 14 were removed" in warning


def test_a_job_that_begins_takes_the_log_as_it_is() -> None:
    assert warnings(15, Commit("j", "q", NO_TIME)) == []


def test_a_partition_that_is_empty_by_now_is_no_matter() -> None:
    assert warnings(20, commit_at(30, 20)) == []


def test_a_partition_that_the_job_has_never_read_is_said() -> None:
    log = RecordedLog([RecordedEvent(partition, EPOCH, b"{}") for partition in "01"])
    (warning,) = check_history({"i": log}, commit_at(10, 1), PROGRAM, POLICY, accept_missing=False)
    assert warning.startswith("input i, partition 1 did not exist when the job last ran")
    assert "2026-01-01T00:10:00" in warning
    assert check_history({"i": log}, Commit("j", "q", EPOCH), PROGRAM, POLICY, accept_missing=False) == []


class NamedLog(RecordedLog):
    """Twenty events of a log with an identity."""

    def __init__(self, log_id: str | None, events: int = 20) -> None:
        super().__init__([RecordedEvent("0", EPOCH + n * 60 * TICKS_PER_SECOND, b"{}") for n in range(events)])
        self._log_id = log_id

    def ends(self) -> dict[str, PartitionEnd]:
        return {partition: replace(end, log_id=self._log_id) for partition, end in super().ends().items()}


def read_of(log_id: str | None, read: int = 12) -> Commit:
    return replace(commit_at(10, read), logs={} if log_id is None else {"i": {"0": log_id}})


def lost(log: RecordedLog, commit: Commit, *, accept: bool = False) -> dict[tuple[str, str], str]:
    return replaced_logs({"i": log}, commit, PROGRAM, POLICY, accept=accept)


@pytest.mark.parametrize("known", [None, "a"])
def test_the_same_log_and_one_that_never_had_an_identity_are_resumed(known: str | None) -> None:
    assert lost(NamedLog("a"), read_of(known)) == {}
    assert lost(NamedLog(None), read_of(known)) == {}


def test_another_log_ends_the_job_unless_that_is_accepted() -> None:
    with pytest.raises(InputError, match=r"input i, partition 0: the log was replaced.*--start.*--accept-missing"):
        lost(NamedLog("b"), read_of("a"))
    found = lost(NamedLog("b"), read_of("a"), accept=True)
    assert "lack events of the former log from 12 on" in found["i", "0"]
    assert "4 events of the present log arrived too early" in found["i", "0"]
    commit = without_logs(read_of("a"), found)
    assert (commit.positions, commit.logs) == ({"i": {}}, {"i": {}})


@pytest.mark.parametrize("known", [None, "a"])
def test_a_log_that_ends_before_what_was_read_was_replaced(known: str | None) -> None:
    with pytest.raises(InputError, match=r"the log ends with event 9, but this job has read up to event 11"):
        lost(NamedLog(known, events=10), read_of(known))


def test_a_partition_that_is_gone_ends_the_job() -> None:
    with pytest.raises(InputError, match=r"input i, partition 0 no longer exists"):
        lost(RecordedLog([RecordedEvent("1", EPOCH, b"{}")]), read_of(None))


@contextmanager
def hub_at(data: Path, events: int, *names: str) -> Iterator[str]:
    """Serve hubs, each with so many events."""
    hubs = tuple(EventHubConfig(name=name, partition_count=1) for name in names)
    with BackgroundServer(NamespaceConfig(name="n", event_hubs=hubs), data) as running:
        for name in names:
            log = running.server.namespace.event_hub(name).partition("0").log
            log.append([encode_message(Message(body_kind="data", body=[b"{}"]))] * events, lambda _: None)
            eventually(lambda log=log: log.next_sequence_number >= events)
        yield running.connection_string


def run_over(folder: Path, connection: str, hub: str = "h", **more: bool) -> tuple[dict[str, int], list[str]]:
    """Run a job over a hub until it has caught up, and return its counters and notices."""
    job = folder / "job.toml"
    job.write_text(
        f'name = "j"\nquery = "SELECT n INTO o FROM i"\n[event_ordering]\nlate_arrival_tolerance_s = 0\n'
        f'[inputs.i]\ntype = "eventhub"\nconnection_string = "{connection}"\nevent_hub = "{hub}"\n'
        '[outputs.o]\ntype = "file"\npath = "o.jsonl"\n',
        encoding="utf-8",
    )
    notices: list[str] = []
    summary = run_job(load_job(job), until_caught_up=True, notice=notices.append, **more)
    return summary.totals, notices


def test_a_hub_whose_data_were_moved_away_is_not_taken_for_the_same(tmp_path: Path) -> None:
    with hub_at(tmp_path / "data", 20, "h") as connection:
        assert run_over(tmp_path, connection)[0]["Input Events"] == 20
    (tmp_path / "data").rename(tmp_path / "before")
    with hub_at(tmp_path / "data", 30, "h") as connection:
        with pytest.raises(InputError, match="the log was replaced"):
            run_over(tmp_path, connection)
        totals, (notice, *_) = run_over(tmp_path, connection, accept_missing=True)
        assert totals["Input Events"] == 50, "events of the new log are counted from its beginning"
        assert "former log from 20 on" in notice
        assert run_over(tmp_path, connection)[1] == [], "it is said once"


def test_another_hub_under_the_same_state_folder_is_refused(tmp_path: Path) -> None:
    with hub_at(tmp_path / "data", 20, "h", "other") as connection:
        run_over(tmp_path, connection)
        with pytest.raises(InputError, match="the input names another source"):
            run_over(tmp_path, connection, "other")
        assert run_over(tmp_path, connection)[1] == []
