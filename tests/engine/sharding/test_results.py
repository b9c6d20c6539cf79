"""Results of shards become one sequence, whatever columns they have."""

from __future__ import annotations

import numpy as np

from tidegate.engine import ResultRows, Vector
from tidegate.engine.sharding.payloads import merged_results


def rows(output: str, times: list[int], keys: list[str], names: tuple[str | None, ...] = ("k",)) -> ResultRows:
    stamps, key = np.array(times, dtype=np.int64), Vector.of(keys)
    return ResultRows(output, stamps, names, (key,) * len(names), (Vector.bigints(stamps), key))


def test_rows_are_in_the_order_of_their_merge_keys_and_outputs_in_that_of_the_query() -> None:
    found = merged_results(
        [rows("b", [3], ["x"]), rows("a", [1, 2], ["b", "a"]), rows("a", [1, 1, 3], ["a", "c", "a"])], ["a", "b"]
    )
    assert [one.output for one in found] == ["a", "b"]
    assert found[0].timestamps.tolist() == [1, 1, 1, 2, 3]
    assert found[0].columns[0].to_list() == ["a", "b", "c", "a", "a"]


def test_shards_may_have_found_other_columns() -> None:
    (found,) = merged_results([rows("a", [1], ["x"], ("k",)), rows("a", [2], ["y"], ("other",))], ["a"])
    assert found.to_dicts() == [{"k": "x"}, {"other": "y"}]
