"""Ranges of rows or groups that may overlap: totals by differences, and the least of each.

Theory. The total of a range is the difference of two running totals. These may wrap around, because differences of
int64 are right modulo 2^64. To keep the true total of a range far below 2^63 whatever its length, limbs are totalled in
two halves of 20 bits and more.

The least of a range is the lesser of the least of two stretches of a power of two rows that cover it (a sparse table:
Bender and Farach-Colton, "The LCA Problem Revisited", 2000, https://doi.org/10.1007/10719839_9); only one level of the
table is held at a time.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.values.exact_sums import LIMB_BITS, ExactSums
from tidegate.engine.values.vectors import BoolArray, Int64Array

_HALF_BITS = LIMB_BITS // 2


def totals(values: Int64Array, lows: Int64Array, highs: Int64Array) -> Int64Array:
    """Return int64[w]: the total of the values [low, high) of each range."""
    running = np.concatenate([[0], np.cumsum(values)])
    result: Int64Array = running[highs] - running[lows]
    return result


def exact_totals(each: ExactSums, lows: Int64Array, highs: Int64Array) -> ExactSums:
    """Return the exact total of the sums [low, high) of each range."""
    result = ExactSums(len(lows))
    for limb, values in each.limbs.items():
        lower = totals(values & (2**_HALF_BITS - 1), lows, highs)
        upper = totals(values >> _HALF_BITS, lows, highs)
        for number, part in (
            (limb, lower + ((upper & (2**_HALF_BITS - 1)) << _HALF_BITS)),
            (limb + 1, upper >> _HALF_BITS),
        ):
            if part.any():
                result.limbs[number] = result.limbs[number] + part if number in result.limbs else part
    if each.highs is not None and each.lows is not None:
        result.highs, result.lows = totals(each.highs, lows, highs), totals(each.lows, lows, highs)
    return result


def ranks_of(order: Int64Array) -> Int64Array:
    """Return int64[n]: the rank of each row, given the rows in order."""
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks


def least(ranks: Int64Array, lows: Int64Array, highs: Int64Array) -> Int64Array:
    """Return int64[w]: the place of the lowest rank in each range [low, high); −1 where it is empty.

    Args:
        ranks: int64[n], each of 0 to n − 1 once.
    """
    lengths = highs - lows
    levels = np.frexp(lengths)[1] - 1
    best = np.full(len(lows), -1, dtype=np.int64)
    table = ranks
    for level in range(int(levels.max(initial=-1)) + 1):
        width = 2**level
        asked = np.flatnonzero(levels == level)
        best[asked] = np.minimum(table[lows[asked]], table[highs[asked] - width])
        table = np.minimum(table[:-width], table[width:])
    place = np.empty(len(ranks) + 1, dtype=np.int64)
    place[ranks] = np.arange(len(ranks))
    place[-1] = -1
    return place[best]


def records(ids: Int64Array, ranks: Int64Array) -> BoolArray:
    """Return bool[n]: which ranks are higher than all earlier ones of the same key, where keys are contiguous."""
    span = int(ranks.max(initial=0)) + 2
    # Each key starts above the highest rank of the keys before it.
    sequence = np.cumsum(np.append(True, ids[1:] != ids[:-1])) if len(ids) else ids
    heights = ranks + 1 + sequence * span
    before = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(heights)[:-1]) if len(ids) else heights
    found: BoolArray = heights > np.maximum(before, sequence * span - 1)
    return found
