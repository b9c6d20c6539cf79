"""Steps are planned with the same rows under the same number, wherever a run ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.job.rows import result_columns
from tidegate.connectors.model.encoded_rows import EncodedPiece, EncodedRows
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.state_file import DamagedStateError
from tidegate.connectors.outputs import Identity, OutputOpening
from tidegate.spark.queries.frame_runs import encoded
from tidegate.spark.streaming.step_source import StepFolder
from tidegate.spark.streaming.steps import StepDelivery, StepOutput, StepSection, folder_of


class Numbers:
    """A table of one column, which is known from the beginning."""

    def __init__(self) -> None:
        self.as_table = self.of

    def of(self, rows: Any) -> pa.Table:
        return pa.table({"n": pa.array(rows.columns[0].to_list(), pa.int64())})


class Run:
    """An output, and what it has planned."""

    def __init__(self, folder: Path, mark: dict[str, Any] | None = None, journal: str = "j") -> None:
        self.delivery = StepDelivery(Numbers(), "run")
        opening = OutputOpening(Identity("job", "Out", journal), mark, None, False, folder)
        self.output: StepOutput = StepSection(delivery=self.delivery).open_at(opening)
        self.folder = StepFolder(folder_of(folder, "Out"))

    def write(self, *numbers: int) -> None:
        self.output.write(result_columns({"n": list(numbers)}))

    def planned(self) -> list[tuple[int, list[int]]]:
        plans = [self.folder.plan(step) for step in self.folder.steps()]
        return [(plan.step, [n for part in plan.parts for n in part.read()["n"].to_pylist()]) for plan in plans]


def pieces(folder: Path, *stretches: Sequence[int], inline: bool = False) -> EncodedRows:
    """Rows that an executor has encoded: in one file, or by themselves."""
    contents = [encoded(pa.table({"n": pa.array(one, pa.int64())})).to_pybytes() for one in stretches]
    count = sum(map(len, stretches))
    if inline:
        return EncodedRows("Out", count, 0, tuple(EncodedPiece(len(one), content=one) for one in contents))
    path = folder / f"executor-{len(list(folder.iterdir()))}"
    path.write_bytes(b"".join(contents))
    offsets = [sum(map(len, contents[:place])) for place in range(len(contents))]
    found = tuple(EncodedPiece(len(one), path, at) for one, at in zip(contents, offsets, strict=True))
    return EncodedRows("Out", count, 0, found)


def test_steps_count_from_0_and_empty_ones_do_not_count(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.output.commit()
    run.write(1, 2)
    run.write(3)
    mark = run.output.commit()
    assert run.output.commit() == mark == {"type": "spark", "rows": 3, "dropped": 0, "steps": 1}
    run.write(4)
    assert run.output.commit()["steps"] == 2
    assert run.planned() == [(0, [1, 2, 3]), (1, [4])]
    assert (run.delivery.state.journal, run.delivery.state.steps) == ("j", 2)


def test_a_step_that_the_journal_lacks_is_not_planned_again_whatever_is_computed_now(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.write(1)
    mark = first.output.commit()
    first.write(2, 3, 4)
    first.output.commit()
    # The journal has the mark of step 0. The rows come in other batches this time.
    again = Run(tmp_path, mark)
    assert again.delivery.state.steps == 2, "Spark may read it at once"
    again.write(2, 3)
    again.write(4, 5)
    assert again.output.commit()["steps"] == 3
    assert again.planned() == [(0, [1]), (1, [2, 3, 4]), (2, [5])]


def test_a_run_that_ends_before_it_has_computed_a_planned_step_again_leaves_out_the_rest(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.write(1, 2)
    first.output.commit()
    mark = Run(tmp_path).output.commit()
    third = Run(tmp_path, mark)
    third.write(1)
    mark = third.output.commit()
    assert mark == {"type": "spark", "rows": 1, "dropped": 0, "steps": 1}
    fourth = Run(tmp_path, mark)
    fourth.write(2, 3)
    fourth.output.commit()
    assert fourth.planned() == [(0, [1, 2]), (1, [3])]


def test_many_rows_are_cut_for_several_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.spark.streaming.steps.TASK_BYTES", 64)
    run = Run(tmp_path)
    run.write(*range(20))
    run.output.commit()
    assert [len(part.read()) for part in run.folder.plan(0).parts] == [7, 7, 6]
    assert run.planned() == [(0, [*range(20)])]


@pytest.mark.parametrize("inline", [True, False])
def test_rows_of_executors_keep_their_order_and_their_files(tmp_path: Path, inline: bool) -> None:
    run = Run(tmp_path)
    sent = pieces(tmp_path, [1, 2], [3], inline=inline)
    run.output.write_encoded(sent)
    run.write(4)
    for path in {piece.path for piece in sent.pieces if piece.path}:
        path.unlink()  # as the placement does
    assert run.output.commit()["rows"] == 4
    assert run.planned() == [(0, [1, 2, 3, 4])]


@pytest.mark.parametrize("inline", [True, False])
def test_rows_of_a_planned_step_are_left_out_of_what_executors_encode(tmp_path: Path, inline: bool) -> None:
    first = Run(tmp_path)
    first.write(1, 2, 3)
    first.output.commit()
    again = Run(tmp_path)
    again.output.write_encoded(pieces(tmp_path, [1], [2, 3, 4], [5], inline=inline))
    again.output.commit()
    assert again.planned() == [(0, [1, 2, 3]), (1, [4, 5])]


def test_rows_that_a_killed_run_has_not_planned_are_deleted(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.write(1)
    first.output.commit()
    first.output.write_encoded(pieces(tmp_path, [2]))
    left = {path.name for path in first.folder.path.glob("*.part")}
    assert len(left) == 1
    again = Run(tmp_path)
    assert not left & {path.name for path in again.folder.path.iterdir()}
    assert again.planned() == [(0, [1])]


def test_a_changed_query_leaves_nothing_out_for_the_steps_of_the_old_one(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.write(1, 2)
    first.output.commit()
    changed = Run(tmp_path)
    changed.output.continue_after_held_rows()
    changed.output.commit()
    changed.write(10, 11)
    changed.output.commit()
    assert changed.planned() == [(0, [1, 2]), (1, [10, 11])]


def test_an_evaluation_does_not_get_far_ahead_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.spark.streaming.steps._MOST_WAITING_STEPS", 2)
    run = Run(tmp_path)
    for number in range(2):
        assert not run.delivery.is_full()
        run.write(number)
        run.output.commit()
    assert run.delivery.is_full()
    run.folder.note_taken(1)
    assert not run.delivery.is_full()


def test_plans_of_another_journal_are_refused(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.write(1)
    first.output.commit()
    with pytest.raises(OutputError, match="choose another checkpoint location"):
        Run(tmp_path, journal="another")


def test_plans_that_are_missing_or_damaged_are_noticed(tmp_path: Path) -> None:
    first = Run(tmp_path)
    for number in range(3):
        first.write(number)
        mark = first.output.commit()
    newest = first.folder.plan_path(2)
    content = newest.read_text()
    newest.write_text(json.dumps({"rows": 1}))
    with pytest.raises(DamagedStateError) as caught:
        Run(tmp_path, mark)
    assert str(caught.value).startswith(f"{newest} is damaged: 'parts'; restore the checkpoint as a whole")
    assert str(caught.value).count("is damaged") == 1
    newest.unlink()
    with pytest.raises(DamagedStateError, match="the journal has 3 steps, and 2 are there"):
        Run(tmp_path, mark)
    newest.write_text(content)
    first.folder.plan_path(1).unlink()
    with pytest.raises(DamagedStateError, match="the plan of step 1 is missing"):
        Run(tmp_path, mark)


def test_an_output_that_nobody_wants_counts_its_rows(tmp_path: Path) -> None:
    opening = OutputOpening(Identity("job", "Out", "j"), None, None, False, tmp_path)
    output = StepSection(delivery=StepDelivery()).open_at(opening)
    output.write(result_columns({"n": [1, 2]}))
    output.write_encoded(pieces(tmp_path, [1, 2, 3]))
    mark = output.commit()
    assert mark["rows"] == 5
    wanted = Run(tmp_path, mark)
    wanted.write(6)
    wanted.output.commit()
    assert wanted.planned() == [(0, [6])]
