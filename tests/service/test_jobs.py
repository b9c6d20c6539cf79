"""The API of the service within a process: what each operation does, keeps and refuses."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.patience import eventually
from tests.service.launchers import FakeLauncher
from tidegate.durable_files import Files
from tidegate.service import (
    Changed,
    InvalidJob,
    JobDocument,
    JobExists,
    JobNotFound,
    Jobs,
    JobState,
    Scale,
    ServiceError,
    StartMode,
    WrongState,
)
from tidegate.service.supervision import Exit, ExitKind

SECRET = "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=abc=;EntityPath=e"
DOCUMENT = JobDocument(
    {"query": "SELECT * INTO o FROM i", "inputs": {"i": {"type": "eventhub", "connection_string": SECRET}}},
    {"location": "westeurope"},
)


@pytest.fixture
def launcher() -> FakeLauncher:
    return FakeLauncher()


@pytest.fixture
def jobs(tmp_path: Path, launcher: FakeLauncher) -> Iterator[Jobs]:
    with Jobs(tmp_path, launcher=lambda: launcher) as opened:
        yield opened


def test_a_created_job_is_shown_and_listed_without_its_secrets(jobs: Jobs) -> None:
    created = jobs.create("Tolls", DOCUMENT)
    assert created.state is JobState.CREATED
    assert created.inputs["i"]["connection_string"] is None
    assert jobs.show("tOLLS").name == "Tolls"
    assert [job.name for job in jobs.list()] == ["Tolls"]
    assert jobs.document("tolls").definition["inputs"]["i"]["connection_string"] == SECRET


def test_no_file_of_the_service_holds_a_secret(tmp_path: Path, jobs: Jobs) -> None:
    jobs.create("tolls", DOCUMENT)
    jobs.start("tolls")
    content = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"SharedAccessKey=abc" not in content


@pytest.mark.slow
def test_a_job_gets_what_has_changed_beside_it_whenever_it_starts(jobs: Jobs, launcher: FakeLauncher) -> None:
    key = "first"

    def refresh(document: JobDocument) -> JobDocument:
        return replace(document, definition={**document.definition, "inputs": {"i": {"key": key}}})

    jobs.refresh = refresh
    created = jobs.create("tolls", DOCUMENT)
    jobs.start("tolls")
    first = launcher.last
    assert first.order.content["inputs"] == {"i": {"key": "first"}}
    first.run()
    key = "second"
    first.events.ended(Exit(ExitKind.FATAL, "401"))  # the former key is no longer taken
    assert jobs.show("tolls").state is JobState.DEGRADED
    eventually(lambda: launcher.last is not first)
    assert launcher.last.order.content["inputs"] == {"i": {"key": "second"}}
    assert jobs.show("tolls").etag == created.etag
    launcher.last.run()
    launcher.last.events.ended(Exit(ExitKind.FATAL, "401"))
    assert jobs.show("tolls").state is JobState.FAILED


def test_names_are_the_same_whatever_their_case(jobs: Jobs) -> None:
    jobs.create("tolls", DOCUMENT)
    with pytest.raises(JobExists, match="a job 'TOLLS' exists already"):
        jobs.create("TOLLS", DOCUMENT)


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "x" * 129])
def test_a_name_that_cannot_be_used_is_refused(jobs: Jobs, name: str) -> None:
    with pytest.raises(InvalidJob, match="a job's name has letters"):
        jobs.create(name, DOCUMENT)


def test_a_job_that_is_not_there_is_named(jobs: Jobs) -> None:
    for operation in (jobs.show, jobs.start, jobs.stop, jobs.delete, jobs.logs, jobs.metrics, jobs.status):
        with pytest.raises(JobNotFound, match="there is no job 'nothing'"):
            operation("nothing")


def test_a_started_job_is_running_when_its_process_takes_steps(jobs: Jobs, launcher: FakeLauncher) -> None:
    jobs.create("tolls", DOCUMENT)
    assert jobs.start("tolls").state is JobState.STARTING
    launcher.last.run(pid=99)
    shown = jobs.wait("tolls", {JobState.RUNNING}, 5)
    assert (shown.state, shown.process, shown.start_mode) == (JobState.RUNNING, 99, StartMode.LAST)
    assert launcher.last.order.content["name"] == "tolls"
    with pytest.raises(WrongState, match="job 'tolls' is Running: stop it before"):
        jobs.start("tolls")


def test_jobs_that_write_to_a_disk_that_takes_no_writes_are_degraded_until_it_does(
    jobs: Jobs, launcher: FakeLauncher
) -> None:
    """A job without results writes little, and would be Running on a full disk."""
    jobs.create("tolls", DOCUMENT)
    jobs.start("tolls")
    launcher.last.run()
    jobs.note_storage("[Errno 28] No space left on device")
    shown = jobs.show("tolls")
    assert shown.state is JobState.DEGRADED
    assert shown.reason == "the data disk cannot be written: [Errno 28] No space left on device"
    jobs.note_storage(None)
    assert (jobs.show("tolls").state, jobs.show("tolls").reason) == (JobState.RUNNING, None)
    jobs.note_storage(None)
    assert jobs.show("tolls").state is JobState.RUNNING


@pytest.mark.slow
def test_a_job_whose_end_cannot_be_written_has_ended_and_is_written_later(
    tmp_path: Path, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Jobs(tmp_path / "service", launcher=lambda: launcher) as jobs:
        jobs.create("tolls", DOCUMENT)
        jobs.start("tolls")
        launcher.last.run()
        with monkeypatch.context() as patch:
            patch.setattr(Files, "write_at", _refused)
            launcher.last.events.ended(Exit(ExitKind.FATAL, "its input is gone"))
            assert jobs.show("tolls").state is JobState.FAILED
        (record,) = (tmp_path / "service").rglob("job.json")
        eventually(lambda: '"state": "Failed"' in record.read_text(encoding="utf-8"))


def _refused(files: Files, fd: int, position: int, buffers: Sequence[bytes]) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_start_time_is_used_once(jobs: Jobs, launcher: FakeLauncher) -> None:
    """Its process may die before it has begun there, and after; only in the second case it resumes instead."""
    jobs.create("tolls", DOCUMENT)
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    jobs.start("tolls", StartMode.CUSTOM, noon)
    assert launcher.last.order.start == noon.isoformat()
    jobs.stop("tolls")
    jobs.start("tolls", StartMode.CUSTOM, noon)
    launcher.last.events.begun()
    launcher.last.events.ended(Exit(ExitKind.CRASHED, "it died"))
    assert jobs.wait("tolls", {JobState.DEGRADED}, 5).state is JobState.DEGRADED
    jobs.edit("tolls", lambda document: replace(document, definition={**document.definition, "query": "SELECT 1"}))
    assert launcher.last.order.start is None


@pytest.mark.parametrize(
    ("mode", "time"),
    [(StartMode.CUSTOM, None), (StartMode.NOW, datetime.now(UTC)), (StartMode.CUSTOM, datetime(2026, 1, 1))],
)
def test_a_start_mode_and_a_time_that_do_not_fit_are_refused(
    jobs: Jobs, mode: StartMode, time: datetime | None
) -> None:
    jobs.create("tolls", DOCUMENT)
    with pytest.raises(InvalidJob, match="output start time"):
        jobs.start("tolls", mode, time)
    assert jobs.show("tolls").state is JobState.CREATED


def test_a_change_of_a_running_job_starts_it_again(jobs: Jobs, launcher: FakeLauncher) -> None:
    jobs.create("tolls", DOCUMENT)
    jobs.start("tolls")
    launcher.last.run()
    before = jobs.show("tolls").etag
    jobs.edit("tolls", lambda document: replace(document, definition={**document.definition, "query": "SELECT 2"}))
    assert [process.order.content["query"] for process in launcher.processes] == ["SELECT * INTO o FROM i", "SELECT 2"]
    assert launcher.processes[0].asked
    assert jobs.show("tolls").etag != before
    assert jobs.show("tolls").reason == "started again with the changed definition"


def test_a_change_that_only_readers_see_does_not_disturb_a_running_job(jobs: Jobs, launcher: FakeLauncher) -> None:
    jobs.create("tolls", DOCUMENT)
    jobs.start("tolls")
    jobs.edit("tolls", lambda document: replace(document, arm={"tags": {"a": "b"}}))
    assert len(launcher.processes) == 1
    assert jobs.show("tolls").arm == {"tags": {"a": "b"}}


def test_a_running_job_keeps_its_query_if_the_new_one_is_wrong(jobs: Jobs, launcher: FakeLauncher) -> None:
    jobs.create("tolls", DOCUMENT)
    jobs.start("tolls")
    with pytest.raises(InvalidJob, match="line 1: that is wrong"):
        jobs.edit("tolls", lambda document: replace(document, definition={**document.definition, "query": "wrong"}))
    assert jobs.show("tolls").query == DOCUMENT.definition["query"]
    assert len(launcher.processes) == 1


def test_a_change_for_another_etag_is_refused(jobs: Jobs) -> None:
    etag = jobs.create("tolls", DOCUMENT).etag
    jobs.scale("tolls", Scale(3))
    with pytest.raises(Changed, match="job 'tolls' was changed by another client"):
        jobs.edit("tolls", lambda document: document, etag=etag)
    jobs.edit("tolls", lambda document: document, etag="*")


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize(("is_created_again", "refusal"), [(False, JobNotFound), (True, Changed)])
def test_a_change_does_not_reach_a_job_that_was_deleted_meanwhile(
    jobs: Jobs, launcher: FakeLauncher, runs: bool, is_created_again: bool, refusal: type[ServiceError]
) -> None:
    """A running job that was deleted while its change was checked was answered as changed, and started again."""
    jobs.create("tolls", DOCUMENT)
    if runs:
        jobs.start("tolls")

    def change(document: JobDocument) -> JobDocument:
        jobs.delete("tolls")
        if is_created_again:
            jobs.create("tolls", DOCUMENT)
        return replace(document, definition={**document.definition, "query": "SELECT 2 AS a INTO o FROM i"})

    with pytest.raises(refusal):
        jobs.edit("tolls", change)
    assert [job.query for job in jobs.list()] == [DOCUMENT.definition["query"]] * is_created_again
    assert len(launcher.processes) == runs


def test_a_change_that_changes_nothing_keeps_the_etag_and_meets_no_other_change(jobs: Jobs) -> None:
    """A start makes the document anew, and was refused as a change where two clients started a job at once."""

    def unchanged(document: JobDocument) -> JobDocument:
        jobs.scale("tolls", Scale(3))
        return replace(document)

    etag = jobs.create("tolls", DOCUMENT).etag
    assert jobs.edit("tolls", replace).etag == etag
    assert jobs.edit("tolls", unchanged).scale == Scale(3)
    with pytest.raises(Changed):
        jobs.edit("tolls", replace, etag=etag)


def test_a_scaled_job_may_use_more(jobs: Jobs, launcher: FakeLauncher) -> None:
    jobs.create("tolls", DOCUMENT)
    jobs.start("tolls")
    jobs.scale("tolls", Scale(3))
    few, many = (process.order for process in launcher.processes)
    assert many.memory_bytes == 3 * few.memory_bytes
    with pytest.raises(InvalidJob, match="1 to 396 streaming units, got 0"):
        jobs.scale("tolls", Scale(0))


def test_a_deleted_job_is_gone_and_its_name_is_free(tmp_path: Path, jobs: Jobs, launcher: FakeLauncher) -> None:
    jobs.create("tolls", DOCUMENT)
    jobs.start("tolls")
    launcher.last.obedient = False
    jobs.delete("tolls")
    assert not jobs.list()
    again = jobs.create("tolls", DOCUMENT)
    launcher.last.events.ended(Exit(ExitKind.ASKED, ""))
    assert len(list((tmp_path / "jobs").iterdir())) == 1
    assert jobs.show("tolls").job_id == again.job_id


def test_a_job_whose_record_cannot_be_removed_is_still_there_and_runs(
    jobs: Jobs, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it in the list nobody could stop it, and it would run again after the service."""

    def refused(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    jobs.create("tolls", DOCUMENT)
    jobs.start("tolls")
    launcher.last.run()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        with pytest.raises(ServiceError, match=r"cannot remove .*job\.json: Read-only file system"):
            jobs.delete("tolls")
    assert (jobs.show("tolls").state, launcher.last.asked) == (JobState.RUNNING, False)
    jobs.delete("tolls")
    assert (list(jobs.list()), launcher.last.asked) == ([], True)


def test_a_deleted_job_stays_deleted_after_a_power_cut(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[Path, list[str]]] = []

    def note(files: Files, directory: Path) -> None:
        synced.append((directory, [one.name for one in directory.iterdir()]))

    jobs.create("tolls", DOCUMENT)
    monkeypatch.setattr(Files, "sync_directory", note)
    jobs.delete("tolls")
    assert ["tolls" in folder.name and "job.json" not in names for folder, names in synced] == [True]


def test_whatever_ran_runs_again_after_the_service(tmp_path: Path) -> None:
    first = FakeLauncher()
    with Jobs(tmp_path, launcher=lambda: first) as jobs:
        for name in ("runs", "stopped", "failed", "fresh"):
            jobs.create(name, DOCUMENT)
        for name in ("stopped", "failed", "runs"):
            jobs.start(name)
            first.last.run()
        jobs.stop("stopped")
        first.processes[1].events.ended(Exit(ExitKind.FATAL, "the journal is damaged"))
    second = FakeLauncher()
    with Jobs(tmp_path, launcher=lambda: second) as jobs:
        states = {job.name: job.state for job in jobs.list()}
        assert [process.order.name for process in second.processes] == ["runs"]
        assert jobs.show("failed").reason == "the journal is damaged"
    assert first.closed
    assert second.closed
    assert states == {
        "runs": JobState.STARTING,
        "stopped": JobState.STOPPED,
        "failed": JobState.FAILED,
        "fresh": JobState.CREATED,
    }


def test_a_job_whose_record_is_damaged_is_left_out_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Jobs(tmp_path, launcher=FakeLauncher) as jobs:
        jobs.create("whole", DOCUMENT)
        jobs.create("damaged", DOCUMENT)
    (record,) = (tmp_path / "jobs").glob("damaged-*/job.json")
    record.write_text(record.read_text().replace('"revision": 1', '"revision": 2'))
    with Jobs(tmp_path, launcher=FakeLauncher) as jobs:
        assert [job.name for job in jobs.list()] == ["whole"]
    assert "its checksum differs from its content; restore it from a backup" in caplog.text
    assert record.exists()


def test_a_second_service_does_not_run_the_same_jobs(tmp_path: Path, jobs: Jobs) -> None:
    with pytest.raises(ServiceError, match="another service runs these jobs"):
        Jobs(tmp_path).open()


def test_metrics_of_a_job_that_has_not_run_are_none(jobs: Jobs) -> None:
    jobs.create("tolls", DOCUMENT)
    assert jobs.metrics("tolls") == {}
    assert jobs.status("tolls") is None
    assert jobs.logs("tolls").lines == ()
    assert jobs.data_errors("tolls") == []


def test_a_service_opens_on_a_disk_that_has_become_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Jobs(tmp_path, launcher=FakeLauncher) as jobs:
        jobs.create("tolls", DOCUMENT)

    def refused(path: Path, _mode: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "chmod", refused)
    with Jobs(tmp_path, launcher=FakeLauncher) as jobs:
        assert [job.name for job in jobs.list()] == ["tolls"]
