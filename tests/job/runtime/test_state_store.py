"""Versions of a state: loaded as they were saved, sharing what has not changed, deleted when nothing needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.job.runtime.state_store import StateStore


def column(size: int, value: int = 1) -> Any:
    return np.full(size, value, dtype=np.int64)


def written(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.chunk"))


def test_a_state_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    state = {"big": column(10_000, 7), "small": column(3), "text": ["a", None]}
    StateStore(tmp_path).save("0-0", 1, state, None)
    loaded = StateStore(tmp_path).load("0-0", 1).value
    assert (loaded["big"] == state["big"]).all()
    assert loaded["small"].tolist() == [1, 1, 1]
    assert loaded["text"] == ["a", None]


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    stored = store.save("0-0", 1, [column(100_000)], None)
    first = written(tmp_path)
    stored = store.save("0-0", 2, [*stored.value, column(1_000)], stored)
    assert 0 < written(tmp_path) - first < 20_000
    stored = store.save("0-0", 3, [stored.value[0][500:], stored.value[1]], stored)
    assert written(tmp_path) - first < 20_000
    assert [len(each) for each in stored.value] == [99_500, 1_000]


def test_old_versions_and_chunks_are_deleted_and_the_one_before_is_kept(tmp_path: Path) -> None:
    store, stored = StateStore(tmp_path), None
    for version in range(1, 6):
        stored = store.save("0-0", version, [column(10_000, version)], stored)
    assert store.load("0-0", 4).value[0][0] == 4
    with pytest.raises(FileNotFoundError):
        store.load("0-0", 3)
    assert written(tmp_path) == 2 * 80_000


def test_a_chunk_of_which_little_is_used_is_written_anew(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    stored = store.save("0-0", 1, [column(100_000), column(1_000)], None)
    for version in (2, 3):
        stored = store.save("0-0", version, stored.value[1:] if version == 2 else stored.value, stored)
    assert written(tmp_path) < 20_000


def test_a_mapped_state_cannot_be_changed_in_place(tmp_path: Path) -> None:
    loaded = StateStore(tmp_path).save("0-0", 1, [column(10_000)], None).value
    with pytest.raises(ValueError, match="read-only"):
        loaded[0][0] = 5


def test_states_of_other_names_are_left_alone(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.save("0-1", 1, [column(10_000)], None)
    stored = store.save("0-10", 1, [column(10_000)], None)
    store.save("0-10", 2, [column(10_000)], stored)
    assert len(store.load("0-1", 1).value[0]) == 10_000


def test_a_version_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    stored = store.save("0-0", 1, [column(10_000)], None)
    # Another attempt at the same step has written its chunk and died.
    (tmp_path / "0-0.2.other.chunk").write_bytes(b"half")
    assert store.save("0-0", 2, [column(10_000, 2)], stored).value[0][0] == 2


def test_a_state_of_another_store_is_taken_over_under_a_number_of_its_own(tmp_path: Path) -> None:
    own, other = StateStore(tmp_path / "own"), StateStore(tmp_path / "other")
    column = np.arange(10_000)
    own.save("0-1", 6, {"old": column}, None)
    other.save("0-1", 2, {"new": column + 1}, None)
    own.adopt(other, "0-1", 2, 7)
    assert own.load("0-1", 7).value["new"].tolist() == (column + 1).tolist()
    assert not own.has("0-1", 6)
    assert not other.has("0-1", 2)
    # An attempt that is repeated finds that it has been done.
    own.adopt(other, "0-1", 2, 7)
    assert own.has("0-1", 7)
    with pytest.raises(FileNotFoundError):
        own.adopt(other, "0-2", 2, 7)
    own.forget("0-1")
    assert not [*(tmp_path / "own").iterdir()]
