"""The journal: one commit, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.job.model.errors import JobError
from tidegate.job.run.journal import Commit, Journal

counts = st.dictionaries(st.text(max_size=8), st.integers(0, 2**62), max_size=3)


@given(
    commit=st.builds(
        Commit,
        query=st.text(max_size=16),
        released=st.integers(-(2**63), 2**63 - 1),
        positions=st.dictionaries(st.text(max_size=8), counts, max_size=3),
        counters=counts,
        outputs=counts,
        steps=st.integers(0, 10**9),
    )
)
def test_what_is_written_is_read(commit: Commit, tmp_path_factory: pytest.TempPathFactory) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal"))
    journal.write(commit)
    assert journal.read() == commit


def test_no_file_is_no_commit(tmp_path: Path) -> None:
    assert Journal(tmp_path).read() is None


def test_the_last_commit_counts_and_a_half_written_one_does_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(Commit("j", "q", 1))
    journal.write(Commit("j", "q", 2))
    (tmp_path / "journal.new").write_text('{"version": 2, "que', encoding="utf-8")
    assert journal.read() == Commit("j", "q", 2)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 99}', '{"version": 2}', '{"version": 2, "color": 3}'])
def test_a_damaged_journal_is_an_error_with_a_next_step(tmp_path: Path, content: str) -> None:
    (tmp_path / "journal.json").write_text(content, encoding="utf-8")
    with pytest.raises(JobError, match="start afresh"):
        Journal(tmp_path).read()
