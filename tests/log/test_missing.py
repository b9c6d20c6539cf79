"""Files that somebody deleted or cut: what was acknowledged and is missing is reported, and its numbers stay taken."""

import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from google_crc32c import value as crc32c

from tests.log.support import SetClock, append, open_log, stored
from tidegate.log import EntryView, LogDamaged, LogError, PartitionLog, SegmentReader

APPENDS = 30


def write(directory: Path) -> list[Path]:
    """Write APPENDS events of one append each in several segments, and return the segments' files."""
    log = open_log(directory, segment_bytes=400)
    for number in range(APPENDS):
        append(log, [b"event %d" % number])
    log.close()
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 4
    return segments


def first_event(segment: Path) -> int:
    return int(segment.stem.partition("-")[2])


def numbers(read: Callable[[int], Iterable[EntryView]]) -> tuple[list[int], list[range]]:
    """Return the sequence numbers of what a reader gets that continues after damage, and what it could not read."""
    found: list[int] = []
    missing: list[range] = []
    sequence = 0
    while True:
        try:
            for entry in read(sequence):
                sequence = entry.next_sequence_number
                found += range(entry.base_sequence_number, sequence)
        except LogDamaged as damage:
            missing.append(damage.sequence_numbers)
            sequence = damage.resume_sequence_number
        else:
            return found, missing


def check_missing(directory: Path, lost: range, caplog: pytest.LogCaptureFixture) -> None:
    """Check that opening, every reader and every later opening report exactly the events `lost`."""
    for _ in range(2):
        caplog.clear()
        log = open_log(directory, segment_bytes=400)
        assert [damage.sequence_numbers for damage in log.recovery.damages] == [lost]
        (report,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert f"events {lost.start} to {lost.stop - 1} cannot be read" in report.getMessage()
        there = [number for number in range(APPENDS) if number not in lost]
        assert (log.begin_sequence_number, log.next_sequence_number) == (0, APPENDS)
        assert numbers(log.entries) == (there, [lost])
        reader = SegmentReader(directory)
        assert reader.begin_sequence_number() == 0
        assert numbers(partial(reader.read_entries, to_sequence=APPENDS)) == (there, [lost])
        with pytest.raises(LogDamaged):
            log.read_batches(lost.start)
        log.close()
    log = open_log(directory)
    assert append(log, [b"later"]).first_sequence_number == APPENDS
    log.close()


def test_all_segments(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The hub started without a word after the only segment of a partition had been deleted."""
    for segment in write(tmp_path):
        segment.unlink()
    check_missing(tmp_path, range(APPENDS), caplog)


@pytest.mark.parametrize("at", [0, 1, -2, -1], ids=["the first", "the second", "the last but one", "the last"])
@pytest.mark.parametrize("indexes", [True, False], ids=["with indexes", "without indexes"])
def test_one_segment(tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int, indexes: bool) -> None:
    segments = write(tmp_path)
    stop = first_event(segments[at + 1]) if at != -1 else APPENDS
    segments[at].unlink()
    for index in [] if indexes else tmp_path.glob("*.index"):
        index.unlink()
    check_missing(tmp_path, range(first_event(segments[at]), stop), caplog)


@pytest.mark.parametrize("at", [0, 2, -1], ids=["the first", "the third", "the last"])
@pytest.mark.parametrize("left", ["nothing", "the header", "one event and a part"])
def test_the_end_of_a_segment(tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int, left: str) -> None:
    segments = write(tmp_path)
    stop = first_event(segments[at + 1]) if at != -1 else APPENDS
    content = segments[at].read_bytes()
    second = content.index(b"TGE1", content.index(b"TGE1") + 1)
    size = {"nothing": 0, "the header": 48, "one event and a part": second + 20}[left]
    segments[at].write_bytes(content[:size])
    start = first_event(segments[at]) + (left == "one event and a part")
    check_missing(tmp_path, range(start, stop), caplog)


def test_indexes_alone_are_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path)
    for index in tmp_path.glob("*.index"):
        index.unlink()
    log = open_log(tmp_path)
    assert numbers(log.entries) == (list(range(APPENDS)), [])
    assert log.recovery.damages == ()
    assert not caplog.records
    log.close()


def test_the_record_of_what_was_acknowledged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path)
    (tmp_path / "acknowledged").unlink()
    log = open_log(tmp_path)
    assert "does not say what was acknowledged" in caplog.text
    assert numbers(log.entries) == (list(range(APPENDS)), [])
    log.close()
    caplog.clear()
    open_log(tmp_path).close()
    assert not caplog.records


def with_retention(directory: Path) -> tuple[PartitionLog, SetClock, list[Path]]:
    """Return a log whose first segments retention has deleted."""
    clock = SetClock(1000)
    log = open_log(directory, segment_bytes=400, clock=clock)
    for number in range(APPENDS):
        clock.time_ms += 10
        append(log, [b"event %d" % number])
    assert log.apply_retention(before_ms=1100) > 0
    return log, clock, sorted(directory.glob("*.log"))


def test_what_retention_deleted_is_not_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, _, _ = with_retention(tmp_path)
    begin = log.begin_sequence_number
    assert begin > 0
    log.close()
    log = open_log(tmp_path)
    assert (log.begin_sequence_number, log.recovery.damages) == (begin, ())
    assert not caplog.records
    log.close()


def test_a_segment_that_a_killed_process_had_not_deleted_yet_goes(tmp_path: Path) -> None:
    segments = write(tmp_path)
    first = segments[0].read_bytes()
    log = open_log(tmp_path, segment_bytes=400)
    log.apply_retention(max_bytes=1000)
    begin = log.begin_sequence_number
    log.close()
    segments[0].write_bytes(first)
    log = open_log(tmp_path)
    assert (log.begin_sequence_number, log.recovery.damages) == (begin, ())
    assert not segments[0].exists()
    log.close()


def test_missing_events_are_forgotten_once_retention_would_have_deleted_them(tmp_path: Path) -> None:
    log, clock, segments = with_retention(tmp_path)
    log.close()
    segments[0].unlink()
    log = open_log(tmp_path, clock=clock)
    (damage,) = log.recovery.damages
    assert log.begin_sequence_number == damage.sequence_number == first_event(segments[0])
    log.apply_retention(before_ms=1100)
    assert log.begin_sequence_number == damage.sequence_number
    log.apply_retention(before_ms=1000 + 10 * (damage.resume_sequence_number + 2))
    assert log.begin_sequence_number >= damage.resume_sequence_number
    log.close()
    log = open_log(tmp_path)
    assert log.recovery.damages == ()
    log.close()


def test_a_record_of_another_version_is_refused_with_its_version(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    record = bytearray((tmp_path / "acknowledged").read_bytes()[:-4])
    record[7] = 9
    (tmp_path / "acknowledged").write_bytes(bytes(record) + crc32c(bytes(record)).to_bytes(4, "little"))
    with pytest.raises(LogError, match=r"another version of Tidegate \(its format is 9, this one reads \d\)"):
        open_log(tmp_path)


def test_a_segment_of_another_version_is_refused_with_its_version(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    (segment,) = tmp_path.glob("*.log")
    with segment.open("r+b") as file:
        file.seek(7)
        file.write(b"\1")
    with pytest.raises(LogError, match=r"another version of Tidegate \(its format is 1, this one reads \d\)"):
        open_log(tmp_path)


def two_logs(tmp_path: Path) -> tuple[Path, Path]:
    """Return two partitions of three segments each, of the same lengths."""
    for name in ("0", "1"):
        log = open_log(tmp_path / name, segment_bytes=100)
        for number in range(3):
            append(log, [f"{name}: {number}".encode().ljust(100)])
        log.close()
    return tmp_path / "0", tmp_path / "1"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_segments_swapped_between_partitions_are_noticed_and_named(tmp_path: Path, place: int) -> None:
    folders = two_logs(tmp_path)
    one, other = (sorted(folder.glob("*.log"))[place] for folder in folders)
    assert (one.name, one.stat().st_size) == (other.name, other.stat().st_size)
    content = one.read_bytes(), other.read_bytes()
    one.write_bytes(content[1])
    other.write_bytes(content[0])
    for number, folder in enumerate(folders):
        log = open_log(folder, segment_bytes=100)
        (damage,) = log.recovery.damages
        assert (damage.path.name, damage.sequence_numbers) == (one.name, range(place, place + 1))
        assert "belongs to another partition" in damage.reason
        assert append(log, [b"next"]).first_sequence_number == 3, "numbers of lost events stay taken"
        with pytest.raises(LogDamaged, match="belongs to another partition"):
            log.read_batches(place)
        with pytest.raises(LogDamaged, match="belongs to another partition"):
            list(SegmentReader(folder).read_entries(place))
        kept = [log.read_batches(at, max_events=1)[0].events[0].strip() for at in range(4) if at != place]
        assert kept == [*(f"{number}: {at}".encode() for at in range(3) if at != place), b"next"]
        log.close()
    assert (one.read_bytes(), other.read_bytes()) == (content[1], content[0]), "they can be moved back"


def test_a_segment_exchanged_while_the_log_is_open_is_not_served(tmp_path: Path) -> None:
    folders = two_logs(tmp_path)
    log = open_log(folders[0], segment_bytes=100)
    assert [row[0] for row in stored(log)] == [0, 1, 2]
    one, other = (sorted(folder.glob("*.log"))[1] for folder in folders)
    shutil.copy(other, one)
    with pytest.raises(LogDamaged, match="belongs to another partition"):
        log.read_batches(1)
    log.close()


def test_a_segment_under_another_segment_s_name_is_not_served(tmp_path: Path) -> None:
    folder, _ = two_logs(tmp_path)
    first, second, _ = sorted(folder.glob("*.log"))
    shutil.copy(second, first)
    log = open_log(folder, segment_bytes=100)
    (damage,) = log.recovery.damages
    assert damage.sequence_numbers == range(0, 1)
    assert damage.reason == "the file is another segment: give it back its name"
    log.close()


def test_a_foreign_segment_that_holds_nothing_of_this_log_is_set_aside(tmp_path: Path) -> None:
    folders = two_logs(tmp_path)
    log = open_log(folders[0], segment_bytes=100)
    log.roll(max_bytes=0)
    log.close()
    last = max(folders[0].glob("*.log"))
    foreign = max(folders[1].glob("*.log")).read_bytes()
    last.write_bytes(foreign)
    log = open_log(folders[0], segment_bytes=100)
    assert log.recovery.damages == ()
    assert append(log, [b"next"]).first_sequence_number == 3
    assert [row[0] for row in stored(log)] == [0, 1, 2, 3]
    assert last.with_suffix(".foreign").read_bytes() == foreign
    log.close()


def test_a_log_keeps_its_identity_and_a_new_one_has_another(tmp_path: Path) -> None:
    log = open_log(tmp_path / "0")
    identity = log.log_id
    log.close()
    (tmp_path / "0" / "acknowledged").unlink()
    log = open_log(tmp_path / "0")
    assert log.log_id == identity
    log.close()
    shutil.rmtree(tmp_path / "0")
    log = open_log(tmp_path / "0")
    assert log.log_id != identity
    log.close()
