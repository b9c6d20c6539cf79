"""The journal: one commit, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.model.errors import JobError
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
    journal.write_commit(commit)
    assert journal.read_commit() == commit


def test_no_file_is_no_commit(tmp_path: Path) -> None:
    assert Journal(tmp_path).read_commit() is None


def test_the_last_commit_counts_and_a_half_written_one_does_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write_commit(Commit("j", "q", 1))
    journal.write_commit(Commit("j", "q", 2))
    (tmp_path / ".journal.json.new").write_text('{"version": 2, "que', encoding="utf-8")
    assert journal.read_commit() == Commit("j", "q", 2)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        "\xff",
        '{"version": 99}',
        '{"version": 3, "identity": "j"}',
        '{"version": 2}',
        '{"version": 2, "color": 3}',
        '{"version": 2, "identity": "j", "query": "q", "released": "7"}',
    ],
)
def test_a_damaged_journal_is_an_error_with_a_next_step(tmp_path: Path, content: str) -> None:
    (tmp_path / "journal.json").write_text(content, encoding="latin-1")
    with pytest.raises(JobError, match=r"journal\.json .*recomputes all results"):
        Journal(tmp_path).read_commit()


COMMIT = Commit(
    "j",
    "q",
    1_700,
    positions={"i": {"0": 25}},
    counters={"Input Events": 25},
    outputs={"out": {"type": "file", "rows": 12}},
)


def test_any_changed_digit_is_found(tmp_path: Path) -> None:
    """A journal with another `released` or number of rows is a journal all the same, and gives other results."""
    Journal(tmp_path).write_commit(COMMIT)
    path = tmp_path / "journal.json"
    text = path.read_text(encoding="utf-8")
    places = [place for place, character in enumerate(text) if character.isdigit()]
    assert len(places) > 15
    for place in places:
        other = str((int(text[place]) + 1) % 10)
        path.write_text(text[:place] + other + text[place + 1 :], encoding="utf-8")
        with pytest.raises(JobError, match=r"journal.json is damaged: .*; restore the state folder .* from a backup"):
            Journal(tmp_path).read_commit()


def test_a_journal_without_a_checksum_is_not_one_of_today(tmp_path: Path) -> None:
    Journal(tmp_path).write_commit(COMMIT)
    path = tmp_path / "journal.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["checksum"]
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(JobError, match="it has no checksum"):
        Journal(tmp_path).read_commit()
