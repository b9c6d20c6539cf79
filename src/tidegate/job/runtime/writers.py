"""Merging and encoding results in several places at once.

Theory. An output is one sequence of rows, whatever the number of shards. To write it in parallel, a step's results are
cut by time into *stretches*; each shard sends its rows of a stretch to one writer, which merges them, encodes them and
writes them to a file of its own. The driver puts the pieces of the files together in the order of the stretches, and
never sees a row. This is a sort by ranges, as in TeraSort (http://sortbenchmark.org/YahooHadoop.pdf).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tidegate.connectors.model.encoded_rows import EncodedPiece, EncodedRows, Encoder, RunsEncoder
from tidegate.connectors.model.events import Int64Array
from tidegate.engine import ResultRows
from tidegate.engine.sharding.payloads import merged_results
from tidegate.ordering import END_OF_TIME, NO_TIME

STRETCHES = 64
INLINE_BYTES = 65_536
"""Fewer bytes than this travel with the answer instead of in a file."""


@dataclass(frozen=True, slots=True)
class Stretches:
    """How the results of a step are cut: evenly between two values of their first merge key, in ticks."""

    begin: int
    end: int

    @classmethod
    def between(cls, begin: int, end: int) -> Stretches:
        """Cut evenly between two times; without one of them there is one stretch."""
        known = NO_TIME < begin < end < END_OF_TIME
        return cls(begin, end) if known else cls(0, 0)

    def numbers(self, keys: Int64Array) -> Int64Array:
        """Return int64[n]: the stretch of each row, 0 to `STRETCHES` - 1, ascending with the keys."""
        if self.begin == self.end:
            return np.zeros(len(keys), dtype=np.int64)
        inside = np.clip(keys, self.begin, self.end - 1) - self.begin
        return inside // max(1, -(-(self.end - self.begin) // STRETCHES))


@dataclass(slots=True)
class WriterRows:
    """The rows that a shard has for a writer, by output and stretch."""

    rows: dict[tuple[str, int], list[ResultRows]] = field(default_factory=dict)

    def with_more(self, other: WriterRows | None) -> WriterRows:
        """Return the rows of both."""
        together = {place: list(rows) for place, rows in self.rows.items()}
        for place, rows in (other.rows if other is not None else {}).items():
            together.setdefault(place, []).extend(rows)
        return WriterRows(together)


def shares(rows: Iterable[ResultRows], stretches: Stretches, writers: int) -> list[WriterRows]:
    """Divide the rows of a shard among writers."""
    found = [WriterRows() for _ in range(writers)]
    for each in rows:
        numbers = stretches.numbers(each.merge_keys[0].int_values())
        # Rows are in the order of their first merge key.
        bounds = np.flatnonzero(np.diff(numbers, prepend=-1, append=STRETCHES))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            stretch = int(numbers[first])
            found[stretch % writers].rows.setdefault((each.output, stretch), []).append(_cut(each, first, last))
    return found


def _cut(rows: ResultRows, first: int, last: int) -> ResultRows:
    if last - first == len(rows):
        return rows
    places = np.arange(first, last)
    return ResultRows(
        rows.output,
        rows.timestamps[first:last],
        rows.names,
        tuple(column.take(places) for column in rows.columns),
        tuple(key.take(places) for key in rows.merge_keys),
    )


Written = dict[tuple[str, int], tuple[int, int, EncodedPiece]]
"""By output and stretch: how many rows, their largest time in ticks, and where they are."""


def write_shares(received: Sequence[WriterRows], encoders: Mapping[str, Encoder], folder: Path) -> Written:
    """Merge and encode what all shards have for a writer.

    Returns:
        The pieces: in a file that no other attempt writes, or, if they are few bytes, by themselves.

    Raises:
        OSError: the folder cannot be written.
    """
    together: dict[tuple[str, int], list[ResultRows]] = {}
    for share in received:
        for place, rows in share.rows.items():
            together.setdefault(place, []).extend(rows)
    encoded = _encoded(together, encoders)
    if sum(len(content) for _, _, content in encoded.values()) < INLINE_BYTES:
        return {
            place: (count, latest, EncodedPiece(len(content), content=content))
            for place, (count, latest, content) in encoded.items()
        }
    folder.mkdir(0o750, parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4().hex}.part"
    found: Written = {}
    offset = 0
    with path.open("wb") as file:
        for place, (count, latest, content) in encoded.items():
            file.write(content)
            found[place] = (count, latest, EncodedPiece(len(content), path, offset))
            offset += len(content)
    return found


def _encoded(
    rows: Mapping[tuple[str, int], list[ResultRows]], encoders: Mapping[str, Encoder]
) -> dict[tuple[str, int], tuple[int, int, bytes]]:
    """Return, by output and stretch, how many rows there are, the largest time among them, and their bytes."""
    found: dict[tuple[str, int], tuple[int, int, bytes]] = {}
    for output, places in itertools.groupby(sorted(rows), key=lambda place: place[0]):
        runs = [(stretch, merged_results(rows[output, stretch], [output])[0]) for _, stretch in places]
        encoder = encoders[output]
        if isinstance(encoder, RunsEncoder):
            contents = encoder.encode_runs(runs)
        else:
            contents = [encoder(whole) for _, whole in runs]
        for (stretch, whole), content in zip(runs, contents, strict=True):
            found[output, stretch] = (len(whole), int(whole.timestamps.max()), content)
    return found


def in_order(written: Iterable[Written], outputs: Sequence[str]) -> list[EncodedRows]:
    """Put the pieces of all writers together, by output in the order of ``outputs``."""
    every = {place: what for each in written for place, what in each.items()}
    found = []
    for output in outputs:
        mine = [every[place] for place in sorted(every) if place[0] == output]
        if mine:
            count, latest = sum(one[0] for one in mine), max(one[1] for one in mine)
            found.append(EncodedRows(output, count, latest, tuple(one[2] for one in mine)))
    return found
