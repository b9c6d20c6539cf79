"""Decodes formats whose contents are tables: CSV, Avro containers, Parquet.

Each body is a table of its own or, if the input is a file, a row of one (`TableBodies`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tidegate.engine.decoding.content import content_of
from tidegate.engine.decoding.decoded import NONE, Decoded, Path, Problem, Wanted, finished
from tidegate.engine.decoding.formats import BodyDecoder, Format, FormatKind, Unreadable
from tidegate.engine.decoding.limits import BatchBudget, ContentLimits
from tidegate.engine.decoding.tables import Table, TableBodies, records_vector
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind, Vector

Part = tuple[Table, Int64Array, Int64Array]
"""A table, and the event and index of each of its rows."""


class TableDecoder:
    """Decodes bodies each of which is a table, or is a row of one."""

    def __init__(self, wanted: Wanted, format_: Format, kind: TableKind) -> None:
        self._wanted = wanted
        self._format = format_
        self._kind = kind
        paths = [*wanted.paths, *((name,) for name, _ in wanted.declared or ())]
        self._paths = list({tuple(map(str.lower, path)): path for path in reversed(paths)}.values())[::-1]

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Return the rows of m bodies, and which bodies were rejected."""
        if isinstance(bodies, TableBodies):
            table = bodies.rows()
            try:
                return self._decoded([(table, table.numbers, np.zeros(len(table), dtype=np.int64))], problems_of(table))
            except Unreadable as error:
                # Damage to a column shows only when it is read; then no row of the file can be used.
                return self._decoded([], [(event, error.problem) for event in range(len(bodies))])
        parts: list[Part] = []
        rejected: list[tuple[int, Problem]] = []
        self._take(bodies, 0, parts, rejected, BatchBudget())
        return self._decoded(parts, rejected)

    def _take(
        self,
        bodies: Sequence[bytes],
        first: int,
        parts: list[Part],
        rejected: list[tuple[int, Problem]],
        budget: BatchBudget,
    ) -> None:
        """Add the rows of bodies, whose events are numbered from ``first``.

        CSV bodies are read together. If one of them prevents that, it is found by bisection.
        """
        if self._kind.joins_bodies and len(bodies) > 1:
            joined = self._kind.joined(bodies, self._format)
            if joined is not None:
                table, events, indices = joined
                budget.add(first, size=table.content_bytes, rows=len(table))
                parts.append((table, events + first, indices))
                return
            half = len(bodies) // 2
            self._take(bodies[:half], first, parts, rejected, budget)
            self._take(bodies[half:], first + half, parts, rejected, budget)
            return
        limits = self._format.limits
        for event, body in enumerate(bodies, start=first):
            try:
                content = content_of(body, self._format)
                budget.add(event, size=len(content))
                table = self._kind.table(content, self._format, limits.of_event())
                self._touch(table)
                budget.add(event, rows=table.total)
            except Unreadable as error:
                rejected.append((event, error.problem))
                continue
            except MemoryError:
                rejected.append((event, Problem.LIMIT_EXCEEDED))
                continue
            parts.append((table, np.full(len(table), event, dtype=np.int64), table.numbers))
            rejected += [(event, problem) for _, problem, _ in table.rejected]

    def _touch(self, table: Table) -> None:
        """Read the columns that will be wanted. Raises Unreadable if one is damaged."""
        for name in table.columns if self._wanted.record else self._paths:
            table.column(name if isinstance(name, str) else name[0])

    def _decoded(self, parts: Sequence[Part], rejected: list[tuple[int, Problem]]) -> Decoded:
        """Return the rows of consecutive tables, each with the event and index of its rows."""
        events = np.concatenate([NONE, *(events for _, events, _ in parts)])
        indices = np.concatenate([NONE, *(indices for _, _, indices in parts)])
        missing: dict[Path, BoolArray] = {}
        fields: dict[Path, Vector] = {}
        for path in self._paths:
            vectors = [table.vector(path) for table, _, _ in parts]
            low = tuple(map(str.lower, path))
            if any(vector is None for vector in vectors):
                lengths = [len(table) for table, _, _ in parts]
                missing[low] = np.repeat(np.array([vector is None for vector in vectors], dtype=np.bool_), lengths)
            fields[low] = Vector.concat(
                [
                    Vector.nulls(len(table)) if vector is None else vector
                    for vector, (table, _, _) in zip(vectors, parts, strict=True)
                ]
            )
        records = None
        if self._wanted.record:
            every = [table.records() for table, _, _ in parts]
            records = records_vector([row for rows, _ in every for row in rows])
            failed = [
                event
                for (_, failure), (_, places, _) in zip(every, parts, strict=True)
                if failure is not None
                for event in places[failure.is_kind(Kind.ERROR)].tolist()
            ]
            if failed:
                keep = np.flatnonzero(~np.isin(events, failed))
                rejected = [*rejected, *((event, Problem.OUT_OF_RANGE) for event in sorted(set(failed)))]
                missing = {path: mask[keep] for path, mask in missing.items()}
                fields = {path: vector.take(keep) for path, vector in fields.items()}
                events, indices, records = events[keep], indices[keep], records.take(keep)
        decoded = Decoded(events, indices, fields, records, NONE, NONE)
        return finished(decoded, self._wanted, missing, rejected, tabular=True, of_text=self._kind.values_are_text)


class TableKind(FormatKind):
    """A format whose contents are tables.

    Attributes:
        values_are_text: whether all values are text, to be converted to the types of CREATE TABLE.
        joins_bodies: whether `joined` may read many bodies at once.
    """

    values_are_text: ClassVar[bool] = False
    joins_bodies: ClassVar[bool] = False

    @abstractmethod
    def table(self, content: bytes, format_: Format, most: ContentLimits) -> Table:
        """Return the table in a content.

        Args:
            most: what it may hold.

        Raises:
            Unreadable: it is not such a table, or exceeds a limit.
        """

    def joined(self, bodies: Sequence[bytes], format_: Format) -> Part | None:
        """Return the rows of many bodies read in one pass, or None if they must be read one by one."""
        return None

    def decoder(self, wanted: Wanted, format_: Format) -> BodyDecoder:
        return TableDecoder(wanted, format_, self)

    def file_rows(self, content: bytes, format_: Format) -> Sequence[bytes]:
        return TableBodies.of(self.table(content, format_, format_.limits.of_file()))


def problems_of(table: Table) -> list[tuple[int, Problem]]:
    """Return the rows of a table that could not be read, and why."""
    return [(number, problem) for number, problem, _ in table.rejected]
