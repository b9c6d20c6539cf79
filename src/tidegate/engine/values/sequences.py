"""Sequences: rows arranged key by key, in the order of time within each.

Rows arrive sorted by time. A stable sort by key keeps that order inside each key, so that the rows of one key stand at
neighbouring places, and a stretch of time of one key is a range of places.

Where each substream has a watermark of its own, rows arrive sorted by time inside each key alone; that is enough, but
what is sought by time among all rows is then sought among their ranks by time (`by_time`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.engine.values.vectors import BoolArray, Int64Array

_RADIX_SORTED = 2**16


@dataclass(frozen=True, slots=True)
class Sequences:
    """n rows, one sequence for each key.

    Attributes:
        rows: int64[n], the row at each place.
        keys: int64[n], ascending: the key at each place.
        first: bool[n], whether the place is the first of its sequence.
    """

    rows: Int64Array
    keys: Int64Array
    first: BoolArray

    @classmethod
    def of(cls, keys: Int64Array, count: int) -> Sequences:
        """Arrange rows by their keys, each 0 to ``count`` − 1. Rows with a negative key are in no sequence."""
        if count == 1 and not (len(keys) and keys.min() < 0):
            rows = np.arange(len(keys))
        else:
            # numpy sorts numbers of 16 bits by radix, ten times as fast as wider ones.
            narrow = keys if count >= _RADIX_SORTED else (keys + 1).astype(np.uint16)
            rows = np.argsort(narrow, kind="stable")
            rows = rows[int(np.count_nonzero(keys < 0)) :]
        by_place = keys[rows]
        first = np.ones(len(rows), dtype=np.bool_)
        first[1:] = by_place[1:] != by_place[:-1]
        return cls(rows, by_place, first)

    def __len__(self) -> int:
        return len(self.rows)

    def starts(self) -> Int64Array:
        """Return int64[n]: where the sequence of each place starts."""
        return np.maximum.accumulate(np.where(self.first, np.arange(len(self)), 0))

    def last(self) -> BoolArray:
        """Return bool[n]: whether the place is the last of its sequence."""
        last = np.ones(len(self), dtype=np.bool_)
        last[:-1] = self.first[1:]
        return last

    def by_row(self, by_place: Int64Array) -> Int64Array:
        """Put numbers of places into the order of rows; every row must be in a sequence."""
        by_row = np.empty_like(by_place)
        by_row[self.rows] = by_place
        return by_row

    def by_time(self, times: Int64Array) -> tuple[Int64Array, Sequences]:
        """Return the times of all rows, ascending, and the same sequences over ranks by time instead of rows."""
        if len(times) < 2 or bool((times[1:] >= times[:-1]).all()):
            return times, self
        order = np.argsort(times, kind="stable")
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        return times[order], Sequences(ranks[self.rows], self.keys, self.first)

    def find(self, keys: Int64Array, rows: Int64Array) -> Int64Array:
        """int64[q]: the place of the first row of sequence ``keys[i]`` that is not before row ``rows[i]``; where there
        is none, the place after the sequence's last.

        Quickest when the queries are ascending by key and row.
        """
        stride = 1 + max(int(self.rows.max(initial=-1)), int(rows.max(initial=0)))
        return np.searchsorted(self.keys * stride + self.rows, keys * stride + rows)


def stretches(lengths: Int64Array, most: int) -> list[tuple[int, int]]:
    """Cut items into stretches [begin, end) whose lengths add up to at most ``most``, or of one item."""
    total = np.cumsum(lengths)
    found: list[tuple[int, int]] = []
    begin = 0
    while begin < len(total):
        done = int(total[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(total, done + most, side="right")))
        found.append((begin, end))
        begin = end
    return found
