"""Tables of panes: what a window keeps of rows, and what tasks send of them.

Rows become a table with a line for each pane and key; tables join into one by merging the lines of the same pane and
key, in any order, to the same result. Tables wait in a row of chunks, each at least twice as large as the next, so
that a line is merged a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate.engine.aggregates.states.state import State, concat_states
from tidegate.engine.substreams.waiting import Part, Waiting
from tidegate.engine.substreams.watermarks import Watermark
from tidegate.engine.values.grouping import group
from tidegate.engine.values.vectors import Int64Array, Vector


@dataclass(slots=True)
class PaneTable:
    """g lines, each of another pane and key once merged.

    Attributes:
        ends, keys, states: of each line the pane's end, the keys, what is kept.
        substreams: of each line, where results leave by those.
        keyed: lines of one substream have the same keys.
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
        """The panes' ends."""
        return self.ends

    def take(self, lines: Int64Array) -> PaneTable:
        """Some of the lines."""
        return PaneTable(
            self.ends[lines],
            tuple(key.take(lines) for key in self.keys),
            tuple(state.take(lines) for state in self.states),
            None if self.substreams is None else self.substreams[lines],
            self.keyed,
        )

    def of_substreams(self, substreams: Int64Array | None) -> PaneTable:
        """The same lines with other numbers for their substreams."""
        return replace(self, substreams=substreams)

    @classmethod
    def concat(cls, tables: Sequence[PaneTable]) -> PaneTable:
        """The lines of several tables, not merged."""
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
        """Lines of the same pane and key made one."""
        numbers = (self.ends,) if self.substreams is None else (self.ends, self.substreams)
        groups = group(len(self), () if self.keyed else self.keys, numbers)
        if groups.count == len(self):
            return self
        return PaneTable(
            self.ends[groups.firsts],
            tuple(key.take(groups.firsts) for key in self.keys),
            tuple(state.merge(groups.codes, groups.count) for state in self.states),
            None if self.substreams is None else self.substreams[groups.firsts],
            self.keyed,
        )


@dataclass(slots=True)
class Chunks:
    """Tables that wait for the watermark."""

    tables: Waiting[PaneTable] = field(default_factory=Waiting)

    def add(self, table: PaneTable) -> None:
        """Take up a table."""
        parts = self.tables.parts
        parts.append(Part(table))
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            last, before = parts.pop(), parts.pop()
            parts.append(Part(PaneTable.concat([before.rest(), last.rest()]).merged()))

    def take_before(self, watermark: Watermark) -> PaneTable | None:
        """Give out all lines of panes that end before the watermark, merged."""
        table = self.tables.take_before(watermark)
        return None if table is None else table.merged()


def concat_substreams(parts: Sequence[Int64Array | None]) -> Int64Array | None:
    """The substreams of several parts together; None where there are none."""
    numbers = [part for part in parts if part is not None]
    return np.concatenate(numbers) if numbers else None
