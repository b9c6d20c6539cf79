"""A divided payload has each row once, in the shard of its key; merging brings rows into their order again."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.expressions.frames import Frame
from tidegate.engine.program.partial import Partial
from tidegate.engine.sharding.payloads import divided, merged, together
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


def frame_of(*times: int) -> Frame:
    return Frame(np.array(times, dtype=np.int64))


def test_small_pieces_of_one_side_are_absorbed_together_and_large_ones_stay_in_their_place() -> None:
    side, other = (0, 0), (1, 0)
    large = frame_of(*range(2_000))
    given = [frame_of(1, 2), frame_of(3), large, frame_of(4), frame_of(5)]
    partials = [Partial(payloads={side: one}) for one in given]
    partials.insert(1, Partial(payloads={other: [None, frame_of(7)]}))
    partials.insert(4, Partial(payloads={other: [frame_of(8), frame_of(9)]}))
    found = [(at, payload) for one in together(partials) for at, payload in one.payloads.items()]
    assert [payload.times.tolist() for at, payload in found if at == side] == [
        [1, 2, 3],
        large.times.tolist(),
        [4, 5],
    ]
    ((first, second),) = [payload for at, payload in found if at == other]
    assert (first.times.tolist(), second.times.tolist()) == ([8], [7, 9])
