"""The substreams a job knows: their numbers, which timelines feed them, and what has arrived of them.

A substream is a value of the OVER keys among the inputs that may meet (`separate.Component`), and in one partition if
OVER names PartitionId. Its number is the same wherever its rows came from, and is given to another once it can be
forgotten: when it has had no event within the late tolerance and nothing that is held is of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass

import numpy as np

from tidegate.engine.frames import Frame
from tidegate.engine.pane_tables import PaneTable
from tidegate.engine.separate import Component
from tidegate.engine.values import Int64Array
from tidegate.ordering import Advances, Departures

FORGET_FROM = 65_536
"""Fewer substreams than this are never worth forgetting."""


@dataclass(frozen=True, slots=True)
class BatchSubstreams:
    """The substreams of a batch: its distinct keys, and the events that moved them on, numbered by those."""

    input: str
    partition: str
    keys: list[Hashable]
    advances: Advances


@dataclass(slots=True)
class _Domain:
    """Substreams that are fed by the same timelines, and the slot of each."""

    number: int
    slots: dict[tuple[str, str], int] = field(default_factory=dict)


class SubstreamTable:
    """The substreams of a run."""

    def __init__(self, components: Sequence[Component], late_ticks: int | None) -> None:
        self._components = components
        self._domains: dict[tuple[int, str], _Domain] = {}
        self._codes: dict[tuple[int, Hashable], int] = {}
        self._free: list[int] = []
        self._places: list[tuple[int, Hashable]] = []
        self._forget_from = FORGET_FROM
        self.departures = Departures(late_ticks)

    def __len__(self) -> int:
        return len(self._codes)

    def know(self, timelines: Iterable[tuple[str, str]]) -> None:
        """Say which inputs and partitions there are."""
        for name, partition in sorted(timelines):
            slots = self._domain(name, partition).slots
            slots.setdefault((name.lower(), partition), len(slots))
            self.departures.begin(np.empty(0, dtype=np.int64), len(slots))

    def add(self, batch: BatchSubstreams) -> Int64Array:
        """Take up a batch's substreams; int64[k], the number of each of its keys."""
        domain = self._domain(batch.input, batch.partition)
        known = self._codes
        numbers, new = [], []
        for key in batch.keys:
            place = (domain.number, key)
            number = known.get(place)
            if number is None:
                number = known[place] = self._number(place)
                new.append(number)
            numbers.append(number)
        codes = np.array(numbers, dtype=np.int64)
        if new:
            self.departures.begin(np.array(new, dtype=np.int64), len(domain.slots))
        slot = domain.slots[batch.input.lower(), batch.partition]
        self.departures.add(slot, batch.advances.renumbered(codes))
        return codes

    def key_ranks(self, codes: Int64Array) -> Int64Array:
        """int64[n]: the rank of each substream among these by its key."""
        distinct, places = np.unique(codes, return_inverse=True)
        keys = [self._places[number] for number in distinct.tolist()]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        ranks = np.empty(len(distinct), dtype=np.int64)
        ranks[order] = np.arange(len(distinct))
        return ranks[places]

    def forget_if_it_pays(self, in_use: Callable[[], Iterator[Int64Array]]) -> None:
        """Forget what can be once the table has grown to twice what was in it; ``in_use`` gives what is still held."""
        if len(self._codes) < self._forget_from:
            return
        gone = np.zeros(len(self._places), dtype=np.bool_)
        gone[self.departures.forgettable()] = True
        for numbers in in_use():
            gone[numbers] = False
        flags = gone.tolist()
        self._free += [number for number in self._codes.values() if flags[number]]
        self._codes = {place: number for place, number in self._codes.items() if not flags[number]}
        self._forget_from = max(FORGET_FROM, 2 * len(self._codes))

    def _number(self, place: tuple[int, Hashable]) -> int:
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
