"""Reading while the hub writes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.log.support import append, last_segment, open_log
from tidegate.log import Committer, LogError, SegmentReader


def test_a_directory_without_a_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="holds no log"):
        SegmentReader(tmp_path).end_sequence_number()


def test_a_write_under_way_is_not_damage_unless_the_hub_says_it_is_durable(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, [b"a"])
    append(log, [b"b"])
    log.close()
    segment = last_segment(tmp_path)
    segment.write_bytes(segment.read_bytes()[:-3])
    reader = SegmentReader(tmp_path)
    assert [entry.events() for entry in reader.read_entries(0)] == [[b"a"]]
    assert reader.end_sequence_number() == 1
    with pytest.raises(LogError, match="events 1 to 1 cannot be read"):
        list(reader.read_entries(0, 2))


def test_reading_on_while_segments_come_and_go(tmp_path: Path) -> None:
    committer = Committer(1)
    log = open_log(tmp_path, committer=committer, segment_bytes=3000)
    total = 3000
    grown = threading.Event()
    log.on_grow(grown.set)

    def publish() -> None:
        for number in range(total):
            log.append([b"%d" % number], lambda _: None)
            if number % 500 == 499:
                log.apply_retention(max_bytes=20_000)

    thread = threading.Thread(target=publish)
    thread.start()
    reader, position, seen = SegmentReader(tmp_path), 0, 0
    while position < total:
        grown.wait(5)
        grown.clear()
        end = log.next_sequence_number
        for entry in reader.read_entries(position, end):
            assert entry.base_sequence_number >= position
            for i, event in enumerate(entry.events()):
                assert event == b"%d" % (entry.base_sequence_number + i)
            seen += entry.count
            position = entry.next_sequence_number
    thread.join()
    log.close()
    committer.close()
    assert seen > 0


def test_a_range_below_retention_begins_later(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    for number in range(30):
        append(log, [b"%d" % number * 20])
    log.apply_retention(max_bytes=400)
    begin = log.begin_sequence_number
    assert begin > 0
    first = next(SegmentReader(tmp_path).read_entries(0, 30))
    assert first.base_sequence_number == begin
