"""What a crash or a bad disk leaves, and how opening recovers from it.

Every test writes a log, does something to its files, opens it again, and asks: is everything acknowledged still there
with its numbers, and was said what is not?
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.log.support import HeldCommitter, append, last_segment, open_log, stored
from tests.profiles import example_count
from tidegate.durable_files import FileDamaged
from tidegate.log import LogDamaged, LogError, SegmentReader
from tidegate.log.segment import SEGMENT_HEADER_BYTES


def write(directory: Path, groups: int, segment_bytes: int = 1 << 20) -> list[tuple[int, int, int, bytes]]:
    """A log of groups of two events each."""
    log = open_log(directory, segment_bytes=segment_bytes)
    for number in range(groups):
        append(log, [b"first of %d" % number, b"second of %d" % number])
    rows = stored(log)
    log.close()
    return rows


def served(directory: Path) -> tuple[list[tuple[int, int, int, bytes]], list[LogDamaged]]:
    """All that a reader gets who passes over damage, and the damage it met."""
    log = open_log(directory)
    rows, damages, sequence = [], [], log.begin_sequence_number
    while sequence < log.next_sequence_number:
        try:
            found = stored(log, sequence)
            rows += found
            sequence = found[-1][0] + 1
        except LogDamaged as damage:
            damages.append(damage)
            more = []
            while sequence < damage.sequence_number:  # what came before the damage
                more = stored_until(log, sequence, damage.sequence_number)
                rows += more
                sequence = more[-1][0] + 1
            sequence = damage.resume_sequence_number
    log.close()
    return rows, damages


def stored_until(log: Any, start: int, stop: int) -> list[tuple[int, int, int, bytes]]:
    rows = []
    for batch in log.read_batches(start, max_events=stop - start):
        numbers = range(batch.base_sequence_number, batch.base_sequence_number + len(batch.events))
        rows += [
            (number, offset, batch.enqueued_time_ms, event)
            for number, offset, event in zip(numbers, batch.offsets, batch.events, strict=True)
        ]
    return rows


def forget_acknowledged(directory: Path) -> None:
    """As after a power failure that came before the file was written back."""
    (directory / "acknowledged").unlink()


@pytest.mark.slow
def test_the_last_segment_cut_at_every_byte_where_nothing_says_what_was_acknowledged(tmp_path: Path) -> None:
    rows = write(tmp_path / "whole", 3)
    forget_acknowledged(tmp_path / "whole")
    whole = last_segment(tmp_path / "whole").read_bytes()
    ends = [entry.end_position for entry in SegmentReader(tmp_path / "whole").read_entries(0)]
    for size in range(len(whole) + 1):
        directory = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", directory)
        last_segment(directory).write_bytes(whole[:size])
        intact = sum(end <= size for end in ends)
        log = open_log(directory)
        assert stored(log) == rows[: 2 * intact], size
        kept = ends[intact - 1] if intact else (SEGMENT_HEADER_BYTES if size >= SEGMENT_HEADER_BYTES else 0)
        assert log.recovery.truncated_bytes == size - kept, size
        assert bool(log.recovery.reason) == (size != kept or size < SEGMENT_HEADER_BYTES), size
        assert log.recovery.damages == ()
        assert append(log, [b"goes on"]).first_sequence_number == 2 * intact
        log.close()
        if size % 10 == 0:
            again = open_log(directory)
            assert again.recovery.truncated_bytes == 0
            assert stored(again)[: 2 * intact] == rows[: 2 * intact]
            assert stored(again)[-1][3] == b"goes on"
            again.close()
        shutil.rmtree(directory)


@pytest.mark.slow
def test_the_last_segment_cut_at_every_byte_is_damage_where_its_events_were_acknowledged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = write(tmp_path / "whole", 3)
    whole = last_segment(tmp_path / "whole").read_bytes()
    ends = [entry.end_position for entry in SegmentReader(tmp_path / "whole").read_entries(0)]
    for size in range(len(whole)):
        directory = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", directory)
        last_segment(directory).write_bytes(whole[:size])
        intact = 2 * sum(end <= size for end in ends)
        caplog.clear()
        log = open_log(directory)
        (damage,) = log.recovery.damages
        assert (damage.sequence_number, damage.resume_sequence_number) == (intact, len(rows)), size
        assert f"events {intact} to {len(rows) - 1} cannot be read" in caplog.text
        assert log.recovery.truncated_bytes == 0
        assert (log.last_offset, log.last_enqueued_time_ms) == rows[-1][1:3]
        added = append(log, [b"goes on"])
        assert added.first_sequence_number == len(rows), "an acknowledged event's number is never given out again"
        assert added.first_offset > rows[-1][1]
        log.close()
        found, damages = served(directory)
        assert [row[3] for row in found] == [*(row[3] for row in rows[:intact]), b"goes on"], size
        assert [(d.sequence_number, d.resume_sequence_number) for d in damages] == [(intact, len(rows))]
        shutil.rmtree(directory)


def test_a_segment_that_is_gone_is_damage_and_its_numbers_stay_taken(tmp_path: Path) -> None:
    rows = write(tmp_path, 30, segment_bytes=400)
    segment = last_segment(tmp_path)
    first = int(segment.stem.split("-")[1])
    segment.unlink()
    log = open_log(tmp_path)
    assert [(d.sequence_number, d.resume_sequence_number) for d in log.recovery.damages] == [(first, len(rows))]
    assert append(log, [b"x"]).first_sequence_number == len(rows)
    log.close()
    for path in tmp_path.glob("*.log"):
        path.unlink()
    log = open_log(tmp_path)
    assert append(log, [b"y"]).first_sequence_number == len(rows) + 1
    log.close()


@settings(max_examples=example_count(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record=st.binary(max_size=70), flipped=st.none() | st.integers(0, 8 * 60 - 1))
@example(record=b"", flipped=None)
def test_a_damaged_record_of_what_was_acknowledged_is_refused(tmp_path: Path, record: Any, flipped: Any) -> None:
    directory = tmp_path / "log"
    shutil.rmtree(directory, ignore_errors=True)
    rows = write(directory, 3)
    path = directory / "acknowledged"
    if flipped is not None:
        record = bytes(
            byte ^ (1 << flipped % 8 if at == flipped // 8 else 0) for at, byte in enumerate(path.read_bytes())
        )
    path.write_bytes(record)
    if record:
        with pytest.raises(FileDamaged, match=r"acknowledged is damaged: .*; restore it from a backup, or delete it"):
            open_log(directory)
        path.unlink()
    log = open_log(directory)
    assert stored(log) == rows
    assert log.recovery == ((0, "", (), range(0)))
    assert append(log, [b"x"]).first_sequence_number == len(rows)
    log.close()


def test_an_older_end_than_the_log_has_is_no_end(tmp_path: Path) -> None:
    """A power failure may leave the file as it was a while ago."""
    rows = write(tmp_path, 2)
    older = (tmp_path / "acknowledged").read_bytes()
    log = open_log(tmp_path)
    append(log, [b"later", b"still"])
    log.close()
    (tmp_path / "acknowledged").write_bytes(older)
    segment = last_segment(tmp_path)
    whole = segment.read_bytes()
    segment.write_bytes(whole + b"TGE1 and no more")
    log = open_log(tmp_path)
    assert [row[3] for row in stored(log)] == [*(row[3] for row in rows), b"later", b"still"]
    assert log.recovery.damages == ()
    log.close()
    (tmp_path / "acknowledged").write_bytes(older)
    segment.write_bytes(whole[:-4])
    log = open_log(tmp_path)
    assert stored(log) == rows
    assert append(log, [b"x"]).first_sequence_number == len(rows)


def test_a_large_log_is_opened_by_its_end_and_the_rest_is_read_afterwards(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(60):
        append(log, [bytes([number]) * 9000, b"second of %d" % number])
    rows = stored(log)
    log.close()
    log = open_log(tmp_path)
    assert log.recovery.unread.start == 0
    assert 80 < log.recovery.unread.stop < len(rows)
    assert [found for found in log.check() if found is not None] == []
    assert stored(log) == rows
    assert append(log, [b"x"]).first_sequence_number == len(rows)
    log.close()
    entries = list(SegmentReader(tmp_path).read_entries(0))
    segment = last_segment(tmp_path)
    content = bytearray(segment.read_bytes())
    for entry in (entries[3], entries[30], entries[-1]):
        content[entry.first_offset + 50] ^= 1
    segment.write_bytes(content)
    log = open_log(tmp_path)
    assert [d.sequence_number for d in log.recovery.damages] == [entries[-1].base_sequence_number]
    assert [found.sequence_number for found in log.check() if found is not None] == [6, 60]
    lost = {6, 7, 60, 61}
    log.close()
    assert served(tmp_path)[0] == [row for row in rows if row[0] not in lost]


def test_a_cut_of_the_last_of_many_segments_costs_only_its_own_tail(tmp_path: Path) -> None:
    rows = write(tmp_path, 30, segment_bytes=400)
    assert len(list(tmp_path.glob("*.log"))) > 5
    forget_acknowledged(tmp_path)
    segment = last_segment(tmp_path)
    first = int(segment.stem.split("-")[1])
    segment.write_bytes(segment.read_bytes()[:20])
    log = open_log(tmp_path)
    assert stored(log) == rows[:first]
    assert log.last_offset == rows[first - 1][1]
    assert log.last_enqueued_time_ms == rows[first - 1][2]
    assert append(log, [b"x"]).first_sequence_number == first


def test_zeros_after_the_last_entry_are_cut(tmp_path: Path) -> None:
    """A file system may have made the file longer without having written to it."""
    rows = write(tmp_path, 3)
    with last_segment(tmp_path).open("ab") as file:
        file.write(bytes(5000))
    log = open_log(tmp_path)
    assert log.recovery.truncated_bytes == 5000
    assert log.recovery.reason == "no entry begins here"
    assert stored(log) == rows
    assert [path.stat().st_size for path in tmp_path.glob("*.cut")] == [5000]


@settings(max_examples=example_count(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_flipped_bit_in_the_last_segment_is_found_and_the_rest_served(tmp_path: Path, data: Any) -> None:
    whole = tmp_path / "whole"
    if not whole.exists():
        write(whole, 6)
    rows, _ = served(whole)
    entries = list(SegmentReader(whole).read_entries(0))
    directory = tmp_path / "flipped"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(whole, directory)
    segment = last_segment(directory)
    content = bytearray(segment.read_bytes())
    bit = data.draw(st.integers(8 * SEGMENT_HEADER_BYTES, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    segment.write_bytes(content)
    (hit,) = [entry for entry in entries if entry.first_offset <= bit // 8 < entry.end_position]
    log = open_log(directory)
    recovery = log.recovery
    log.close()
    found, damages = served(directory)
    assert recovery.truncated_bytes == 0
    (known,) = recovery.damages
    assert (known.sequence_number, known.resume_sequence_number) == (
        hit.base_sequence_number,
        hit.next_sequence_number,
    )
    assert found == [row for row in rows if row[0] not in range(known.sequence_number, known.resume_sequence_number)]
    assert [(d.sequence_number, d.resume_sequence_number) for d in damages] == [
        (hit.base_sequence_number, hit.next_sequence_number)
    ]


def test_a_flipped_bit_in_the_last_group_counts_as_torn_where_nothing_says_that_it_was_acknowledged(
    tmp_path: Path,
) -> None:
    rows = write(tmp_path, 6)
    forget_acknowledged(tmp_path)
    hit = list(SegmentReader(tmp_path).read_entries(0))[-1]
    segment = last_segment(tmp_path)
    content = bytearray(segment.read_bytes())
    content[hit.first_offset + 60] ^= 8
    segment.write_bytes(content)
    log = open_log(tmp_path)
    assert log.recovery.truncated_bytes == hit.length
    assert stored(log) == rows[:-2]
    assert [path.stat().st_size for path in tmp_path.glob("*.cut")] == [hit.length], "kept aside for a person"


@pytest.mark.parametrize(
    "place", ["header", "first entry", "middle entry", "last entry", "its file is short", "its file is gone"]
)
def test_damage_in_a_sealed_segment_costs_what_it_hit_and_nothing_that_follows(tmp_path: Path, place: Any) -> None:
    rows = write(tmp_path, 40, segment_bytes=700)
    reader = SegmentReader(tmp_path)
    segments = sorted(tmp_path.glob("*.log"))
    segment = segments[len(segments) // 2]
    base, first = (int(part) for part in segment.stem.split("-"))
    beyond = int(segments[len(segments) // 2 + 1].stem.split("-")[1])
    entries = list(reader.read_entries(first, beyond))
    content = bytearray(segment.read_bytes())
    if place == "its file is gone":
        segment.unlink()
        lost = range(first, beyond)
    elif place == "its file is short":
        segment.write_bytes(content[: entries[1].first_offset - base + 10])
        lost = range(entries[1].base_sequence_number, beyond)
    else:
        hit = {"header": None, "first entry": entries[0], "middle entry": entries[2], "last entry": entries[-1]}[place]
        content[20 if hit is None else hit.first_offset - base + 60] ^= 4
        segment.write_bytes(content)
        lost = range(0) if hit is None else range(hit.base_sequence_number, hit.next_sequence_number)
    found, damages = served(tmp_path)
    assert found == [row for row in rows if row[0] not in lost]
    assert [range(d.sequence_number, d.resume_sequence_number) for d in damages] == ([lost] if lost else [])
    for damage in damages:
        assert f"events {lost[0]} to {lost[-1]} cannot be read" in str(damage)
    log = open_log(tmp_path)
    assert append(log, [b"x"]).first_sequence_number == len(rows), "numbers are never given out twice"
    for row in found:
        assert log.sequence_after_offset(row[1], inclusive=True) == row[0]
        assert log.sequence_at_time(row[2], inclusive=True) <= row[0]


def test_another_process_is_told_of_damage_and_may_go_on_behind_it(tmp_path: Path) -> None:
    rows = write(tmp_path, 5)
    entry = list(SegmentReader(tmp_path).read_entries(0))[2]
    segment = last_segment(tmp_path)
    content = bytearray(segment.read_bytes())
    content[entry.first_offset + 70] ^= 1
    segment.write_bytes(content)
    reader, found = SegmentReader(tmp_path), []
    views = reader.read_entries(0, len(rows))
    found += next(views).events() + next(views).events()
    with pytest.raises(LogDamaged) as damaged:
        next(views)
    assert found == [row[3] for row in rows[:4]]
    for view in reader.read_entries(damaged.value.resume_sequence_number, len(rows)):
        found += view.events()
    assert found == [row[3] for row in rows[:4] + rows[6:]]


def test_a_group_torn_in_its_middle_goes_as_a_whole_behind_the_tear(tmp_path: Path) -> None:
    """Writes reach the disk in any order: an intact entry behind a torn one of the same group proves nothing."""
    committer = HeldCommitter()
    log = open_log(tmp_path, committer=committer)
    log.append([b"acknowledged"], lambda _: None)
    committer.run()
    for _ in range(3):
        log.append([bytes(200_000)], lambda _: None)
    committer.run()
    log.close()
    forget_acknowledged(tmp_path)
    entries = list(SegmentReader(tmp_path).read_entries(0))
    assert len(entries) == 4
    segment = last_segment(tmp_path)
    content = bytearray(segment.read_bytes())
    content[entries[1].first_offset + 500] ^= 1
    segment.write_bytes(content)
    log = open_log(tmp_path)
    assert [row[3] for row in stored(log)] == [b"acknowledged"]
    assert log.recovery.damages == ()
    assert log.recovery.truncated_bytes == sum(entry.length for entry in entries[1:])


@settings(max_examples=example_count(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(max_size=400), keep=st.integers(0, 400), said=st.booleans())
def test_any_bytes_in_a_segment_are_opened_or_refused_with_a_reason(
    tmp_path: Path, garbage: Any, keep: Any, said: Any
) -> None:
    directory = tmp_path / "log"
    shutil.rmtree(directory, ignore_errors=True)
    rows = write(directory, 3)
    if not said:
        forget_acknowledged(directory)
    segment = last_segment(directory)
    segment.write_bytes(segment.read_bytes()[:keep] + garbage)
    try:
        log = open_log(directory)
    except LogError:
        return
    added = append(log, [b"x"])
    assert not said or added.first_sequence_number == len(rows)
    log.close()
    found, _ = served(directory)
    assert (found[-1][0], found[-1][3]) == (added.first_sequence_number, b"x")
    assert found[:-1] == rows[: len(found) - 1]
    assert open_log(directory).recovery.truncated_bytes == 0


def test_recovery_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, 3)
    forget_acknowledged(tmp_path)
    segment = last_segment(tmp_path)
    segment.write_bytes(segment.read_bytes()[:-5])
    log = open_log(tmp_path)
    assert "cut" in caplog.text
    assert "the entry is cut off" in caplog.text
    assert log.recovery.truncated_bytes > 0
    assert log.recovery.reason == "the entry is cut off"
    assert not list(tmp_path.glob("*.cut")), "a plain torn write is of no use to anybody"


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="cannot open the log in"):
        open_log(tmp_path / "file" / "log")
