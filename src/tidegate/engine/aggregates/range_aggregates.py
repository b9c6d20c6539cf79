"""Aggregates over ranges of rows, which may overlap: what sliding windows and running aggregates need.

Theory. What adds up (counts, exact sums, moments) is a difference of two running totals; totals are exact, so that the
difference is, and they may wrap around, because differences of int64 are right modulo 2^64. To keep a range's true
total far from 2^63 whatever its length, limbs are totalled in two halves of 20 bits and more.

The least of a range is the lesser of the least of two stretches of a power of two rows that cover it (a sparse table:
Bender and Farach-Colton, "The LCA Problem Revisited", 2000); only one level of the table is held at a time. MIN, MAX
and TopOne are the least by rank. All else is folded over the rows of each range, a bounded number of rows at a time.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.aggregates.aggregation import Aggregation, Evaluated, Kept, take_rows
from tidegate.engine.aggregates.states import Bags, Counts, Extremes, Moments, State, Sums
from tidegate.engine.values.exact_sums import LIMB_BITS, ExactSums
from tidegate.engine.values.grouping import ranges, sort_keys, sorted_rows
from tidegate.engine.values.sequences import stretches
from tidegate.engine.values.vectors import Int64Array, Kind, Vector

_HALF_BITS = LIMB_BITS // 2
_MOST_ROWS = 2**20


def aggregate_ranges(
    aggregation: Aggregation, rows: Evaluated, lows: Int64Array, highs: Int64Array
) -> tuple[Vector, ...]:
    """The value of each aggregate over the rows [low, high) of each range."""
    if all(_is_quick(kept) for kept in aggregation.kept):
        return aggregation.finish([_quickly(kept, rows, lows, highs) for kept in aggregation.kept])
    parts = []
    for begin, end in stretches(highs - lows, _MOST_ROWS) or [(0, 0)]:
        some_lows = lows[begin:end]
        lengths = highs[begin:end] - some_lows
        codes = np.repeat(np.arange(end - begin), lengths)
        inside = take_rows(rows, ranges(some_lows, lengths))
        parts.append(aggregation.finish(aggregation.fold(codes, end - begin, inside)))
    return tuple(Vector.concat(column) for column in zip(*parts, strict=True))


def _is_quick(kept: Kept) -> bool:
    return kept.kind in ("counts", "sums", "moments", "smallest", "largest") or (
        kept.kind == "ranked" and kept.limit == 1
    )


def _quickly(kept: Kept, rows: Evaluated, lows: Int64Array, highs: Int64Array) -> State:
    values = None if kept.value is None else rows.vectors[kept.value, kept.numeric]
    if kept.kind == "counts":
        if values is None:
            return Counts(highs - lows)
        return Counts(_totals((values.kinds != Kind.NULL).astype(np.int64), lows, highs))
    assert values is not None
    match kept.kind:
        case "sums":
            return _sums(Sums.fold(np.arange(len(values)), len(values), values), lows, highs)
        case "moments":
            moments = Moments.fold(np.arange(len(values)), len(values), values)
            return Moments(_sums(moments.sums, lows, highs), _exact(moments.squares, lows, highs))
        case "ranked":
            columns = [rows.vectors[order.expr, False] for order in kept.order_by]
            keys = [
                ~sort_keys(column) if order.descending else sort_keys(column)
                for column, order in zip(columns, kept.order_by, strict=True)
            ]
            best = least(_ranks(sorted_rows([*keys, *rows.ordering])), lows, highs)
            there = best >= 0
            starts = np.concatenate([[0], np.cumsum(there)])
            return Bags(starts, values.take(best[there]), np.ones(int(starts[-1]), dtype=np.int64))
        case _:
            return _extremes(values, lows, highs, largest=kept.kind == "largest")


def merge_ranges(states: State, lows: Int64Array, highs: Int64Array) -> State:
    """The states [low, high) of each range merged into one."""
    match states:
        case Counts():
            return Counts(_totals(states.counts, lows, highs))
        case Sums():
            return _sums(states, lows, highs)
        case Moments():
            return Moments(_sums(states.sums, lows, highs), _exact(states.squares, lows, highs))
        case Extremes():
            return _extremes(states.values, lows, highs, largest=states.largest)
    parts = []
    for begin, end in stretches(highs - lows, _MOST_ROWS) or [(0, 0)]:
        lengths = highs[begin:end] - lows[begin:end]
        codes = np.repeat(np.arange(end - begin), lengths)
        parts.append(states.take(ranges(lows[begin:end], lengths)).merge(codes, end - begin))
    return type(states).concat(parts)


def _sums(each: Sums, lows: Int64Array, highs: Int64Array) -> Sums:
    return Sums(_exact(each.sums, lows, highs), _totals(each.bigints, lows, highs), _totals(each.floats, lows, highs))


def _exact(each: ExactSums, lows: Int64Array, highs: Int64Array) -> ExactSums:
    result = ExactSums(len(lows))
    for limb, values in each.limbs.items():
        lower = _totals(values & (2**_HALF_BITS - 1), lows, highs)
        upper = _totals(values >> _HALF_BITS, lows, highs)
        for number, part in (
            (limb, lower + ((upper & (2**_HALF_BITS - 1)) << _HALF_BITS)),
            (limb + 1, upper >> _HALF_BITS),
        ):
            if part.any():
                result.limbs[number] = result.limbs[number] + part if number in result.limbs else part
    if each.highs is not None and each.lows is not None:
        result.highs, result.lows = _totals(each.highs, lows, highs), _totals(each.lows, lows, highs)
    return result


def _totals(values: Int64Array, lows: Int64Array, highs: Int64Array) -> Int64Array:
    running = np.concatenate([[0], np.cumsum(values)])
    totals: Int64Array = running[highs] - running[lows]
    return totals


def _extremes(values: Vector, lows: Int64Array, highs: Int64Array, *, largest: bool) -> Extremes:
    present = values.kinds != Kind.NULL
    before = np.concatenate([[0], np.cumsum(present)])
    values = values.where(present)
    keys = sort_keys(values)
    best = least(_ranks(sorted_rows([~keys if largest else keys])), before[lows], before[highs])
    return Extremes(Vector.concat([values, Vector.nulls(1)]).take(np.where(best < 0, len(values), best)), largest)


def _ranks(order: Int64Array) -> Int64Array:
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks


def least(ranks: Int64Array, lows: Int64Array, highs: Int64Array) -> Int64Array:
    """int64[w]: the place of the lowest rank in each range [low, high); −1 where it is empty.

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
