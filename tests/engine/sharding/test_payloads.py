"""A divided payload has each row once, in the shard of its key; merging brings rows into their order again."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.expressions.frames import Frame
from tidegate.engine.sharding.payloads import divided, merged
from tidegate.engine.values.vectors import Vector

ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["a", "b", "\u00c4", "", None, "zz"])), unique=True, max_size=30
)


@given(ROWS, st.integers(1, 5), st.randoms())
def test_divided_rows_merge_into_their_order(
    rows: list[tuple[int, str | None]], shards: int, dice: random.Random
) -> None:
    rows.sort(key=lambda row: (row[0], row[1] is not None, (row[1] or "").encode()))
    keys = Vector.of([key for _, key in rows])
    whole = Frame(np.array([time for time, _ in rows], dtype=np.int64), keys=(keys,), ties=(keys,))
    codes = np.array([dice.randrange(shards) for _ in rows], dtype=np.int64)
    pieces = [piece for piece in divided(whole, codes, shards) if piece is not None]
    assert sum(map(len, pieces)) == len(whole)
    if pieces:
        again = merged(list(reversed(pieces)))
        assert again.times.tolist() == whole.times.tolist()
        assert again.keys[0].to_list() == keys.to_list()
