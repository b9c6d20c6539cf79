"""Sequences: rows arranged key by key, in the order of time within each.

Rows arrive sorted by time. A stable sort by key keeps that order inside each key, so that the rows of one key stand at
neighbouring places, and a stretch of time of one key is a range of places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.engine.values import BoolArray, Int64Array

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
        """int64[n]: where the sequence of each place starts."""
        return np.maximum.accumulate(np.where(self.first, np.arange(len(self)), 0))

    def last(self) -> BoolArray:
        """bool[n]: whether the place is the last of its sequence."""
        last = np.ones(len(self), dtype=np.bool_)
        last[:-1] = self.first[1:]
        return last

    def find(self, keys: Int64Array, rows: Int64Array) -> Int64Array:
        """int64[q]: the place of the first row of sequence ``keys[i]`` that is not before row ``rows[i]``; where there
        is none, the place after the sequence's last.

        Quickest when the queries are ascending by key and row.
        """
        stride = 1 + max(int(self.rows.max(initial=-1)), int(rows.max(initial=0)))
        return np.searchsorted(self.keys * stride + self.rows, keys * stride + rows)
