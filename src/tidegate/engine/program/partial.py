"""The partial result of a batch: what a task sends to the keyed side, with the substreams of its rows.

Substreams have numbers. A substream is a value of the OVER keys among the inputs that may meet
(`separation.Component`), and in one partition if OVER names PartitionId. Its number is the same whichever timeline its
rows come from. A number is reused once its substream can be forgotten: it has had no event within the late tolerance,
and nothing in the state belongs to it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from tidegate.engine.expressions.frames import Frame
from tidegate.engine.expressions.registered import FunctionCalls
from tidegate.engine.expressions.relations import RuntimeErrors
from tidegate.engine.substreams.separation import Component
from tidegate.engine.values.vectors import Int64Array
from tidegate.engine.windows.pane_tables import PaneTable
from tidegate.ordering import Advances, Emission, KeyIndex, Keys

Side = tuple[int, int]
"""An operator's number in `Program.operators`, and which of its sources."""


@dataclass(slots=True)
class OperatorRows:
    """Rows by operator.

    Rows that a restart reads again count again, as calls of functions do.

    Attributes:
        taken: rows that reached a side of an operator, before it reduced them.
        released: rows that an operator passed on.
    """

    taken: Counter[Side] = field(default_factory=Counter)
    released: Counter[int] = field(default_factory=Counter)

    def add(self, other: OperatorRows) -> None:
        """Add what another place counted."""
        self.taken.update(other.taken)
        self.released.update(other.released)

    @classmethod
    def sum(cls, parts: Iterable[OperatorRows]) -> OperatorRows:
        """Add up what several places counted."""
        total = cls()
        for part in parts:
            total.add(part)
        return total


FORGET_FROM = 262_144
"""With fewer substreams than this, nothing is forgotten."""


@dataclass(frozen=True, slots=True)
class BatchSubstreams:
    """The substreams of a batch.

    Attributes:
        keys: its distinct keys.
        codes: int64[k], their numbers on the timeline (`SubstreamKeys`), in its ``generation``.
        advances: the events that raised their largest times, numbered by ``keys``.
    """

    input: str
    partition: str
    keys: Keys
    codes: Int64Array
    generation: int
    advances: Advances


@dataclass(slots=True)
class _Known:
    """The number of each substream by its code on one timeline; −1 if it has to be looked up."""

    generation: int = -1
    numbers: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __reduce__(self) -> tuple[Any, ...]:
        return _known_again, (self.generation, self.numbers)

    def fit(self, generation: int, count: int) -> None:
        if generation != self.generation:
            self.generation, self.numbers = generation, np.empty(0, dtype=np.int64)
        if count > len(self.numbers):
            self.numbers = np.append(self.numbers, np.full(2 * count - len(self.numbers), -1))


@dataclass(slots=True)
class _Domain:
    """Substreams that are fed by the same timelines.

    Attributes:
        place: the number of their component, and the partition if each has its own substreams.
        index: their keys.
        numbers: int64[k], the number of each key.
        slots: by input and partition, the slot of each timeline.
    """

    place: tuple[int, str]
    index: KeyIndex = field(default_factory=KeyIndex)
    numbers: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    slots: dict[tuple[str, str], int] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return _domain_again, (self.place, self.index, self.numbers, self.slots)

    def fit(self) -> None:
        count, room = len(self.index), len(self.numbers)
        if count > room:
            self.numbers = np.append(self.numbers, np.empty(2 * count - room, dtype=np.int64))


def _known_again(generation: int, numbers: Int64Array) -> _Known:
    """Return an unpickled object. Its array may have been mapped read-only, and changes in place."""
    return _Known(generation, np.array(numbers))


def _domain_again(
    place: tuple[int, str], index: KeyIndex, numbers: Int64Array, slots: dict[tuple[str, str], int]
) -> _Domain:
    """Return an unpickled object. Its array may have been mapped read-only, and changes in place."""
    return _Domain(place, index, np.array(numbers), slots)


class SubstreamTable:
    """The substreams of a run."""

    def __init__(self, components: Sequence[Component], late_ticks: int | None) -> None:
        self._components = components
        self._domains: dict[tuple[int, str], _Domain] = {}
        self._known: dict[tuple[str, str], _Known] = {}
        self._free = np.empty(0, dtype=np.int64)
        self._count = 0
        self._forget_from = FORGET_FROM
        self.emission = Emission(late_ticks)

    def __len__(self) -> int:
        return self._count - len(self._free)

    def know_timelines(self, timelines: Iterable[tuple[str, str]]) -> None:
        """Announce the inputs and partitions that may feed substreams."""
        for name, partition in sorted(timelines):
            slots = self._domain(name, partition).slots
            slots.setdefault((name.lower(), partition), len(slots))
            self.emission.add_substreams(np.empty(0, dtype=np.int64), len(slots))

    def add_batch(self, batch: BatchSubstreams) -> Int64Array:
        """Add a batch's substreams and advances; return int64[k], the number of each of its keys."""
        domain = self._domain(batch.input, batch.partition)
        timeline = (batch.input.lower(), batch.partition)
        slot = domain.slots[timeline]
        known = self._known.setdefault(timeline, _Known())
        known.fit(batch.generation, int(batch.codes.max(initial=-1)) + 1)
        numbers = known.numbers[batch.codes]
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            numbers[unknown] = self._looked_up(domain, batch.keys.take(unknown))
            known.numbers[batch.codes[unknown]] = numbers[unknown]
        self.emission.add_advances(slot, batch.advances.renumbered(numbers))
        return numbers

    def _looked_up(self, domain: _Domain, keys: Keys) -> Int64Array:
        known = len(domain.index)
        codes = domain.index.add(keys)
        new = codes[codes >= known]
        if len(new):
            domain.fit()
            domain.numbers[new] = numbers = self._new_numbers(len(new))
            self.emission.add_substreams(numbers, len(domain.slots))
        return domain.numbers[codes]

    def key_ranks(self, numbers: Int64Array) -> Int64Array:
        """Return int64[n]: the rank of each substream among these, in an order of keys that no cut changes."""
        distinct, inverse = np.unique(numbers, return_inverse=True)
        keys: list[Any] = [None] * len(distinct)
        for domain in self._domains.values():
            numbers = domain.numbers[: len(domain.index)]
            here = np.flatnonzero(np.isin(numbers, distinct))
            places = np.searchsorted(distinct, numbers[here])
            for place, key in zip(places.tolist(), domain.index.keys().take(here).to_list(), strict=True):
                keys[place] = (domain.place, key)
        order = sorted(range(len(keys)), key=keys.__getitem__)
        ranks = np.empty(len(distinct), dtype=np.int64)
        ranks[order] = np.arange(len(distinct))
        return ranks[inverse]

    def forget_if_it_pays(self, in_use: Callable[[], Iterator[Int64Array]]) -> None:
        """Forget substreams once the table has doubled; ``in_use`` yields those that are still held."""
        if len(self) < self._forget_from:
            return
        gone = np.zeros(self._count, dtype=np.bool_)
        gone[self.emission.forgettable()] = True
        for numbers in in_use():
            gone[numbers] = False
        gone[self._free] = False
        self._free = np.append(self._free, np.flatnonzero(gone))
        for domain in self._domains.values():
            kept = np.flatnonzero(~gone[domain.numbers[: len(domain.index)]])
            if len(kept) < len(domain.index):
                domain.index, domain.numbers = domain.index.only(kept), domain.numbers[kept]
        for known in self._known.values():
            known.numbers[(known.numbers >= 0) & gone[known.numbers]] = -1
        self._forget_from = max(FORGET_FROM, 2 * len(self))

    def _new_numbers(self, count: int) -> Int64Array:
        """Return numbers that no substream has."""
        used = min(count, len(self._free))
        again, self._free = self._free[:used], self._free[used:]
        first, self._count = self._count, self._count + count - used
        return np.append(again, np.arange(first, self._count))

    def _domain(self, name: str, partition: str) -> _Domain:
        for number, component in enumerate(self._components):
            if name.lower() in component.inputs:
                place = (number, partition if component.by_partition else "")
                return self._domains.setdefault(place, _Domain(place))
        raise KeyError(name)


def substreams_in(state: object) -> Iterator[Int64Array]:
    """Yield the substreams of all rows and panes anywhere in a state."""
    waiting = [state]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Frame | PaneTable):
            if one.substreams is not None:
                yield one.substreams
        elif isinstance(one, list | tuple | deque):
            waiting.extend(one)
        elif is_dataclass(one):
            numbers = getattr(one, "substreams", None)
            if isinstance(numbers, np.ndarray):
                yield numbers
            waiting.extend(getattr(one, each.name) for each in fields(one))


def renumbered(payload: object, numbers: Int64Array | None) -> object:
    """Return the same rows and panes with other numbers for their substreams, or with none."""
    if isinstance(payload, Frame | PaneTable):
        if numbers is None or payload.substreams is None:
            return payload.of_substreams(None)
        return payload.of_substreams(numbers[payload.substreams])
    if isinstance(payload, list):
        return [renumbered(one, numbers) for one in payload]
    return payload


@dataclass(slots=True)
class Partial:
    """The partial result of one batch; compact and picklable.

    Attributes:
        payloads: by operator and side (which of its sources), the reduced rows.
        errors: the rows that were lost, with their places in the decoded batch; they stay in the task.
        calls: of registered functions; they stay in the task.
        rows: how many rows reached each operator; they stay in the task.
        split: places of rows whose key is text, and a number in other rows of the batch; they stay in the task.
        substreams: those of the batch, if results are emitted by substream; rows carry indexes into its keys.
    """

    payloads: dict[tuple[int, int], Any] = field(default_factory=dict)
    errors: list[RuntimeErrors] = field(default_factory=list)
    substreams: BatchSubstreams | None = None
    calls: FunctionCalls = field(default_factory=FunctionCalls)
    rows: OperatorRows = field(default_factory=OperatorRows)
    split: list[Int64Array] = field(default_factory=list)

    def __getstate__(self) -> tuple[dict[tuple[int, int], Any], BatchSubstreams | None]:
        return self.payloads, self.substreams

    def __setstate__(self, state: tuple[dict[tuple[int, int], Any], BatchSubstreams | None]) -> None:
        self.payloads, self.substreams = state
        self.errors = []
        self.calls = FunctionCalls()
        self.rows = OperatorRows()
        self.split = []
