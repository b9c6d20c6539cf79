"""The substreams a job knows: their numbers, which timelines feed them, and what has arrived of them.

A substream is a value of the OVER keys among the inputs that may meet (`separate.Component`), and in one partition if
OVER names PartitionId. Its number is the same wherever its rows came from, and is given to another once it can be
forgotten: when it has had no event within the late tolerance and nothing that is held is of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from tidegate.engine.frames import Frame
from tidegate.engine.pane_tables import PaneTable
from tidegate.engine.separate import Component
from tidegate.engine.values import Int64Array, Kind
from tidegate.ordering import Advances, Departures

FORGET_FROM = 65_536
"""Fewer substreams than this are never worth forgetting."""


@dataclass(frozen=True, slots=True)
class BatchSubstreams:
    """The substreams of a batch.

    Attributes:
        keys: its distinct keys.
        codes: int64[k], their numbers on the timeline (`SubstreamKeys`), in its ``generation``.
        advances: the events that moved them on, numbered by ``keys``.
    """

    input: str
    partition: str
    keys: list[Hashable]
    codes: Int64Array
    generation: int
    advances: Advances


@dataclass(slots=True)
class _Known:
    """The number of each substream by its code on one timeline; −1 where it has to be looked up."""

    generation: int = -1
    numbers: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def fit(self, generation: int, count: int) -> None:
        if generation != self.generation:
            self.generation, self.numbers = generation, np.empty(0, dtype=np.int64)
        if count > len(self.numbers):
            self.numbers = np.append(self.numbers, np.full(2 * count - len(self.numbers), -1))


@dataclass(slots=True)
class _Domain:
    """Substreams that are fed by the same timelines: their numbers by key, and the slot of each timeline."""

    number: int
    codes: dict[Hashable, int] = field(default_factory=dict)
    slots: dict[tuple[str, str], int] = field(default_factory=dict)


class SubstreamTable:
    """The substreams of a run."""

    def __init__(self, components: Sequence[Component], late_ticks: int | None) -> None:
        self._components = components
        self._domains: dict[tuple[int, str], _Domain] = {}
        self._known: dict[tuple[str, str], _Known] = {}
        self._free: list[int] = []
        self._places: list[tuple[_Domain, Hashable]] = []
        self._forget_from = FORGET_FROM
        self.departures = Departures(late_ticks)

    def __len__(self) -> int:
        return len(self._places) - len(self._free)

    def know(self, timelines: Iterable[tuple[str, str]]) -> None:
        """Say which inputs and partitions there are."""
        for name, partition in sorted(timelines):
            slots = self._domain(name, partition).slots
            slots.setdefault((name.lower(), partition), len(slots))
            self.departures.begin(np.empty(0, dtype=np.int64), len(slots))

    def add(self, batch: BatchSubstreams) -> Int64Array:
        """Take up a batch's substreams; int64[k], the number of each of its keys."""
        domain = self._domain(batch.input, batch.partition)
        timeline = (batch.input.lower(), batch.partition)
        slot = domain.slots[timeline]
        known = self._known.setdefault(timeline, _Known())
        known.fit(batch.generation, int(batch.codes.max(initial=-1)) + 1)
        numbers = known.numbers[batch.codes]
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            numbers[unknown] = self._looked_up(domain, [batch.keys[place] for place in unknown.tolist()])
            known.numbers[batch.codes[unknown]] = numbers[unknown]
        self.departures.add(slot, batch.advances.renumbered(numbers))
        return numbers

    def _looked_up(self, domain: _Domain, keys: Sequence[Hashable]) -> Int64Array:
        codes = domain.codes
        new = []
        for key in keys:
            if key not in codes:
                codes[key] = number = self._number(domain, key)
                new.append(number)
        if new:
            self.departures.begin(np.array(new, dtype=np.int64), len(domain.slots))
        return np.array([codes[key] for key in keys], dtype=np.int64)

    def key_ranks(self, codes: Int64Array) -> Int64Array:
        """int64[n]: the rank of each substream among these by its key."""
        distinct, inverse = np.unique(codes, return_inverse=True)
        places = [self._places[number] for number in distinct.tolist()]
        keys = [(domain.number, typed_key(key)) for domain, key in places]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        ranks = np.empty(len(distinct), dtype=np.int64)
        ranks[order] = np.arange(len(distinct))
        return ranks[inverse]

    def forget_if_it_pays(self, in_use: Callable[[], Iterator[Int64Array]]) -> None:
        """Forget what can be once the table has grown to twice what was in it; ``in_use`` gives what is still held."""
        if len(self) < self._forget_from:
            return
        gone = np.zeros(len(self._places), dtype=np.bool_)
        gone[self.departures.forgettable()] = True
        for numbers in in_use():
            gone[numbers] = False
        gone[self._free] = False
        forgotten = np.flatnonzero(gone).tolist()
        for number in forgotten:
            domain, key = self._places[number]
            del domain.codes[key]
        self._free += forgotten
        for known in self._known.values():
            known.numbers[(known.numbers >= 0) & gone[known.numbers]] = -1
        self._forget_from = max(FORGET_FROM, 2 * len(self))

    def _number(self, domain: _Domain, key: Hashable) -> int:
        place = (domain, key)
        if self._free:
            number = self._free.pop()
            self._places[number] = place
            return number
        self._places.append(place)
        return len(self._places) - 1

    def _domain(self, name: str, partition: str) -> _Domain:
        for number, component in enumerate(self._components):
            if name.lower() in component.inputs:
                place = (number, partition if component.by_partition else "")
                return self._domains.setdefault(place, _Domain(len(self._domains)))
        raise KeyError(name)


def typed_key(key: Any) -> tuple[tuple[int, Any], ...]:
    """The values of an OVER key, each with its kind."""
    if isinstance(key, str):
        return ((int(Kind.NVARCHAR), key),)
    if isinstance(key[0], int):
        return (key,)
    return tuple((int(Kind.NVARCHAR), value) if isinstance(value, str) else value for value in key)


def substreams_in(state: object) -> Iterator[Int64Array]:
    """The substreams of all rows and panes somewhere in a state."""
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


def renumbered(payload: object, numbers: Int64Array) -> object:
    """The same rows and panes with other numbers for their substreams."""
    if isinstance(payload, Frame | PaneTable):
        return payload.of_substreams(None if payload.substreams is None else numbers[payload.substreams])
    if isinstance(payload, list):
        return [renumbered(one, numbers) for one in payload]
    return payload
