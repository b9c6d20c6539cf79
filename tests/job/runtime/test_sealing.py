"""Copies of states: only what is new is copied, and only what was copied is restored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.job.runtime.sealing import SealedState, SealFolder, SealUnusable
from tidegate.job.runtime.state_store import StateStore


def column(size: int, value: int = 1) -> Any:
    return np.full(size, value, dtype=np.int64)


def sealed_twice(folder: Path) -> tuple[SealedState, SealFolder, list[set[str]]]:
    """Two seals of a state that has grown in between, and the copies after each."""
    store, copies = StateStore(folder / "local"), []
    stored = store.save("0-0", 1, [column(100_000)], None)
    state = SealedState(1, 5, 1, {"0-0": SealFolder(folder / "sealed").seal(store, "0-0", 1)})
    copies.append({path.name for path in (folder / "sealed").iterdir()})
    store.save("0-0", 2, [*stored.value, column(1_000, 2)], stored)
    shared = SealFolder(folder / "sealed", state.known)
    state = SealedState(1, 5, 2, {"0-0": shared.seal(store, "0-0", 2)})
    copies.append({path.name for path in (folder / "sealed").iterdir()})
    return state, shared, copies


def test_a_chunk_is_copied_once(tmp_path: Path) -> None:
    state, shared, (first, second) = sealed_twice(tmp_path)
    added = second - first
    assert sum((tmp_path / "sealed" / name).stat().st_size for name in added) < 20_000
    assert len(added) == 2
    shared.keep_only(state.known.values(), [])
    # What only the first one needed is gone: its tree.
    assert len(first - {path.name for path in (tmp_path / "sealed").iterdir()}) == 1


def test_a_state_is_restored_on_another_disk_and_its_description_survives_json(tmp_path: Path) -> None:
    state, shared, _ = sealed_twice(tmp_path)
    again = SealedState.from_json(state.as_json())
    assert again == state
    elsewhere = StateStore(tmp_path / "elsewhere")
    shared.restore(elsewhere, "0-0", again)
    assert [int(each.sum()) for each in elsewhere.load("0-0", 2).value] == [100_000, 2_000]


@pytest.mark.parametrize("kind", ["chunk", "version"])
@pytest.mark.parametrize("damage", ["missing", "cut", "changed"])
def test_a_damaged_copy_is_refused(tmp_path: Path, kind: str, damage: str) -> None:
    state, shared, _ = sealed_twice(tmp_path)
    file = next(one for one in state.known.values() if kind in one.name)
    path = tmp_path / "sealed" / file.copy
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    else:
        content[-1] ^= 1
        path.write_bytes(content[:-1] if damage == "cut" else content)
    with pytest.raises(SealUnusable):
        shared.restore(StateStore(tmp_path / "elsewhere"), "0-0", state)


def test_a_value_is_read_as_it_was_written_or_refused(tmp_path: Path) -> None:
    shared = SealFolder(tmp_path)
    file = shared.add({"a": 1})
    assert shared.value_of(file) == {"a": 1}
    (tmp_path / file.copy).write_bytes(b"x" * file.bytes)
    with pytest.raises(SealUnusable, match="is damaged"):
        shared.value_of(file)
