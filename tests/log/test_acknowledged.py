"""The floor below which events were deleted on request."""

import threading
from pathlib import Path

import pytest

from tidegate.log import acknowledged
from tidegate.log.acknowledged import Floor


def test_of_two_that_raise_the_floor_at_once_the_higher_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = Floor.read(tmp_path)
    lower = threading.Thread(target=floor.rise, args=(5,))
    write = acknowledged.write_checked
    overlapping = threading.Event()

    def slow_write(path: Path, document: dict[str, object]) -> None:
        if threading.current_thread() is lower:
            overlapping.set()
        else:
            lower.start()
            overlapping.wait(0.2)
        write(path, document)

    monkeypatch.setattr(acknowledged, "write_checked", slow_write)
    floor.rise(10)
    lower.join()
    assert not overlapping.is_set()
    assert floor.sequence_number == Floor.read(tmp_path).sequence_number == 10
