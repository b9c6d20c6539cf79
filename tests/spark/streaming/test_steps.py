"""Steps are handed over with the same rows under the same number, wherever a run ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job.rows import result_columns
from tidegate.connectors.model.encoded_rows import EncodedRows, Piece
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.state_file import DamagedStateError
from tidegate.connectors.outputs import Identity, OutputOpening
from tidegate.spark.streaming.parts import Part, encoded
from tidegate.spark.streaming.steps import Delivery, Handed, StepOutput, StepSection


class Killed(Exception):
    """Stands for the end of the process."""


class Numbers:
    """A table of one column, which is known from the beginning."""

    def __init__(self) -> None:
        self.as_table = self.of

    def of(self, rows: Any) -> pa.Table:
        return pa.table({"n": pa.array(rows.columns[0].to_list(), pa.int64())})


class Run:
    """An output, and what it hands over."""

    def __init__(self, folder: Path, mark: dict[str, Any] | None = None, journal: str = "j") -> None:
        self.steps: list[tuple[int, list[int]]] = []
        self.dies: str = ""
        delivery = Delivery(Numbers(), self.hand_over, Handed())
        self.handed = delivery.handed
        opening = OutputOpening(Identity("job", "Out", journal), mark, None, False, folder)
        self.output: StepOutput = StepSection(delivery=delivery).open_at(opening)

    def hand_over(self, parts: Sequence[Part], step: int) -> None:
        if self.dies == "before":
            raise Killed
        self.steps.append((step, [n for part in parts for n in part.read()["n"].to_pylist()]))
        if self.dies == "after":
            raise Killed

    def write(self, *numbers: int) -> None:
        self.output.write(result_columns({"n": list(numbers)}))


def pieces(folder: Path, *stretches: Sequence[int], inline: bool = False) -> EncodedRows:
    """Rows that an executor has encoded: in one file, or by themselves."""
    contents = [encoded(pa.table({"n": pa.array(one, pa.int64())})).to_pybytes() for one in stretches]
    count = sum(map(len, stretches))
    if inline:
        return EncodedRows("Out", count, 0, tuple(Piece(len(one), content=one) for one in contents))
    path = folder / f"executor-{len(list(folder.iterdir()))}"
    path.write_bytes(b"".join(contents))
    offsets = [sum(map(len, contents[:place])) for place in range(len(contents))]
    found = tuple(Piece(len(one), path, at) for one, at in zip(contents, offsets, strict=True))
    return EncodedRows("Out", count, 0, found)


def test_steps_count_from_0_and_empty_ones_do_not_count(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.output.commit()
    run.write(1, 2)
    run.write(3)
    mark = run.output.commit()
    assert run.output.commit() == mark == {"type": "spark", "rows": 3, "dropped": 0, "handed": 3, "steps": 1}
    run.write(4)
    assert run.output.commit()["steps"] == 2
    assert run.steps == [(0, [1, 2, 3]), (1, [4])]
    assert (run.handed.step, run.handed.rows) == (1, 4)


@pytest.mark.parametrize("dies", ["before", "after"])
def test_an_interrupted_step_is_handed_over_again_whatever_is_computed_now(tmp_path: Path, dies: str) -> None:
    first = Run(tmp_path)
    first.write(1)
    mark = first.output.commit()
    first.dies = dies
    first.write(2, 3, 4)
    with pytest.raises(Killed):
        first.output.commit()
    # The journal has the mark of step 0. The rows come in other batches this time.
    again = Run(tmp_path, mark)
    again.write(2, 3)
    again.write(4, 5)
    assert again.output.commit()["steps"] == 3
    assert again.steps == [(1, [2, 3, 4]), (2, [5])]


def test_a_step_that_the_journal_has_is_not_handed_over_again(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.write(1)
    mark = first.output.commit()
    again = Run(tmp_path, mark)
    again.write(2)
    again.output.commit()
    assert again.steps == [(1, [2])]


def test_an_interrupted_step_is_handed_over_without_new_rows(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.dies = "before"
    first.write(1, 2)
    with pytest.raises(Killed):
        first.output.commit()
    again = Run(tmp_path)
    mark = again.output.commit()
    assert again.steps == [(0, [1, 2])]
    # It ends before it has computed the rows of the step, and the journal knows that they were handed over.
    third = Run(tmp_path, mark)
    third.write(1)
    mark = third.output.commit()
    fourth = Run(tmp_path, mark)
    fourth.write(2, 3)
    fourth.output.commit()
    assert (third.steps, fourth.steps) == ([], [(1, [3])])


@pytest.mark.parametrize("inline", [True, False])
def test_rows_of_executors_keep_their_order_and_their_files(tmp_path: Path, inline: bool) -> None:
    run = Run(tmp_path)
    sent = pieces(tmp_path, [1, 2], [3], inline=inline)
    run.output.write_encoded(sent)
    run.write(4)
    for path in {piece.path for piece in sent.pieces if piece.path}:
        path.unlink()  # as the placement does
    assert run.output.commit()["rows"] == 4
    assert run.steps == [(0, [1, 2, 3, 4])]


@pytest.mark.parametrize("inline", [True, False])
def test_rows_of_an_interrupted_step_are_left_out_of_what_executors_encode(tmp_path: Path, inline: bool) -> None:
    first = Run(tmp_path)
    first.write(1, 2, 3)
    first.dies = "after"
    with pytest.raises(Killed):
        first.output.commit()
    again = Run(tmp_path)
    again.output.write_encoded(pieces(tmp_path, [1], [2, 3, 4], [5], inline=inline))
    again.output.commit()
    assert again.steps == [(0, [1, 2, 3]), (1, [4, 5])]


def test_files_of_earlier_steps_are_deleted(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for number in range(3):
        run.output.write_encoded(pieces(tmp_path, [number]))
        run.write(number)
        run.output.commit()
    assert len(list((tmp_path / "steps" / "out").iterdir())) == 3  # the plan, and two files of the last step


def test_an_interrupted_step_of_an_old_query_is_handed_over_and_nothing_is_left_out_for_it(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.dies = "before"
    first.write(1, 2)
    with pytest.raises(Killed):
        first.output.commit()
    changed = Run(tmp_path)
    changed.output.continue_after_held_rows()
    changed.output.commit()
    changed.write(10, 11)
    changed.output.commit()
    assert changed.steps == [(0, [1, 2]), (1, [10, 11])]


def test_a_plan_of_another_journal_is_refused(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.write(1)
    first.output.commit()
    with pytest.raises(OutputError, match="choose another checkpoint location"):
        Run(tmp_path, journal="another")


def test_a_planned_step_whose_rows_are_gone_is_damage(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.dies = "before"
    first.write(1)
    with pytest.raises(Killed):
        first.output.commit()
    next((tmp_path / "steps" / "out").glob("*.rows")).unlink()
    with pytest.raises(DamagedStateError, match="rows of step 0 are missing"):
        Run(tmp_path)


def test_a_changed_plan_is_damage(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.write(1)
    first.output.commit()
    path = tmp_path / "steps" / "out" / "plan.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "step": 5}))
    with pytest.raises(DamagedStateError):
        Run(tmp_path)


def test_a_part_that_ends_early_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(b"abc")
    with pytest.raises(OSError, match="has 3 bytes, expected 10"):
        Part(path, 0, 10).read()


def test_an_output_that_nobody_wants_counts_its_rows(tmp_path: Path) -> None:
    opening = OutputOpening(Identity("job", "Out", "j"), None, None, False, tmp_path)
    output = StepSection(delivery=Delivery()).open_at(opening)
    output.write(result_columns({"n": [1, 2]}))
    output.write_encoded(pieces(tmp_path, [1, 2, 3]))
    mark = output.commit()
    assert mark["rows"] == 5
    wanted = Run(tmp_path, mark)
    wanted.write(6)
    wanted.output.commit()
    assert wanted.steps == [(0, [6])]


@given(
    st.lists(st.sampled_from(["", "before", "after", "unjournalled"]), max_size=6),
    st.lists(st.integers(min_value=1, max_value=5), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_any_sequence_of_ends_gives_the_same_steps_under_the_same_numbers(
    tmp_path_factory: pytest.TempPathFactory, ends: list[str], cuts: list[int], chance: Any
) -> None:
    """A sink that keeps a step by its number has each row once, in order; a number never has two contents."""
    folder = tmp_path_factory.mktemp("steps")
    rows = list(range(sum(cuts)))
    mark: dict[str, Any] | None = None
    # How far the job is according to its journal.
    journalled = 0
    kept: dict[int, list[int]] = {}
    for end in [*ends, ""]:
        run = Run(folder, mark)
        at = journalled
        while at < len(rows):
            take = chance.randrange(1, 6)
            run.write(*rows[at : at + take])
            at += take
            run.dies = end if end != "unjournalled" and chance.random() < 0.5 else ""
            try:
                committed = run.output.commit()
            except Killed:
                break
            if end == "unjournalled" and chance.random() < 0.5:
                break
            mark, journalled = committed, at
        else:
            mark = run.output.commit()
        for step, content in run.steps:
            assert kept.setdefault(step, content) == content
    assert sorted(kept) == list(range(len(kept)))
    assert [n for step in sorted(kept) for n in kept[step]] == rows
