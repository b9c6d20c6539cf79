"""A disk that is full or fails: publishers get an error, nothing acknowledged is lost, service resumes when it can."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.support import FaultyFiles, append, last_segment, open_log, stored, use_files
from tests.profiles import example_count
from tidegate.log import Appended, LogError, SegmentReader


def test_a_full_disk_is_an_error_until_space_returns(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, [b"before"])
    files.write_limit = 30
    files.fail("write", errno.ENOSPC)
    for _ in range(3):
        with pytest.raises(LogError, match="could not be stored"):
            append(log, [b"refused" * 10])
    assert [row[3] for row in stored(log)] == [b"before"]
    files.heal()
    assert append(log, [b"after"]).first_sequence_number == 1
    log.close()
    assert [row[3] for row in stored(open_log(tmp_path))] == [b"before", b"after"]


def test_a_deletion_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files, segment_bytes=1)
    for number in range(4):
        append(log, [b"%d" % number])
    files.fail("create", errno.ENOSPC)
    files.fail("write", errno.ENOSPC)
    with pytest.raises(LogError, match="a new segment"):
        log.delete_before(4)
    assert [row[3] for row in stored(log)] == [b"3"]
    files.heal()
    log.delete_before(4)
    assert stored(log) == []
    log.close()


def test_after_a_failed_sync_the_log_trusts_nothing_that_was_written(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, [b"before"])
    size = last_segment(tmp_path).stat().st_size
    files.fail("sync", errno.EIO)
    with pytest.raises(LogError):
        append(log, [b"perhaps on the disk"])
    assert [row[3] for row in stored(log)] == [b"before"]
    # the next append must not begin before the file has been cut and that been synced
    with pytest.raises(LogError):
        append(log, [b"still failing"])
    assert last_segment(tmp_path).stat().st_size == size
    files.heal()
    assert append(log, [b"after"]).first_sequence_number == 1
    assert [row[3] for row in stored(log)] == [b"before", b"after"]
    log.close()
    assert [row[3] for row in stored(open_log(tmp_path))] == [b"before", b"after"]


def test_a_file_that_cannot_be_opened_anew_keeps_the_log_from_acknowledging(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, [b"before"])
    files.fail("sync", errno.EIO)
    with pytest.raises(LogError):
        append(log, [b"x"])
    files.heal()
    files.fail("open", errno.EMFILE)
    with pytest.raises(LogError):
        append(log, [b"y"])
    files.heal()
    append(log, [b"after"])
    assert [row[3] for row in stored(log)] == [b"before", b"after"]


def test_a_file_that_lost_acknowledged_bytes_is_not_written_on(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files)
    append(log, [b"before"])
    files.fail("sync", errno.EIO)
    with pytest.raises(LogError):
        append(log, [b"x"])
    files.heal()
    segment = last_segment(tmp_path)
    segment.write_bytes(segment.read_bytes()[:60])
    with pytest.raises(LogError, match="shorter than what was acknowledged"):
        append(log, [b"y"])


def test_what_waits_behind_a_write_that_fails_fails_with_it(tmp_path: Path) -> None:
    """Who appends one after the other must not find the later one stored without the earlier."""
    log, files = open_log(tmp_path), FaultyFiles()
    answers: list[Appended | LogError] = []

    def fail(*_: Any) -> None:
        use_files(log, files)
        log.append([b"small enough"], answers.append)
        raise OSError(errno.ENOSPC, "No space left on device")

    use_files(log, SimpleNamespace(write_at=fail))
    with pytest.raises(LogError):
        append(log, [b"too large"])
    (behind,) = answers
    assert isinstance(behind, LogError)
    append(log, [b"after"])
    assert [row[3] for row in stored(log)] == [b"after"]


def test_a_segment_that_cannot_be_begun_leaves_nothing_behind(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, files=files, segment_bytes=100)
    append(log, [bytes(200)])
    files.fail("write", errno.ENOSPC)
    with pytest.raises(LogError):
        append(log, [b"x"])
    assert len(list(tmp_path.glob("*.log"))) == 1
    files.heal()
    assert append(log, [b"y"]).first_sequence_number == 1
    assert len(list(tmp_path.glob("*.log"))) == 2
    log.close()
    assert [row[3] for row in stored(open_log(tmp_path))] == [bytes(200), b"y"]


def test_an_index_that_cannot_be_written_hinders_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path)
    log.close()
    index = next(tmp_path.glob("*.log")).with_suffix(".index")
    index.unlink(missing_ok=True)
    index.mkdir()
    log = open_log(tmp_path)
    append(log, [b"a"])
    assert [row[3] for row in stored(log)] == [b"a"]
    assert "cannot be written" in caplog.text


_faults = st.sampled_from(["write", "sync", "truncate", "open"])


@settings(max_examples=example_count(60), deadline=None)
@given(steps=st.lists(st.tuples(st.none() | _faults, st.integers(1, 4), st.integers(0, 90)), max_size=25))
def test_whatever_fails_and_when_the_acknowledged_is_there(
    steps: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("log")
    files = FaultyFiles()
    log = open_log(directory, files=files, segment_bytes=300)
    acknowledged = []
    for number, (fault, count, written) in enumerate(steps):
        files.heal()
        if fault is not None:
            files.fail(fault, errno.EIO)
            files.write_limit = written
        events = [b"%d-%d" % (number, i) for i in range(count)]
        try:
            answer = append(log, events)
        except LogError:
            assert fault is not None
            continue
        acknowledged += [(answer.first_sequence_number + i, event) for i, event in enumerate(events)]
        assert [(row[0], row[3]) for row in stored(log)] == acknowledged
    files.heal()
    # killed here, the file may end in what was refused last, but must begin with all that was acknowledged
    found = [
        (e.base_sequence_number + i, event)
        for e in SegmentReader(directory).read_entries(0)
        for i, event in enumerate(e.events())
    ]
    assert found[: len(acknowledged)] == acknowledged
    log.close()
    log = open_log(directory)
    rows = [(row[0], row[3]) for row in stored(log)]
    assert rows[: len(acknowledged)] == acknowledged
    log.close()
