"""Dividing rows among shards: what tasks send, and what an operator sends to one on a higher level.

A piece of a payload is a payload, so an operator absorbs it as it would the whole. Which shard a row belongs to follows
from its content alone: a task that Spark repeats divides its rows as before.

The shard of a row, from the values of its keys.

Rows of one key must meet in one shard (`values.grouping`), so whole numbers, floats and bits hash alike if they are
equal, and texts by their small letters. So must rows that `=` of a JOIN finds equal, which also converts
(`stateful.join_keys`): then a text that reads as a number or a time hashes as that number or time. A query without such
joins does not look for those, which is faster.

The hash starts from a seed of the run, so that a sender of keys cannot know which of them share a shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.decoding.rows import ResultRows
from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.frames import Frame, NamedColumns
from tidegate.engine.program.keyed_side import KeyedPart
from tidegate.engine.program.operators import Operator
from tidegate.engine.program.partial import BatchSubstreams, Partial
from tidegate.engine.program.program import Program
from tidegate.engine.sharding.keys import Division, OperatorPlacement, keys_of, operator_below, placements
from tidegate.engine.stateful.join_operator import JoinOperator
from tidegate.engine.stateful.joins import class_of
from tidegate.engine.stateful.temporal_operator import TemporalOperator
from tidegate.engine.substreams.keys import texts_as_keys
from tidegate.engine.values.grouping import sort_keys, sorted_rows, without_case
from tidegate.engine.values.vectors import TEXT, Int64Array, Kind, Texts, Vector
from tidegate.engine.windows.kind import ends_of
from tidegate.engine.windows.pane_tables import PaneTable
from tidegate.engine.windows.panes_operator import WindowsOperator
from tidegate.ordering import Keys, hashes_of

Hashes = npt.NDArray[np.uint64]

_NUMBERS = (Kind.BIGINT, Kind.FLOAT, Kind.BIT)
# A text that begins otherwise, or is one of these words, may read as a number, a time or a bit.
_PLAIN_TEXT = r"^[a-z_{(\[#@/$%&*]"
_WORDS_FOR_BITS = "^(true|false)[^a-z0-9_]*$"
_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
_HALF = np.uint64(32)


def shard_codes(keys: Sequence[Vector], count: int, shards: int, seed: int, *, wide: bool) -> Int64Array:
    """Return int64[count]: the shard of each row, from the columns of its keys; without keys, shard 0.

    Args:
        wide: whether values that `=` finds equal must have one shard, or only those that GROUP BY does.
    """
    hashes = np.full(count, seed, dtype=np.uint64)
    for key in keys:
        hashes = _mixed(hashes ^ _hashes(key, seed, wide=wide))
    return shards_of(hashes, shards)


def codes_of_keys(keys: Keys, shards: int, seed: int) -> Int64Array:
    """Return int64[n]: the shard of each OVER key, by its bytes."""
    return shards_of(hashes_of(keys, np.uint64(seed)), shards)


def shards_of(hashes: Hashes, shards: int) -> Int64Array:
    """Return int64[n]: the shard of each hash, from its upper half."""
    return ((hashes >> _HALF) % np.uint64(shards)).astype(np.int64)


def _hashes(key: Vector, seed: int, *, wide: bool) -> Hashes:
    """Return a hash of each value; that of a NULL, a failure, a record or an array follows from its kind alone."""
    hashes = key.kinds.astype(np.uint64)
    for kind in key.present():
        if key.uniform == kind:
            return _of_kind(key, kind, seed, wide=wide)
        places = np.flatnonzero(key.kinds == kind)
        hashes[places] = _of_kind(key.take(places), kind, seed, wide=wide)
    return hashes


def _of_kind(key: Vector, kind: int, seed: int, *, wide: bool) -> Hashes:
    if kind == Kind.NVARCHAR:
        return _of_texts(without_case(key.text_values()), seed, wide=wide)
    if kind in _NUMBERS:
        numbers = key.float_values() if kind == Kind.FLOAT else key.int_values().astype(np.float64)
        return _of_numbers(numbers)
    if kind == Kind.DATETIME:
        return _of_times(key.int_values())
    return np.full(len(key), kind, dtype=np.uint64)


def _of_numbers(numbers: npt.NDArray[np.float64]) -> Hashes:
    return _mixed((numbers + 0.0).view(np.uint64))


def _of_times(ticks: Int64Array) -> Hashes:
    return _mixed(ticks.view(np.uint64) ^ _FACTOR)


def _of_texts(texts: Texts, seed: int, *, wide: bool) -> Hashes:
    hashes = hashes_of(texts_as_keys(texts), np.uint64(seed))
    if not wide:
        return hashes
    plain = pc.and_not(pc.match_substring_regex(texts, _PLAIN_TEXT), pc.match_substring_regex(texts, _WORDS_FOR_BITS))
    doubtful = np.flatnonzero(~plain.to_numpy(zero_copy_only=False))
    if len(doubtful):
        distinct = texts.take(pa.array(doubtful)).dictionary_encode()
        words = [class_of(Kind.NVARCHAR, text, "") for text in distinct.dictionary.to_pylist()]
        hashes[doubtful] = _of_classes(words, seed)[distinct.indices.to_numpy()]
    return hashes


def _of_classes(words: Sequence[tuple[str, float | int | str]], seed: int) -> Hashes:
    """Return the hash of each class of equal values, the same as that of its members of other types."""
    hashes = hashes_of(texts_as_keys(pa.array([str(value) for _, value in words], TEXT)), np.uint64(seed))
    for place, (family, value) in enumerate(words):
        if family == "number":
            hashes[place] = _of_numbers(np.array([value], dtype=np.float64))[0]
        elif family == "time":
            hashes[place] = _of_times(np.array([value], dtype=np.int64))[0]
    return hashes


def _mixed(hashes: Hashes) -> Hashes:
    mixed: Hashes = hashes * _FACTOR
    mixed ^= mixed >> _HALF
    mixed *= _FACTOR
    return mixed


Side = tuple[int, int]
"""An operator and one of its sources, by number."""

_ROWS_TOGETHER = 4096
_SMALL_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Sharding:
    """How the keyed side of a program is divided.

    Attributes:
        shards: how many there are.
        seed: what the hashes of keys start from.
        placements: where each operator runs.
        outputs: for each output, the level that emits it.
        wide: whether values that `=` finds equal must meet, or only those that GROUP BY does.
    """

    shards: int
    seed: int
    placements: tuple[OperatorPlacement, ...]
    outputs: tuple[int, ...]
    wide: bool

    @classmethod
    def of(cls, program: Program, shards: int, seed: int = 0) -> Sharding:
        """Divide a program among ``shards`` shards."""
        operators = [(operator.relation, operator.sources) for operator in program.operators]
        placed = placements(operators, by_substream=program.by_substream, joined=any(program.joined))
        numbers = {id(relation): number for number, (relation, _) in enumerate(operators)}
        levels = []
        for output in program.query.outputs:
            below = operator_below(output.relation, numbers)
            assert below is not None
            levels.append(placed[below].level)
        return cls(shards, seed, tuple(placed), tuple(levels), any(program.joined))

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return 1 + max(one.level for one in self.placements)

    def part(self, program: Program, level: int) -> KeyedPart:
        """Return what runs on one level."""
        placed = self.placements
        sides = [(index, side) for index, one in enumerate(placed) for side, yes in enumerate(one.exchanged) if yes]
        numbers = {id(operator.relation): number for number, operator in enumerate(program.operators)}
        sent = []
        for index, side in sides:
            below = operator_below(program.operators[index].sources[side], numbers)
            if below is not None and placed[below].level == level:
                sent.append((index, side))
        return KeyedPart(
            frozenset(index for index, one in enumerate(placed) if one.level == level),
            frozenset(index for index, of in enumerate(self.outputs) if of == level),
            frozenset(side for side in sides if placed[side[0]].level == level),
            tuple(sent),
        )

    def codes_of_rows(self, program: Program, side: Side, rows: Frame) -> Int64Array:
        """Return int64[n]: the shard of each row of a source that has not been reduced yet."""
        index, number = side
        placement, relation = self.placements[index], program.operators[index].relation
        match placement.division:
            case Division.KEYS:
                keys = keys_of(relation)
                vectors = [evaluate(keys[key].by_side[number], rows) for key in placement.keys]
                return shard_codes(vectors, len(rows), self.shards, self.seed, wide=self.wide)
            case Division.PANES:
                return self._by_time(ends_of(relation, rows.times))
            case Division.ROWS:
                return self._by_time(rows.times)
            case Division.SUBSTREAMS | Division.NONE:
                return np.zeros(len(rows), dtype=np.int64)

    def codes_of_reduced(
        self, operator: Operator, placement: OperatorPlacement, table: Frame | PaneTable
    ) -> Int64Array:
        """Return int64[n]: the shard of each row that an operator has reduced."""
        match placement.division:
            case Division.KEYS:
                columns = _key_columns(operator, table)
                keys = keys_of(operator.relation)
                vectors = [columns[keys[key].column] for key in placement.keys]
                return shard_codes(vectors, len(table), self.shards, self.seed, wide=self.wide)
            case Division.PANES:
                return self._by_time(table.times)
            case Division.ROWS:
                assert isinstance(table, Frame)
                return self._by_stretch(table)
            case Division.SUBSTREAMS | Division.NONE:
                return np.zeros(len(table), dtype=np.int64)

    def _by_time(self, times: Int64Array) -> Int64Array:
        return shard_codes([Vector.bigints(times)], len(times), self.shards, self.seed, wide=False)

    def _by_stretch(self, rows: Frame) -> Int64Array:
        """Divide rows by stretches of their partition's log, so that neighbours stay together."""
        _, partitions, numbers, *_ = rows.order
        return (partitions + numbers // _ROWS_TOGETHER) % self.shards


class Divider:
    """Divides the partial results of tasks."""

    def __init__(self, program: Program, sharding: Sharding) -> None:
        self._program = program
        self._sharding = sharding

    def divide(self, partial: Partial) -> dict[tuple[int, int], Partial]:
        """Return the part of each shard that gets one, by level and shard."""
        parts: dict[tuple[int, int], Partial] = {}
        substreams = partial.substreams
        of_keys = None
        if substreams is not None:
            of_keys = self._codes_of_substreams(substreams)
            for shard, numbers in _places(of_keys, self._sharding.shards):
                parts[0, shard] = Partial(substreams=_some_of(substreams, numbers))
        for side, payload in partial.payloads.items():
            placement = self._sharding.placements[side[0]]
            operator = self._program.operators[side[0]]
            pieces = self._pieces(operator, placement, payload, of_keys)
            for shard, piece in enumerate(pieces):
                if piece is not None:
                    parts.setdefault((placement.level, shard), Partial()).payloads[side] = piece
        return parts

    def _codes_of_substreams(self, substreams: BatchSubstreams) -> Int64Array:
        if any(one.division is Division.SUBSTREAMS for one in self._sharding.placements):
            return codes_of_keys(substreams.keys, self._sharding.shards, self._sharding.seed)
        return np.zeros(len(substreams.keys), dtype=np.int64)

    def _pieces(
        self, operator: Operator, placement: OperatorPlacement, payload: Any, of_keys: Int64Array | None
    ) -> list[Any]:
        """Return the piece of a payload that each shard gets; None for nothing."""
        shards = self._sharding.shards
        if isinstance(payload, list):
            by_part = [
                self._pieces(part, placement, piece, of_keys)
                for part, piece in zip(_parts(operator, payload), payload, strict=True)
            ]
            together = [list(pieces) for pieces in zip(*by_part, strict=True)]
            return [pieces if any(one is not None for one in pieces) else None for pieces in together]
        if payload is None:
            return [None] * shards
        if of_keys is None:
            codes = self._sharding.codes_of_reduced(operator, placement, payload)
        else:
            codes = of_keys[payload.substreams]
        pieces: list[Any] = [None] * shards
        for shard, places in _places(codes, shards):
            piece = payload if len(places) == len(codes) else payload.take(places)
            if of_keys is not None:
                piece = piece.of_substreams(_renumbering(of_keys, shard)[piece.substreams])
            pieces[shard] = piece
        return pieces


def together(partials: Iterable[Partial]) -> list[Partial]:
    """Return the same partial results, with neighbouring small pieces joined: to absorb one costs as much as its rows.

    Those by substream stay as they are.
    """
    found: list[Partial] = []
    small: dict[Side, list[Any]] = {}

    def join(side: Side) -> None:
        pieces = small.pop(side, [])
        if pieces:
            found.append(Partial(payloads={side: _joined(pieces)}))

    for partial in partials:
        if partial.substreams is not None:
            found.append(partial)
            continue
        for side, payload in partial.payloads.items():
            if _is_small(payload):
                small.setdefault(side, []).append(payload)
            else:
                join(side)
                found.append(Partial(payloads={side: payload}))
    for side in list(small):
        join(side)
    return found


def _is_small(payload: Any) -> bool:
    if isinstance(payload, list):
        return all(part is None or _is_small(part) for part in payload)
    return isinstance(payload, Frame | PaneTable) and len(payload) < _SMALL_ROWS


def _joined(pieces: Sequence[Any]) -> Any:
    """Return pieces of one payload as one."""
    there = [piece for piece in pieces if piece is not None]
    if len(there) < 2:
        return there[0] if there else None
    first = there[0]
    if isinstance(first, list):
        return [_joined(parts) for parts in zip(*there, strict=True)]
    return PaneTable.concat(there).merged() if isinstance(first, PaneTable) else Frame.concat(there)


def _parts(operator: Operator, payload: Sequence[Any]) -> Sequence[Operator]:
    """Return the operator of each part of a payload: several windows of one GROUP BY have a part each."""
    return operator.parts if isinstance(operator, WindowsOperator) else [operator] * len(payload)


def _key_columns(operator: Operator, table: Frame | PaneTable) -> Sequence[Vector]:
    """Return the key columns of reduced rows (`keys.Key`)."""
    match operator:
        case TemporalOperator():
            assert isinstance(table, Frame)
            return [operator.column(table, key.by_side[0]) for key in keys_of(operator.relation)]
        case JoinOperator():
            assert isinstance(table, Frame)
            return table.aggregates
        case _:
            return table.keys


def divided(rows: Frame, codes: Int64Array, shards: int) -> list[Frame | None]:
    """Return the rows of each shard; None for none."""
    pieces: list[Frame | None] = [None] * shards
    for shard, places in _places(codes, shards):
        pieces[shard] = rows if len(places) == len(codes) else rows.take(places)
    return pieces


def merged(pieces: Sequence[Frame]) -> Frame:
    """Return rows of several shards in the order they would have in one."""
    rows = Frame.concat(pieces)
    if rows.order or len(pieces) == 1:
        return rows
    return rows.take(sorted_rows([rows.times, *map(sort_keys, rows.ties)]))


def _places(codes: Int64Array, shards: int) -> list[tuple[int, Int64Array]]:
    """Return the places of each code that occurs."""
    if shards == 1 or not len(codes):
        return [(0, np.arange(len(codes)))] if len(codes) else []
    found = ((shard, np.flatnonzero(codes == shard)) for shard in range(shards))
    return [(shard, places) for shard, places in found if len(places)]


def _renumbering(of_keys: Int64Array, shard: int) -> Int64Array:
    """Return the number of each key among those of its shard."""
    return np.cumsum(of_keys == shard) - 1


def _some_of(substreams: BatchSubstreams, numbers: Int64Array) -> BatchSubstreams:
    """Return some of a batch's substreams, with their advances."""
    if len(numbers) == len(substreams.keys):
        return substreams
    mine = np.full(len(substreams.keys), -1, dtype=np.int64)
    mine[numbers] = np.arange(len(numbers))
    advances = substreams.advances
    own = advances.take(np.flatnonzero(mine[advances.codes] >= 0)).renumbered(mine)
    return replace(substreams, keys=substreams.keys.take(numbers), codes=substreams.codes[numbers], advances=own)


def merged_results(rows: Iterable[ResultRows], outputs: Sequence[str]) -> list[ResultRows]:
    """Return the rows of all shards as one for each output that has any, in the order of ``outputs``."""
    by_output: dict[str, list[ResultRows]] = {}
    for each in rows:
        by_output.setdefault(each.output, []).append(each)
    return [_merged(by_output[output]) for output in outputs if output in by_output]


def _merged(runs: Sequence[ResultRows]) -> ResultRows:
    first = runs[0]
    if len(runs) == 1:
        return first
    order = merge_order([run.merge_keys for run in runs], list(map(len, runs)))
    columns = NamedColumns.concat([NamedColumns(run.names, run.columns) for run in runs], list(map(len, runs)))
    timestamps = np.concatenate([run.timestamps for run in runs])[order]
    return ResultRows(first.output, timestamps, columns.names, tuple(column.take(order) for column in columns.vectors))


def merge_order(keys: Sequence[Sequence[Vector]], counts: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the order of the rows of several runs, given the merge keys and the number of rows of each."""
    depth = max(map(len, keys))
    padded = [[*own, *[Vector.nulls(count)] * (depth - len(own))] for own, count in zip(keys, counts, strict=True)]
    columns = [Vector.concat(parts) for parts in zip(*padded, strict=True)]
    return sorted_rows(list(map(sort_keys, columns)))
