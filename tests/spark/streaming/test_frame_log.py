"""The log of a DataFrame in a checkpoint: segments, lists, and what a restart finds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.connectors.model.errors import InputError, JobError
from tidegate.connectors.model.events import InputLog
from tidegate.connectors.model.state_file import DamagedStateError
from tidegate.engine import Format
from tidegate.ordering import END_OF_TIME, TICKS_PER_SECOND
from tidegate.spark.queries.frame_events import RowLayout
from tidegate.spark.queries.frame_runs import RunsStage
from tidegate.spark.streaming.frame_log import ONLY_PARTITION, FrameLog, Segment, SegmentsStage

LAYOUT = RowLayout("i", None, True, (), Format("json"), (), ordered=True, order=("number",))
COUNTED = replace(LAYOUT, numbered=False)


def segments_of(
    log: FrameLog, batch: int, rows: Iterable[tuple[int, int, int]], kept: RowLayout = LAYOUT
) -> list[Segment]:
    """What a task writes of rows of (partition, number, arrival in seconds); their bodies are the numbers."""
    partitions, numbers, seconds = zip(*rows, strict=True)
    batch_of_rows = pa.RecordBatch.from_pydict(
        {
            "partition": pa.array(partitions, pa.int64()),
            "arrival": pa.array([second * 1_000_000 for second in seconds], pa.timestamp("us", "UTC")),
            "number": pa.array(numbers, pa.int64()),
            "body": pa.array([b"%d" % number for number in numbers], pa.binary()),
        }
    )
    runs = pa.Table.from_batches([*RunsStage(LAYOUT, (0,))(iter([batch_of_rows]))])
    ordered = runs.sort_by([("partition", "ascending"), ("first", "ascending")])
    found = SegmentsStage(LAYOUT, kept, str(log.folder), batch, True)(iter(ordered.to_batches()))
    return [Segment(*row.values()) for one in found for row in one.to_pylist()]


def opened(folder: Path, columns: str = "v int", *, streaming: bool = False) -> FrameLog:
    return FrameLog(folder, "i", columns, COUNTED if streaming else LAYOUT, streaming=streaming)


def bodies(log: InputLog, partition: str, start: int, end: int, at_a_time: int = 2) -> list[bytes]:
    return [body for events in log.range(partition, start, end).read_events(at_a_time) for body in events.bodies]


def test_rows_are_read_by_their_positions_and_a_restart_finds_them(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    rows = [(0, 12, 3), (1, 5, 9), (0, 10, 1), (0, 17, 4), (1, 6, 9)]
    log.add(0, segments_of(log, 0, rows), complete=True)
    (tmp_path / "log" / "000000000001-0f.rows").write_bytes(b"of an attempt that was killed")
    again = opened(tmp_path / "log")
    assert not (tmp_path / "log" / "000000000001-0f.rows").exists()
    for one in (log, again):
        ends = one.ends()
        assert {name: (end.begin, end.end, end.arrival_lower_bound, end.complete) for name, end in ends.items()} == {
            "0": (0, 18, END_OF_TIME, True),
            "1": (0, 7, END_OF_TIME, True),
        }
        assert ends["0"].log_id == again.ends()["0"].log_id
        assert bodies(one, "0", 0, 18) == [b"10", b"12", b"17"]
        assert bodies(one, "0", 11, 17) == [b"12"]
        assert one.first_at("0", 2 * TICKS_PER_SECOND) == 12
        assert one.first_at("1", 10 * TICKS_PER_SECOND) == 7


def test_batches_of_a_stream_follow_each_other_and_old_ones_are_deleted(tmp_path: Path) -> None:
    log = opened(tmp_path, streaming=True)
    (end,) = log.ends().values()
    assert (end.begin, end.end, end.complete) == (0, 0, False), "a stream without a row has not ended"
    for batch in range(5):
        rows = [(0, 2 * batch + 1, 10 * batch + 1), (0, 2 * batch, 10 * batch)]
        # A batch may have no row.
        log.add(batch, segments_of(log, batch, rows, COUNTED) if batch != 3 else [], complete=False)
    assert bodies(log, ONLY_PARTITION, 0, 8) == [b"0", b"1", b"2", b"3", b"4", b"5", b"8", b"9"]
    log.forget_before(21 * TICKS_PER_SECOND)
    for one in (log, opened(tmp_path, streaming=True)):
        (end,) = one.ends().values()
        # One batch more than is needed shows that nothing is missing.
        assert (end.begin, end.end, one.newest) == (2, 8, 4)
        assert one.first_at(ONLY_PARTITION, 21 * TICKS_PER_SECOND) == 5
        assert bodies(one, ONLY_PARTITION, 2, 8) == [b"2", b"3", b"4", b"5", b"8", b"9"]
    assert len([*tmp_path.glob("*.rows")]) == 3


@pytest.mark.parametrize(
    ("newest", "begun", "ended"), [(None, -1, -1), (None, 0, -1), (0, 0, -1), (0, 0, 0), (0, 1, 0)]
)
def test_a_stream_continues_where_its_query_of_spark_does(
    tmp_path: Path, newest: int | None, begun: int, ended: int
) -> None:
    of_spark(tmp_path, newest, begun, ended).check_spark()


@pytest.mark.parametrize(("newest", "begun", "ended"), [(0, -1, -1), (None, 0, 0), (0, 1, 1), (2, 2, 0), (2, 1, 1)])
def test_a_checkpoint_that_was_restored_in_part_is_refused(
    tmp_path: Path, newest: int | None, begun: int, ended: int
) -> None:
    with pytest.raises(JobError, match="a part of the checkpoint was restored or deleted"):
        of_spark(tmp_path, newest, begun, ended).check_spark()


def of_spark(folder: Path, newest: int | None, begun: int, ended: int) -> FrameLog:
    """A log with a newest batch, beside a query of Spark that has begun one batch and ended another."""
    log = opened(folder, streaming=True)
    if newest is not None:
        log.add(newest, [], complete=False)
    for name, number in (("offsets", begun), ("commits", ended)):
        (log.of_spark / name).mkdir(parents=True)
        if number >= 0:
            (log.of_spark / name / str(number)).write_text("v1")
    return log


def test_what_was_changed_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.add(0, segments_of(log, 0, [(0, 1, 1)]), complete=True)
    with pytest.raises(JobError, match="it had v int, and has v int, w int"):
        opened(tmp_path, "v int, w int")
    (rows,) = tmp_path.glob("*.rows")
    rows.write_bytes(rows.read_bytes()[:-10])
    with pytest.raises(InputError, match="restore the checkpoint from a backup"):
        bodies(opened(tmp_path), "0", 0, 2)
    (tmp_path / "000000000000.list").write_bytes(b"{}")
    with pytest.raises(DamagedStateError, match="is damaged"):
        opened(tmp_path)


def test_positions_that_contradict_the_arrival_are_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    with pytest.raises(InputError, match="the order contradicts the arrival"):
        segments_of(log, 0, [(0, number, 1_000 - 2 * number) for number in range(40)])
