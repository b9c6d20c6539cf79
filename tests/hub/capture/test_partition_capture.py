"""Capture of a partition: each event in exactly one file, whatever happens in between."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hub.archives import (
    NAMES,
    CountedSteps,
    CountedStore,
    Crash,
    archive_of,
    content_of,
    description,
    files,
    records,
    run,
)
from tests.log.support import InlineCommitter, SetClock, append, last_segment
from tests.profiles import example_count
from tidegate.amqp.messages import Message, encode_message
from tidegate.hub.capture import avro as capture_avro
from tidegate.hub.capture.journal import CaptureJournal, CaptureState, JournalDamaged
from tidegate.hub.capture.partition_capture import CaptureWriter
from tidegate.hub.capture.store import Folder, StoreError
from tidegate.log import PartitionLog

MINUTE_MS = 60_000
# 2025-08-02T03:04:00Z, the beginning of a window
START_MS = 1754103840_000


class Partition:
    """A log with its clock, and the archive that is made of it."""

    def __init__(self, folder: Path) -> None:
        self.clock = SetClock(START_MS)
        self.log = PartitionLog.open(folder / "log", clock=self.clock, committer=InlineCommitter(), durable=False)
        self.archive = folder / "archive"
        self.state = folder / "log" / "capture"
        self.settings: dict[str, Any] = {}

    def writer(self, store: Any = None) -> CaptureWriter:
        return CaptureWriter(self.log, NAMES, description(**self.settings), store or Folder(self.archive))

    def publish(self, at_ms: int, count: int = 1, size: int = 10) -> None:
        self.clock.time_ms = max(self.clock.time_ms, at_ms)
        append(self.log, [encode_message(Message(body_kind="data", body=[bytes(size)]))] * count)

    def at(self, now_ms: int, writer: CaptureWriter) -> None:
        self.clock.time_ms = max(self.clock.time_ms, now_ms)
        run(writer, self.clock.time_ms)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path)


def test_a_window_becomes_a_file_named_after_its_beginning(partition: Partition) -> None:
    writer = partition.writer()
    partition.publish(START_MS + 14_674, 3)
    partition.publish(START_MS + 59_999)
    partition.at(START_MS + 59_999, writer)
    assert files(partition.archive) == []
    partition.at(START_MS + 60_000, writer)
    assert archive_of(partition.archive) == {"ns1/eh1/0/2025/08/02/03/04/00.avro": [0, 1, 2, 3]}
    assert writer.keep_from == 4
    assert (writer.files, writer.events, writer.failures, writer.events_lost) == (1, 4, 0, 0)


def test_an_event_at_the_end_of_a_window_belongs_to_the_next(partition: Partition) -> None:
    writer = partition.writer()
    partition.publish(START_MS)
    partition.publish(START_MS + MINUTE_MS)
    partition.at(START_MS + 2 * MINUTE_MS, writer)
    assert list(archive_of(partition.archive).values()) == [[0], [1]]


def test_a_window_without_events_has_an_empty_file(partition: Partition) -> None:
    writer = partition.writer()
    partition.publish(START_MS + 3 * MINUTE_MS)
    partition.at(START_MS + 4 * MINUTE_MS, writer)
    assert [Path(name).parent.name for name in files(partition.archive)] == ["04", "05", "06", "07"]
    assert list(archive_of(partition.archive).values()) == [[], [], [], [0]]
    sizes = [len(content) for content in content_of(partition.archive).values()]
    assert sizes[0] <= 508 < sizes[3]


def test_empty_files_are_left_out_when_told(partition: Partition) -> None:
    partition.settings["skip_empty_archives"] = True
    writer = partition.writer()
    partition.publish(START_MS + 3 * MINUTE_MS)
    partition.at(START_MS + 9 * MINUTE_MS, writer)
    assert archive_of(partition.archive) == {"ns1/eh1/0/2025/08/02/03/07/00.avro": [0]}


def test_windows_in_which_nobody_watched_have_no_empty_files(partition: Partition) -> None:
    partition.publish(START_MS)
    writer = partition.writer()
    partition.publish(START_MS + 1)
    partition.at(START_MS + 2, writer)
    partition.clock.time_ms = START_MS + 10 * MINUTE_MS + 1
    later = partition.writer()
    partition.at(START_MS + 12 * MINUTE_MS, later)
    assert [Path(name).parent.name for name in files(partition.archive)] == ["04", "14", "15"]


def test_capture_begins_with_the_events_to_come(partition: Partition) -> None:
    partition.publish(START_MS + 1, 5)
    partition.clock.time_ms = START_MS + 30_500
    writer = partition.writer()
    partition.publish(START_MS + 31_000, 2)
    partition.at(START_MS + MINUTE_MS, writer)
    assert archive_of(partition.archive) == {"ns1/eh1/0/2025/08/02/03/04/30.avro": [5, 6]}


def test_a_file_that_is_full_is_closed_before_its_time(partition: Partition) -> None:
    partition.settings["size_limit_in_bytes"] = 200_000
    writer = partition.writer()
    partition.publish(START_MS + 5_000, 500, size=1000)
    partition.at(START_MS + 10_000, writer)
    assert len(files(partition.archive)) == 2
    partition.publish(START_MS + 20_500, 10)
    partition.at(START_MS + MINUTE_MS, writer)
    archive = archive_of(partition.archive)
    assert [number for numbers in archive.values() for number in numbers] == list(range(510))
    # The first is named after the window, those that follow after their first event.
    assert [Path(name).stem for name in archive] == ["00", "05", "06"]
    assert all(len(content) < 300_000 for content in content_of(partition.archive).values())


def test_a_full_file_at_the_end_of_a_window_leaves_no_empty_one_behind(partition: Partition) -> None:
    partition.settings["size_limit_in_bytes"] = 60_000
    writer = partition.writer()
    count = 0
    while not files(partition.archive):
        partition.publish(START_MS + 1, size=1000)
        count += 1
        partition.at(START_MS + 1, writer)
    partition.at(START_MS + 2 * MINUTE_MS, writer)
    assert archive_of(partition.archive) == {
        "ns1/eh1/0/2025/08/02/03/04/00.avro": list(range(count)),
        "ns1/eh1/0/2025/08/02/03/05/00.avro": [],
    }


def test_more_files_than_seconds_have_names_of_their_own(partition: Partition) -> None:
    partition.settings["size_limit_in_bytes"] = 60_000
    writer = partition.writer()
    partition.publish(START_MS + 59_000, 700, size=1000)
    partition.publish(START_MS + MINUTE_MS, 1)
    partition.at(START_MS + 2 * MINUTE_MS, writer)
    archive = archive_of(partition.archive)
    assert len(archive) >= 10
    assert [number for numbers in archive.values() for number in numbers] == list(range(701))


def test_a_window_is_open_until_the_arrival_lower_bound_has_passed_its_end(partition: Partition) -> None:
    writer = partition.writer()
    partition.publish(START_MS)
    bound_ms = START_MS + MINUTE_MS - 1
    partition.clock.arrival_lower_bound_ms = lambda: bound_ms
    partition.at(START_MS + 2 * MINUTE_MS, writer)
    assert files(partition.archive) == []


def test_retention_can_ask_what_is_not_captured_yet(partition: Partition) -> None:
    writer = partition.writer()
    partition.publish(START_MS, 5)
    partition.at(START_MS + 1, writer)
    assert writer.keep_from == 0
    partition.log.apply_retention(before_ms=START_MS + MINUTE_MS, keep_from=writer.keep_from)
    assert partition.log.begin_sequence_number == 0
    partition.at(START_MS + MINUTE_MS, writer)
    assert writer.keep_from == 5
    assert partition.log.apply_retention(before_ms=START_MS + MINUTE_MS, keep_from=writer.keep_from) == 5


def test_what_retention_took_all_the_same_is_reported(partition: Partition, caplog: pytest.LogCaptureFixture) -> None:
    writer = partition.writer()
    partition.publish(START_MS, 5)
    partition.log.apply_retention(before_ms=START_MS + 1)
    partition.publish(START_MS + 1, 2)
    partition.at(START_MS + MINUTE_MS, writer)
    assert list(archive_of(partition.archive).values()) == [[5, 6]]
    assert writer.events_lost == 5
    assert "eh1/0: events 0 to 4 are not captured" in caplog.text


def test_capture_goes_on_when_all_events_that_it_had_not_seen_were_deleted(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    writer = partition.writer()
    partition.publish(START_MS, 5)
    partition.log.delete_before(5)
    partition.at(START_MS + MINUTE_MS, writer)
    assert list(archive_of(partition.archive).values()) == [[]]
    assert writer.events_lost == 5
    assert "eh1/0: events 0 to 4 are not captured" in caplog.text
    partition.publish(START_MS + MINUTE_MS)
    partition.at(START_MS + 2 * MINUTE_MS, writer)
    assert list(archive_of(partition.archive).values()) == [[], [5]]


@pytest.mark.parametrize("deleted", [2, 3, 5])
def test_a_file_whose_events_were_deleted_before_its_delivery_holds_those_that_are_left(
    partition: Partition, deleted: int
) -> None:
    class Away(Folder):
        def put(self, name: str, content: Path) -> None:
            raise StoreError("the destination is unavailable")

    partition.publish(START_MS)
    partition.log.roll(max_bytes=0)
    former = partition.writer(Away(partition.archive))
    for count in (2, 2):
        partition.publish(START_MS, count)
    partition.at(START_MS + MINUTE_MS, former)
    assert former.failures == 1
    partition.log.delete_before(deleted)
    writer = partition.writer()
    partition.at(START_MS + 2 * MINUTE_MS, writer)
    assert next(iter(archive_of(partition.archive).values())) == list(range(deleted, 5))
    assert writer.keep_from == 5
    assert writer.events_lost == deleted - 1


def test_damaged_events_are_reported_and_the_rest_captured(partition: Partition) -> None:
    writer = partition.writer()
    for _ in range(3):
        partition.publish(START_MS + 1, 2)
    segment = last_segment(partition.log.directory)
    content = bytearray(segment.read_bytes())
    _, middle, _ = re.finditer(rb"TGE1", content)
    content[middle.start() + 60] ^= 0xFF
    segment.write_bytes(content)
    partition.at(START_MS + MINUTE_MS, writer)
    assert list(archive_of(partition.archive).values()) == [[0, 1, 4, 5]]
    assert writer.events_lost == 2


def test_a_destination_that_fails_is_tried_again_and_nothing_is_lost(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Folder):
        broken = True

        def put(self, name: str, content: Path) -> None:
            if self.broken:
                raise StoreError("the destination is unavailable")
            super().put(name, content)

    store = Failing(partition.archive)
    writer = partition.writer(store)
    partition.publish(START_MS, 3)
    now_ms = START_MS + MINUTE_MS
    partition.at(now_ms, writer)
    assert writer.failures == 1
    for _ in range(100):
        now_ms += 1_000
        partition.at(now_ms, writer)
    # Waits double up to a minute: 1, 2, 4, 8, 16, 32, 60.
    assert writer.failures == 7
    assert "the destination is unavailable" in caplog.text
    store.broken = False
    partition.at(now_ms + 60_000, writer)
    assert archive_of(partition.archive)["ns1/eh1/0/2025/08/02/03/04/00.avro"] == [0, 1, 2]
    assert writer.keep_from == 3


def test_a_full_disk_is_tried_again(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = partition.writer()
    partition.publish(START_MS, 3)

    def no_space(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(CaptureJournal, "write", no_space)
        partition.at(START_MS + MINUTE_MS, writer)
        patch.setattr(capture_avro.AvroFile, "add", no_space)
        partition.at(START_MS + MINUTE_MS + 1_000, writer)
    assert files(partition.archive) == []
    partition.at(START_MS + MINUTE_MS + 59_000, writer)
    assert list(archive_of(partition.archive).values()) == [[0, 1, 2]]


@pytest.mark.parametrize("size", [10, 20_000, 100_000])
def test_a_full_disk_below_the_file_under_way_is_tried_again(partition: Partition, size: int) -> None:
    """What was written is lost when it comes to the disk: with a block, at the end, or on closing."""
    writer = partition.writer()
    partition.state.mkdir(parents=True, exist_ok=True)
    (partition.state / "spool.avro").symlink_to("/dev/full")
    partition.publish(START_MS, 3, size)
    partition.at(START_MS + 1_000, writer)
    partition.at(START_MS + MINUTE_MS, writer)
    assert writer.failures == 1
    partition.at(START_MS + MINUTE_MS + 59_000, writer)
    assert list(archive_of(partition.archive).values()) == [[0, 1, 2]]
    assert writer.failures == 1


def test_somebody_elses_file_is_left_alone(partition: Partition, tmp_path: Path) -> None:
    former = Partition(tmp_path / "former")
    former.archive = partition.archive
    former.publish(START_MS, 2)
    writer = former.writer()
    former.publish(START_MS, 2)
    former.at(START_MS + MINUTE_MS, writer)
    kept = content_of(partition.archive)

    writer = partition.writer()
    partition.publish(START_MS + 1, 3)
    partition.at(START_MS + MINUTE_MS, writer)
    assert archive_of(partition.archive) == {
        "ns1/eh1/0/2025/08/02/03/04/00.avro": [2, 3],
        "ns1/eh1/0/2025/08/02/03/04/01.avro": [0, 1, 2],
    }
    assert content_of(partition.archive).items() >= kept.items()


def test_a_change_of_settings_does_not_touch_a_file_on_its_way(partition: Partition) -> None:
    steps = CountedSteps()
    writer = partition.writer(CountedStore(partition.archive, steps))
    partition.publish(START_MS, 3)
    steps.crash_at = 2  # put, but not written down
    with pytest.raises(Crash):
        partition.at(START_MS + MINUTE_MS, writer)
    partition.settings |= {"interval_in_seconds": 900, "archive_name_format": "x-{Namespace}"}
    writer = partition.writer()
    partition.publish(START_MS + MINUTE_MS + 1)
    partition.at(START_MS + MINUTE_MS + 2, writer)
    assert archive_of(partition.archive) == {"ns1/eh1/0/2025/08/02/03/04/00.avro": [0, 1, 2]}
    assert writer.keep_from == 3


def test_another_interval_goes_on_from_where_the_former_ended(partition: Partition) -> None:
    writer = partition.writer()
    partition.publish(START_MS, 2)
    partition.at(START_MS + MINUTE_MS, writer)
    partition.settings["interval_in_seconds"] = 300
    writer = partition.writer()
    partition.publish(START_MS + 90_000, 2)
    # Windows of five minutes end at 03:05.
    partition.at(START_MS + 6 * MINUTE_MS, writer)
    archive = archive_of(partition.archive)
    assert [number for numbers in archive.values() for number in numbers] == [0, 1, 2, 3]
    assert next(iter(archive)) == "ns1/eh1/0/2025/08/02/03/04/00.avro"


@pytest.mark.parametrize("text", ["", "{", '{"version": 2}', "[]"])
def test_a_journal_that_cannot_be_read_is_not_guessed(partition: Partition, text: str) -> None:
    partition.writer()
    (partition.state / "journal.json").write_text(text)
    with pytest.raises(JournalDamaged, match="move it away"):
        partition.writer()


def test_a_journal_of_another_log_is_refused(partition: Partition) -> None:
    CaptureJournal(partition.log).write(
        CaptureState(archive_id="other", next_sequence_number=9, window_start_ms=START_MS)
    )
    with pytest.raises(JournalDamaged, match="another"):
        partition.writer()


# -- crashes


def scenario(partition: Partition, publications: list[tuple[int, int, int]], step: Callable[[int], None]) -> None:
    """Publications as (milliseconds since the last one, events, bytes each), capture stepping in between."""
    at_ms = START_MS
    for gap_ms, count, size in publications:
        at_ms += gap_ms
        partition.publish(at_ms, count, size)
        step(at_ms)
    step(at_ms + 3 * MINUTE_MS)


def captured(folder: Path, publications: list[tuple[int, int, int]], crashes: list[int], **settings: Any) -> Partition:
    """Run the scenario, the process ending at each of these operations (counted from the last end)."""
    partition = Partition(folder)
    partition.settings = {"size_limit_in_bytes": 3_000, **settings}
    # The archive's id is chosen at random the first time; here runs are compared byte by byte.
    CaptureJournal(partition.log).write(
        CaptureState(archive_id="archive", next_sequence_number=0, window_start_ms=START_MS)
    )
    steps = CountedSteps()
    left = list(crashes)
    write = CaptureJournal.write

    def counted_write(journal: CaptureJournal, state: CaptureState) -> None:
        steps.pass_by()
        write(journal, state)
        steps.pass_by()

    def begin() -> CaptureWriter:
        if left:
            steps.count, steps.crash_at = 0, left.pop(0)
        return partition.writer(CountedStore(partition.archive, steps))

    writer = begin()

    def step(now_ms: int) -> None:
        nonlocal writer
        while True:
            try:
                partition.at(now_ms, writer)
                return
            except Crash:
                writer = begin()
            finally:
                assert (writer.events_lost, writer.failures) == (0, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CaptureJournal, "write", counted_write)
        patch.setattr(capture_avro, "BLOCK_BYTES", 1_000)
        patch.setattr(os, "fsync", lambda _: None)  # processes end here, machines do not
        scenario(partition, publications, step)
    return partition


PUBLICATIONS = [(0, 3, 100), (20_000, 30, 300), (45_000, 1, 10), (1, 12, 400), (200_000, 2, 2_000), (59_999, 1, 1)]


@pytest.mark.parametrize("crash_at", range(1, 60))
def test_a_crash_at_any_operation_changes_no_byte(tmp_path: Path, crash_at: int) -> None:
    undisturbed = captured(tmp_path / "a", PUBLICATIONS, [], skip_empty_archives=True)
    disturbed = captured(tmp_path / "b", PUBLICATIONS, [crash_at, 1, 2, 3], skip_empty_archives=True)
    assert content_of(disturbed.archive) == content_of(undisturbed.archive)
    assert len(files(disturbed.archive)) > 6


def test_a_file_made_again_is_the_same_with_more_events_behind_it(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    partition.settings["size_limit_in_bytes"] = 60_000
    steps = CountedSteps()
    writer = partition.writer(CountedStore(partition.archive, steps))
    partition.publish(START_MS, 100, size=1000)  # the file ends in the middle of them
    partition.publish(START_MS + 1, 10)
    steps.crash_at = 1  # before it is put
    with pytest.raises(Crash):
        partition.at(START_MS + 2, writer)
    writer = partition.writer()
    partition.at(START_MS + MINUTE_MS, writer)
    archive = list(archive_of(partition.archive).values())
    assert len(archive) == 2
    assert [number for numbers in archive for number in numbers] == list(range(110))
    assert writer.events_lost == 0
    assert not [record for record in caplog.records if record.name.startswith("tidegate.hub.capture.partition_capture")]


publications_drawn = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 999, 20_000, 59_999, 60_000, 61_000, 600_000]), st.integers(1, 12), st.integers(0, 900)
    ),
    max_size=8,
)


@settings(max_examples=example_count(60), deadline=None)
@given(publications_drawn, st.lists(st.integers(1, 30), max_size=6), st.booleans())
def test_each_event_is_in_exactly_one_file(
    tmp_path_factory: pytest.TempPathFactory,
    publications: list[tuple[int, int, int]],
    crashes: list[int],
    skip_empty: bool,
) -> None:
    folder = tmp_path_factory.mktemp("crashes")
    partition = captured(folder, publications, crashes, skip_empty_archives=skip_empty)
    archive = archive_of(partition.archive)
    assert [number for numbers in archive.values() for number in numbers] == list(
        range(sum(c for _, c, _ in publications))
    )
    for name in archive:
        times = {record["SystemProperties"]["x-opt-enqueued-time"] for record in records(partition.archive / name)}
        assert len({time_ms // MINUTE_MS for time_ms in times}) <= 1, "a file holds events of one window"
        assert times or not skip_empty
    assert not list(partition.archive.rglob("*.part"))
