"""Random rows for the tests of the horizon: few keys, and times a few ticks apart, so that every boundary is met."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array
from tidegate.ordering.ticks import FIRST_TICKS, TICKS_PER_DAY

KEYS = 3
BASES = st.sampled_from([FIRST_TICKS, FIRST_TICKS + 1, 0, 7, 20_000 * TICKS_PER_DAY])


@dataclass(frozen=True)
class Rows:
    """n rows sorted by time; `passing` stands for WHEN."""

    times: list[int]
    keys: list[int]
    passing: list[bool]

    def __len__(self) -> int:
        return len(self.times)

    def since(self, ticks: int) -> tuple[Rows, int]:
        """The rows at or after a time, and how many were before."""
        cut = sum(time < ticks for time in self.times)
        return Rows(self.times[cut:], self.keys[cut:], self.passing[cut:]), cut

    def columns(self) -> tuple[Int64Array, Sequences, BoolArray]:
        """As operators take them."""
        keys = np.array(self.keys, dtype=np.int64)
        return np.array(self.times, dtype=np.int64), Sequences.of(keys, KEYS), np.array(self.passing, dtype=np.bool_)


@st.composite
def rows(draw: st.DrawFn, base: int, most: int = 14, span: int = 24) -> Rows:
    """Rows within `span` ticks from `base`."""
    times = sorted(base + offset for offset in draw(st.lists(st.integers(0, span), max_size=most)))
    count = len(times)
    keys = draw(st.lists(st.integers(0, KEYS - 1), min_size=count, max_size=count))
    passing = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return Rows(times, keys, passing)
