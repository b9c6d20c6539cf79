"""Outputs: what lies beyond the committed mark is forgotten, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.job.errors import OutputError
from tidegate.job.outputs import LinesFile


def test_a_step_that_did_not_finish_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    output = LinesFile(path, None)
    output.write(b"one\n")
    mark = output.commit()
    output.write(b"half of tw")
    output.close()
    again = LinesFile(path, mark)
    again.write(b"two\n")
    again.commit()
    again.close()
    assert path.read_bytes() == b"one\ntwo\n"


def test_rows_of_another_run_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"precious\n")
    with pytest.raises(OutputError, match="no journal of this job knows of"):
        LinesFile(path, None)
    assert path.read_bytes() == b"precious\n"


def test_a_file_shorter_than_its_mark_has_lost_results(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"one\n")
    with pytest.raises(OutputError, match="the journal committed 10"):
        LinesFile(path, 10)


def test_a_folder_in_the_way_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write the output"):
        LinesFile(tmp_path, 0)
