"""The tuning picture is SVG, has a line for each late tolerance, and marks the goal and what is in force."""

from xml.etree import ElementTree

import numpy as np
import pytest

from tidegate.job.analysis.tuning_picture import tuning_svg
from tidegate.ordering import TICKS_PER_SECOND, tune

SVG = "{http://www.w3.org/2000/svg}"


def test_lines_ring_and_goal() -> None:
    arrival = np.arange(0, 400 * TICKS_PER_SECOND, TICKS_PER_SECOND, dtype=np.int64)
    time = arrival - np.tile(np.array([0, 3, 40, 1], dtype=np.int64), 100) * TICKS_PER_SECOND
    lates, orders = [0, 5, 60], [0, 10, 60]
    grid = [
        tune(time, arrival, [(late * TICKS_PER_SECOND, order * TICKS_PER_SECOND) for order in orders]) for late in lates
    ]
    text = tuning_svg(grid, title="a < b", subtitle="400 events", keep=0.99, current=grid[1][1])
    root = ElementTree.fromstring(text)
    lines = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}path") is not None]
    assert len(lines) == 2 * len(lates)
    rings = [circle for circle in root.iter(f"{SVG}circle") if circle.get("fill") == "none"]
    assert len(rings) == 2
    said = "".join(root.itertext())
    assert "a < b" in said
    assert "99% of all events untouched" in said


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        tuning_svg([], title="", subtitle="", keep=1)
