"""The stream of steps, as Spark asks it: with a log of offsets, a log of commits, and ends at any point between."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from tests.patience import PATIENCE_S
from tests.spark.streaming.test_steps import Run
from tidegate.spark.streaming import step_source
from tidegate.spark.streaming.step_source import StepFolder, StepPart, StepsLost, StepSource, StepState, in_groups

SCHEMA = StructType([StructField("n", LongType())])


class Killed(Exception):
    """Stands for the end of Spark."""


class Spark:
    """What a query of Spark does with a stream, as its engine for micro-batches does it.

    Attributes:
        offsets, commits: its logs, which survive it.
        sink: by number, the rows of each batch; a batch that is repeated has the same.
    """

    def __init__(self, folder: StepFolder) -> None:
        self.folder = folder
        self.offsets: list[dict[str, Any]] = []
        self.commits = 0
        self.sink: dict[int, list[int]] = {}
        self.dies_after = ""
        self.start_again()

    def start_again(self, run: str = "run", schema: StructType = SCHEMA, **options: object) -> None:
        chosen = {"path": str(self.folder.path), "run": run, "untilEnd": "true", "waits": "true", "tasks": "2"}
        # Executors and the planner get copies, which need no module of Tidegate.
        source = pickle.loads(cloudpickle.dumps(StepSource({**chosen, **options})))
        self.reader = source.streamReader(schema)

    def take_batch(self) -> bool:
        """Take a batch, and return whether there was one."""
        if self.commits == len(self.offsets):
            start = self.offsets[-1] if self.offsets else self.reader.initialOffset()
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
            if end == start:
                return False
            self.offsets.append(end)
            self._end_if("offsets")
            if self.commits:
                self.reader.commit(self.offsets[-2])
        number = len(self.offsets) - 1
        start = self.offsets[-2] if number else self.reader.initialOffset()
        rows = [
            n
            for partition in self.reader.partitions(start, self.offsets[-1])
            for batch in self.reader.read(partition)
            for n in batch.column(0).to_pylist()
        ]
        assert self.sink.setdefault(number, rows) == rows
        self._end_if("sink")
        self.commits = len(self.offsets)
        self._end_if("commits")
        return True

    def rows(self) -> list[int]:
        return [n for number in sorted(self.sink) for n in self.sink[number]]

    def _end_if(self, point: str) -> None:
        if self.dies_after == point:
            self.dies_after = ""
            raise Killed


def reader_of(run: Run, monkeypatch: pytest.MonkeyPatch, *, until_end: str = "false", **replaced: Any) -> Any:
    """Return a reader for which names of its module are replaced."""
    options = {"path": str(run.folder.path), "run": "run", "untilEnd": until_end, "waits": "true", "tasks": "2"}
    reader = StepSource(options).streamReader(SCHEMA)
    for name, value in replaced.items():
        # A copy that was made by value gives the class its own functions, which do not look in the module.
        monkeypatch.setitem(type(reader).latestOffset.__globals__, name, value)
    return reader


class Clock:
    """Stands for `time`, and passes only while somebody sleeps.

    Attributes:
        then: called at the first pause.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses_s: list[float] = []
        self.then: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        if not self.pauses_s:
            self.then()
        self.pauses_s.append(seconds)
        self.now_s += seconds
        assert self.now_s < 60, "nothing ends the wait"


def ended(run: Run, failure: str = "") -> None:
    run.delivery.end(run.folder, failure)


def test_rows_arrive_once_and_their_steps_are_deleted_but_for_the_newest(tmp_path: Path) -> None:
    run = Run(tmp_path)
    spark = Spark(run.folder)
    for number in range(4):
        run.write(number)
        run.output.commit()
        assert spark.take_batch()
    ended(run)
    assert not spark.take_batch()
    assert spark.rows() == [0, 1, 2, 3]
    assert run.folder.steps() == [3]
    assert run.folder.taken() == 4
    assert spark.reader.reportLatestOffset() == {"steps": 4, "journal": "j"}


def test_a_step_that_comes_while_spark_waits_wakes_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    spark = Spark(run.folder)
    waiting = threading.Thread(target=spark.take_batch)
    waiting.start()
    run.write(7)
    run.output.commit()
    waiting.join(PATIENCE_S)
    assert spark.rows() == [7]


def test_spark_is_not_kept_waiting_if_it_has_a_clock_of_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path)
    spark = Spark(run.folder)
    spark.start_again(untilEnd="false", waits="false")
    assert not spark.take_batch()
    spark.start_again(untilEnd="false")
    assert not spark.take_batch(), "for a moment only"


def test_spark_is_not_kept_waiting_while_somebody_waits_for_it_to_have_written_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    reader = reader_of(run, monkeypatch, _LONGEST_WAIT_S=10 * PATIENCE_S)
    asking = threading.Thread(target=reader.latestOffset, args=[reader.initialOffset()], daemon=True)
    asking.start()
    with run.delivery.awaited():
        asking.join(PATIENCE_S)
        assert not asking.is_alive()
        run.write(7)
        run.output.commit()
        assert run.folder.state() == StepState("run", "j", 1, awaited=True)
    assert run.folder.state() == StepState("run", "j", 1)


def test_an_idle_stream_looks_seldom_and_reads_the_state_only_when_it_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    clock = Clock()
    reader = reader_of(run, monkeypatch, time=clock)
    read: list[StepState | None] = []
    state_of = StepFolder.state

    def counted(folder: StepFolder) -> StepState | None:
        read.append(state_of(folder))
        return read[-1]

    monkeypatch.setattr(StepFolder, "state", counted)
    start, asked = reader.initialOffset(), 0
    while clock.now_s < 30:
        assert reader.latestOffset(start) == start
        asked += 1
    assert len(clock.pauses_s) < 30 * 50, "fifty times a second at most"
    assert len(read) <= 2 * asked
    run.write(7)
    run.output.commit()
    end = reader.latestOffset(start)
    assert end == {"steps": 1, "journal": "j"}
    del clock.pauses_s[:]
    reader.latestOffset(end)
    assert clock.pauses_s[0] < 0.005, "the next step may come soon"


def test_a_state_that_was_replaced_unnoticed_is_read_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    clock = Clock()

    def plan_a_step() -> None:
        run.write(7)
        run.output.commit()

    clock.then = plan_a_step
    reader = reader_of(run, monkeypatch, until_end="true", time=clock)
    monkeypatch.setattr(StepFolder, "state_version", lambda folder: (1,))
    assert reader.latestOffset(reader.initialOffset()) == {"steps": 1, "journal": "j"}


def test_a_stream_fails_with_its_evaluation_after_what_that_has_planned(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write(1)
    run.output.commit()
    ended(run, "the hub is gone")
    spark = Spark(run.folder)
    assert spark.take_batch()
    with pytest.raises(RuntimeError, match="the hub is gone"):
        spark.take_batch()
    nothing = StepFolder(tmp_path / "never-opened")
    Run(tmp_path).delivery.__class__(None, "run").end(nothing, "no such file")
    with pytest.raises(RuntimeError, match="no such file"):
        Spark(nothing).take_batch()


def test_the_state_of_an_earlier_run_says_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write(1)
    run.output.commit()
    ended(run, "the hub is gone")
    spark = Spark(run.folder)
    spark.start_again("another run", untilEnd="false", waits="false")
    assert not spark.take_batch()
    run.folder.path.joinpath("state").write_text("")
    assert not spark.take_batch(), "a crash may leave it empty"


def test_before_spark_4_2_an_available_now_query_gets_everything_in_one_batch(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write(1)
    run.output.commit()
    spark = Spark(run.folder)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(spark.reader.latestOffset()))
    waiting.start()
    run.write(2)
    run.output.commit()
    ended(run)
    waiting.join(PATIENCE_S)
    assert found == [{"steps": 2, "journal": "j"}]
    assert spark.reader.partitions({"steps": 0}, found[0])
    assert spark.reader.latestOffset() == found[0]


def test_a_folder_that_was_restored_in_parts_is_noticed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    spark = Spark(run.folder)
    for number in range(3):
        run.write(number)
        run.output.commit()
        spark.take_batch()
    older = Spark(run.folder)
    older.offsets, older.commits = [{"steps": 1, "journal": "j"}], 1
    with pytest.raises(StepsLost, match=r"step 1 is not in .*Spark's checkpoint is older"):
        older.take_batch()
    ahead = Spark(run.folder)
    ahead.offsets, ahead.commits = [{"steps": 5, "journal": "j"}], 1
    with pytest.raises(StepsLost, match=r"Spark's checkpoint has 5 steps, and .* has 3: it is older"):
        ahead.take_batch()
    run.folder.note(StepState("run", "another", 9))
    with pytest.raises(StepsLost, match="their journal was replaced"):
        spark.take_batch()


def test_a_checkpoint_whose_offsets_were_deleted_is_refused_while_its_first_step_is_still_there(tmp_path: Path) -> None:
    """Batches would be numbered from 0 again, and Delta leaves out numbers that it has seen."""
    run = Run(tmp_path)
    spark = Spark(run.folder)
    run.write(1)
    run.output.commit()
    spark.take_batch()
    ended(run)
    assert not spark.take_batch()
    assert run.folder.steps() == [0]
    with pytest.raises(StepsLost, match=r"Spark has written 1 steps of .*, and its checkpoint has no offsets"):
        Spark(run.folder).take_batch()


def test_a_step_of_an_earlier_query_gets_the_columns_of_the_stream(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write(1, 2)
    run.output.commit()
    wider = StructType([StructField("n", StringType()), StructField("new", LongType())])
    spark = Spark(run.folder)
    spark.start_again(schema=wider)
    (partition,) = spark.reader.partitions({"steps": 0}, {"steps": 1, "journal": "j"})
    (batch,) = spark.reader.read(partition)
    assert batch.to_pylist() == [{"n": "1", "new": None}, {"n": "2", "new": None}]
    text = pa.table({"n": ["x"]})
    with pa.OSFile(str(tmp_path / "text"), "wb") as file, pa.ipc.new_stream(file, text.schema) as writer:
        writer.write_table(text)
    partition.parts = (StepPart(tmp_path / "text", 0, (tmp_path / "text").stat().st_size),)
    spark.start_again()
    with pytest.raises(StepsLost, match="planned before the query changed"):
        next(spark.reader.read(partition))


def test_a_part_that_ends_early_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(b"abc")
    with pytest.raises(OSError, match="has 3 bytes, expected 10"):
        StepPart(path, 0, 10).read()


def test_imports_are_left_out_of_collections_of_garbage_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To count what is left out, as was done before each task, takes as long as a collection."""
    calls: list[str] = []
    monkeypatch.setattr("gc.freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr("gc.get_freeze_count", lambda: len(calls))
    vars(gc).pop(step_source._FROZEN, None)
    run = Run(tmp_path)
    spark = Spark(run.folder)
    for number in range(2):
        run.write(number)
        run.output.commit()
        assert spark.take_batch()
    assert calls == ["freeze"]


def test_parts_are_cut_into_groups_of_about_the_same_size() -> None:
    parts = [StepPart(Path("x"), 0, length) for length in (10, 10, 10, 30)]
    assert [[part.length for part in group] for group in in_groups(parts, 2)] == [[10, 10, 10], [30]]
    assert in_groups([], 2) == []


@pytest.mark.slow
def test_spark_needs_no_tidegate_for_it(tmp_path: Path) -> None:
    content = tmp_path / "source"
    content.write_bytes(cloudpickle.dumps(StepSource({"path": str(tmp_path), "run": "r", "untilEnd": "false"})))
    program = f"""
import pickle, sys
source = pickle.loads(open({str(content)!r}, "rb").read())
print(source.name(), [name for name in sys.modules if name.startswith("tidegate.spark.")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "tidegate-steps []\n"


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(["journal", "offsets", "sink", "commits", "both"]), max_size=8),
    st.integers(min_value=1, max_value=25),
    st.randoms(use_true_random=False),
)
def test_wherever_both_sides_end_each_row_arrives_once(
    tmp_path_factory: pytest.TempPathFactory, ends: list[str], count: int, chance: Any
) -> None:
    """The evaluation ends with a step in its journal or without, and Spark before or after each of its logs."""
    folder = tmp_path_factory.mktemp("steps")
    rows = list(range(count))
    mark: dict[str, Any] | None = None
    journalled = 0
    run = Run(folder)
    spark = Spark(run.folder)
    while journalled < count:
        take = chance.randrange(1, 6)
        run.write(*rows[journalled : journalled + take])
        committed = run.output.commit()
        end = ends.pop() if ends and chance.random() < 0.5 else ""
        if end in ("offsets", "sink", "commits", "both"):
            spark.dies_after = "sink" if end == "both" else end
        if chance.random() < 0.7:
            try:
                # What waits for more is not asked here.
                if spark.commits < len(spark.offsets) or run.delivery.state.steps > (
                    spark.offsets[-1]["steps"] if spark.offsets else 0
                ):
                    spark.take_batch()
            except Killed:
                spark.start_again()
        if end in ("journal", "both"):
            run = Run(folder, mark)
            spark.start_again()
            continue
        mark, journalled = committed, min(count, journalled + take)
    run.output.commit()
    run.delivery.end(run.folder)
    spark.dies_after = ""
    while spark.take_batch():
        pass
    assert spark.rows() == rows


def test_columns_are_those_of_utc_in_every_version_of_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = StructType([StructField("at", TimestampType())])
    expected = pa.schema([("at", pa.timestamp("us", "UTC"))])
    assert step_source._in_utc(columns) == expected
    # As 4.0 and 4.1 have it.
    monkeypatch.setattr(step_source, "to_arrow_schema", lambda schema, timestamp_utc=True: expected)
    assert step_source._in_utc(columns) == expected
