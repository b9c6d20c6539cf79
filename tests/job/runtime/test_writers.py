"""Results that several writers have merged and encoded are the bytes that one place would have written."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.model.encoded_rows import EncodedRows
from tidegate.engine import ResultRows, Vector
from tidegate.engine.sharding.payloads import merged_results
from tidegate.job.runtime import writers
from tidegate.job.runtime.writers import STRETCHES, Stretches, WriterRows, in_order, shares, write_shares


def rows(output: str, times: list[int], shard: int) -> ResultRows:
    stamps = np.array(sorted(times), dtype=np.int64)
    key = Vector.of([f"{shard}-{number}" for number in range(len(times))])
    return ResultRows(output, stamps, ("t", "k"), (Vector.bigints(stamps), key), (Vector.bigints(stamps), key))


def content(encoded: EncodedRows) -> bytes:
    return b"".join(
        piece.content if piece.path is None else piece.path.read_bytes()[piece.offset : piece.offset + piece.length]
        for piece in encoded.pieces
    )


@given(
    st.lists(st.lists(st.integers(0, 1000), min_size=1, max_size=30), min_size=1, max_size=4),
    st.integers(1, 5),
    st.tuples(st.integers(-50, 1100), st.integers(-50, 1100)),
    st.booleans(),
)
def test_any_number_of_writers_and_any_stretches_give_the_same_bytes(
    by_shard: list[list[int]], count: int, ends: tuple[int, int], inline: bool
) -> None:
    runs = [rows("o", times, shard) for shard, times in enumerate(by_shard)]
    (whole,) = merged_results(runs, ["o"])
    stretches = Stretches.between(*ends)
    sent: list[list[WriterRows]] = [shares([run], stretches, count) for run in runs]
    with tempfile.TemporaryDirectory() as folder:
        before, writers.INLINE_BYTES = writers.INLINE_BYTES, 2**20 if inline else 0
        try:
            written = [
                write_shares([each[writer] for each in reversed(sent)], {"o": ResultRows.to_json_lines}, Path(folder))
                for writer in range(count)
            ]
        finally:
            writers.INLINE_BYTES = before
        (found,) = in_order(reversed(written), ["o"])
        assert content(found) == whole.to_json_lines()
        assert (len(found), found.latest) == (len(whole), max(map(max, by_shard)))


def test_stretches_are_even_and_ascend() -> None:
    numbers = Stretches.between(0, 6400).numbers(np.arange(-100, 6500))
    assert (np.diff(numbers) >= 0).all()
    assert (numbers.min(), numbers.max()) == (0, STRETCHES - 1)
    assert Stretches.between(5, 5).numbers(np.arange(3)).tolist() == [0, 0, 0]
