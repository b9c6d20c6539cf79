"""Ticks that no restart reads: what a crash may leave of their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.job.inputs.past_ticks import PastTicks


def test_a_half_written_line_of_past_ticks_is_ignored_and_overwritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    past = PastTicks(tmp_path)
    past.add([("i", "0", 1, 10), ("i", "0", 2, 20)])
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut] + b"\0" * 3)
        kept = PastTicks(tmp_path).read()
        assert kept == [("i", "0", 1, 10)] * (cut >= whole.index(b"\n") + 1)
        PastTicks(tmp_path).add([("i", "1", 3, 30)])
        assert PastTicks(tmp_path).read() == [*kept, ("i", "1", 3, 30)]
    assert "bytes are not whole and are ignored" in caplog.text
