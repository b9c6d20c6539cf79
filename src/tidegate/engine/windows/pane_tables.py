"""Tables of panes: what tasks send of rows, and what a window holds of them.

Rows become a table with one line for each pane and key. Merging the lines of the same pane and key joins tables to one,
with the same result in any order. Waiting tables form chunks, each at least twice as large as the next, so that a line
is merged a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow.compute as pc

from tidegate.engine.aggregates.states.state import State, concat_states
from tidegate.engine.substreams.watermarks import Part, Waiting, Watermark
from tidegate.engine.values.grouping import Groups, group, spelled, unified
from tidegate.engine.values.vectors import Int64Array, Kind, Vector


def lines_of(length: int, keys: Sequence[Vector], numbers: Sequence[Int64Array], *, keyed: bool) -> Groups:
    """Group rows or lines by ``numbers`` and by how their keys are spelled.

    Args:
        keyed: whether rows of the same numbers have the same keys, if maybe spelled in several ways.
    """
    if keyed:
        groups = group(length, (), numbers)
        if all(_alike(key, groups) for key in keys):
            return groups
    return group(length, keys, numbers)


def _alike(key: Vector, groups: Groups) -> bool:
    """Return whether a key is spelled in the same way throughout each group."""
    if groups.count == len(key):
        return True
    if key.uniform is None or key.objects is not None:
        return False
    firsts = key.take(groups.firsts[groups.codes])
    if key.texts is not None:
        return bool(pc.all(pc.equal(key.texts, firsts.text_values())).as_py())
    numbers, first = (each.float_values() if key.uniform == Kind.FLOAT else each.int_values() for each in (key, firsts))
    return bool((numbers == first).all())


@dataclass(slots=True)
class PaneTable:
    """g lines; after merging, one for each pane and key.

    Attributes:
        ends, keys, states: the pane's end, the keys and the states of each line.
        substreams: the substream of each line, where results are emitted by substream.
        keyed: whether lines of the same substream have the same keys, if maybe spelled in several ways.
    """

    ends: Int64Array
    keys: tuple[Vector, ...]
    states: tuple[State, ...]
    substreams: Int64Array | None = None
    keyed: bool = False

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def times(self) -> Int64Array:
        """The ends of the panes."""
        return self.ends

    def take(self, lines: Int64Array) -> PaneTable:
        """Return some of the lines."""
        return PaneTable(
            self.ends[lines],
            tuple(key.take(lines) for key in self.keys),
            tuple(state.take(lines) for state in self.states),
            None if self.substreams is None else self.substreams[lines],
            self.keyed,
        )

    def of_substreams(self, substreams: Int64Array | None) -> PaneTable:
        """Return the same lines with other numbers for their substreams."""
        return replace(self, substreams=substreams)

    @classmethod
    def concat(cls, tables: Sequence[PaneTable]) -> PaneTable:
        """Return the lines of several tables, not merged."""
        if len(tables) == 1:
            return tables[0]
        first = tables[0]
        return cls(
            np.concatenate([table.ends for table in tables]),
            tuple(Vector.concat([table.keys[index] for table in tables]) for index in range(len(first.keys))),
            concat_states([table.states for table in tables]),
            concat_substreams([table.substreams for table in tables]),
            first.keyed,
        )

    def merged(self) -> PaneTable:
        """Return the table with lines of the same pane and key merged."""
        numbers = (self.ends,) if self.substreams is None else (self.ends, self.substreams)
        groups = lines_of(len(self), self.keys, numbers, keyed=self.keyed)
        return self if groups.count == len(self) else self._merged(groups)

    def with_one_spelling(self) -> PaneTable:
        """Return the table with lines of the same window and key merged, under the first of the key's spellings.

        Until a window is complete, each spelling of a key has lines of its own: which of them a window contains, and so
        which is the first, must not depend on what was merged before.
        """
        keys = [unified(key) for key in self.keys]
        if all(one is key for one, key in zip(keys, self.keys, strict=True)):
            return self
        groups = group(len(self), keys, (self.ends,) if self.substreams is None else (self.ends, self.substreams))
        return self if groups.count == len(self) else self._merged(groups)

    def _merged(self, groups: Groups) -> PaneTable:
        return PaneTable(
            self.ends[groups.firsts],
            tuple(spelled(key, groups) for key in self.keys),
            tuple(state.merge(groups.codes, groups.count) for state in self.states),
            None if self.substreams is None else self.substreams[groups.firsts],
            self.keyed,
        )


@dataclass(slots=True)
class Chunks:
    """Tables that wait for the watermark."""

    tables: Waiting[PaneTable] = field(default_factory=Waiting)

    def add(self, table: PaneTable) -> None:
        """Add a table."""
        parts = self.tables.parts
        parts.append(Part(table))
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            last, before = parts.pop(), parts.pop()
            parts.append(Part(PaneTable.concat([before.rest(), last.rest()]).merged()))

    def take_before(self, watermark: Watermark) -> PaneTable | None:
        """Remove and return all lines of panes that end before the watermark, merged."""
        table = self.tables.take_before(watermark)
        return None if table is None else table.merged()


def concat_substreams(parts: Sequence[Int64Array | None]) -> Int64Array | None:
    """Return the substreams of several parts, one after the other; None if there are none."""
    numbers = [part for part in parts if part is not None]
    return np.concatenate(numbers) if numbers else None
