"""MATCH_RECOGNIZE: consecutive rows of one key that match a regular expression.
https://learn.microsoft.com/stream-analytics-query/match-recognize-stream-analytics

Theory. A match may begin at any row (AFTER MATCH SKIP TO NEXT ROW: the next search begins one row later), and its last
row is less than the limit after its first. Of all matches that begin at a row, the preferred one counts, as in SQL:2016
(ISO/IEC 9075-2, row pattern matching) and in Perl: of two options the first, and one more repetition rather than none.
A match has at least one row.

The expression becomes an automaton with one state for each name in it, and the states that may follow in the order of
preference. The search keeps *threads*, sorted by the row they began at and then by preference; a thread is a state and
a memory. All threads advance by one row together, as columns (Pike's method: R. Cox, "Regular Expression Matching: the
Virtual Machine Approach", 2009, https://swtch.com/~rsc/regexp/regexp2.html). A thread that may end cuts off those after
it; those before it continue, and what they find later is preferred. Two threads with the same beginning, state and
memory have the same future, so the second is dropped. The memory is what definitions and measures need of earlier rows:
the number of the first, the last, the least or the greatest row of a name.

Look-back. A match depends on rows from its first to less than the limit after that. So a result at T depends on rows in
(T − limit, T + limit), and L is the limit; it is known once T + limit has passed. If all matches of a pattern have the
same length, a match is known with its last row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.engine.values.grouping import group, ranges
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array
from tidegate.sql.plan import patterns

_ACCEPT = -1
_NONE = -1
_Program = list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Automaton:
    """A pattern as an automaton.

    Attributes:
        names: the name of each state.
        starts: int64[states + 2], where the successors of each state begin in ``targets``; first those of the start.
        targets: int64[…], states in the order of preference, −1 for the end.
    """

    names: tuple[str, ...]
    starts: Int64Array
    targets: Int64Array

    @classmethod
    def of(cls, pattern: patterns.Pattern) -> Automaton:
        """Return the automaton of a pattern."""
        program: _Program = []
        names: list[str] = []
        _compile(pattern, program, names)
        program.append(("accept", 0, 0))
        entries = {state: at for at, (what, state, _) in enumerate(program) if what == "state"}
        successors = [_successors(program, 0)]
        successors += [_successors(program, entries[state] + 1) for state in range(len(names))]
        sizes = [len(each) for each in successors]
        return cls(
            tuple(names),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.array([target for each in successors for target in each], dtype=np.int64),
        )


def _compile(pattern: patterns.Pattern, program: _Program, names: list[str]) -> None:
    """Append the instructions of a pattern: a state, a jump, or a split with its preferred target first."""
    match pattern:
        case patterns.Name(name=name):
            program.append(("state", len(names), 0))
            names.append(name)
        case patterns.Sequence(parts=parts):
            for part in parts:
                _compile(part, program, names)
        case patterns.Either(options=options):
            ends = []
            for option in options[:-1]:
                split = len(program)
                program.append(("split", split + 1, 0))
                _compile(option, program, names)
                ends.append(len(program))
                program.append(("jump", 0, 0))
                program[split] = ("split", split + 1, len(program))
            _compile(options[-1], program, names)
            for end in ends:
                program[end] = ("jump", len(program), 0)
        case patterns.Repeat(part=part, least=least, most=most):
            for _ in range(least):
                _compile(part, program, names)
            if most is None:
                split = len(program)
                program.append(("split", split + 1, 0))
                _compile(part, program, names)
                program.append(("jump", split, 0))
                program[split] = ("split", split + 1, len(program))
                return
            splits = []
            for _ in range(most - least):
                splits.append(len(program))
                program.append(("split", 0, 0))
                _compile(part, program, names)
            for split in splits:
                program[split] = ("split", split + 1, len(program))


def _successors(program: _Program, at: int) -> list[int]:
    """Return the states that can follow an instruction, in the order of preference."""
    found: list[int] = []
    seen: set[int] = set()
    waiting = [at]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        what, first, second = program[current]
        if what == "state":
            found.append(first)
        elif what == "accept":
            found.append(_ACCEPT)
        elif what == "jump":
            waiting.append(first)
        else:
            waiting += [second, first]
    return found


@dataclass(frozen=True, slots=True)
class Slot:
    """One row of a match to remember.

    Attributes:
        function: first, last, least or greatest.
        name: the rows to choose from; None for all.
        ranks: int64[n], by which rows are compared; None for first and last.
        present: bool[n], the rows that count; None for all.
    """

    function: str
    name: str | None
    ranks: Int64Array | None = None
    present: BoolArray | None = None


Test = BoolArray | Callable[[Int64Array, Int64Array], BoolArray]
"""Whether rows may have a name: bool[n], or of rows int64[t] with their memories int64[t, slots], that row included."""


@dataclass(frozen=True, slots=True)
class Matches:
    """m matches, in the order of their first rows.

    Attributes:
        firsts, lasts: int64[m], rows.
        memory: int64[m, slots], the row of each slot; −1 for none.
        classifiers: the names of the rows of each match, if needed.
    """

    firsts: Int64Array
    lasts: Int64Array
    memory: Int64Array
    classifiers: list[list[str]]


class Search:
    """A search for a pattern in sequences of rows.

    Args:
        tests: by name of the pattern; a name without one matches any row.
        times: int64[n], ascending.
    """

    def __init__(
        self,
        automaton: Automaton,
        tests: dict[str, Test],
        slots: Sequence[Slot],
        sequences: Sequences,
        times: Int64Array,
        limit_ticks: int,
    ) -> None:
        self._automaton = automaton
        self._sequences = sequences
        self._times = times
        self._limit = limit_ticks
        self._slots = slots
        names = sorted(set(automaton.names))
        self._tests = [tests.get(name) for name in names]
        self._slots_of = [[i for i, slot in enumerate(slots) if slot.name in (None, name)] for name in names]
        self._name_of_state = np.array([names.index(name) for name in automaton.names], dtype=np.int64)
        # What a definition reads of the memory is not known here, so all of it must be the same.
        self._with_memory = any(callable(test) for test in self._tests)

    def run(self, places: Int64Array, *, classify: bool = False) -> Matches:
        """Return the matches that begin at some places of the sequences."""
        count = len(places)
        self._lasts = np.full(count, _NONE)
        self._memory = np.full((count, len(self._slots)), _NONE)
        self._ends = np.zeros((count, 2), dtype=np.int64)
        self._steps: list[tuple[Int64Array, Int64Array]] = []
        starts = np.arange(count)
        states = np.full(count, _NONE)
        memory = np.full((count, len(self._slots)), _NONE)
        depth = 0
        while len(starts):
            sizes = np.diff(self._automaton.starts)[states + 1]
            threads = np.repeat(np.arange(len(starts)), sizes)
            targets = self._automaton.targets[ranges(self._automaton.starts[states + 1], sizes)]
            threads, targets = self._without_ends(threads, targets, starts, memory, places, depth)
            place = places[starts[threads]] + depth
            there = self._continues(places[starts[threads]], place, depth)
            threads, targets, place = threads[there], targets[there], place[there]
            starts, parents, states, memory = self._stepped(threads, targets, starts, memory, place)
            if classify:
                self._steps.append((parents, states))
            depth += 1
        found = np.flatnonzero(self._lasts >= 0)
        names = [self._names(start) for start in found.tolist()] if classify else []
        return Matches(self._sequences.rows[places[found]], self._lasts[found], self._memory[found], names)

    def _without_ends(
        self,
        threads: Int64Array,
        targets: Int64Array,
        starts: Int64Array,
        memory: Int64Array,
        places: Int64Array,
        depth: int,
    ) -> tuple[Int64Array, Int64Array]:
        """Record the threads that may end here, and cut off those after them."""
        ends = np.flatnonzero(targets == _ACCEPT)
        if depth and len(ends):
            of = starts[threads[ends]]
            firsts = ends[np.append(True, of[1:] != of[:-1])]
            ended = starts[threads[firsts]]
            self._lasts[ended] = self._sequences.rows[places[ended] + depth - 1]
            self._memory[ended] = memory[threads[firsts]]
            self._ends[ended] = np.column_stack([np.full(len(ended), depth - 1), threads[firsts]])
            behind = np.full(len(places), len(targets))
            behind[ended] = firsts
            kept = np.arange(len(targets)) < behind[starts[threads]]
        else:
            kept = targets != _ACCEPT
        return threads[kept], targets[kept]

    def _continues(self, began: Int64Array, place: Int64Array, depth: int) -> BoolArray:
        """Return whether the row at a place may continue a match that began at another."""
        there: BoolArray = place < len(self._sequences)
        at = np.where(there, place, 0)
        if depth:
            rows = self._sequences.rows
            there &= ~self._sequences.first[at] & (self._times[rows[at]] - self._times[rows[began]] < self._limit)
        return there

    def _stepped(
        self, threads: Int64Array, targets: Int64Array, starts: Int64Array, memory: Int64Array, place: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """Return the threads advanced by the rows at their places: starts, previous threads, states and memories."""
        rows = self._sequences.rows[place]
        names = self._name_of_state[targets]
        passed = np.ones(len(rows), dtype=np.bool_)
        memory = memory[threads]
        for name, test in enumerate(self._tests):
            of_name = np.flatnonzero(names == name)
            if not len(of_name):
                continue
            if isinstance(test, np.ndarray):
                passed[of_name] = test[rows[of_name]]
                of_name = of_name[passed[of_name]]
            for slot in self._slots_of[name]:
                memory[of_name, slot] = self._remembered(self._slots[slot], memory[of_name, slot], rows[of_name])
            if test is not None and not isinstance(test, np.ndarray):
                passed[of_name] = test(rows[of_name], memory[of_name])
        kept = np.flatnonzero(passed)
        kept = kept[self._distinct(starts[threads[kept]], targets[kept], memory[kept])]
        return starts[threads[kept]], threads[kept], targets[kept], memory[kept]

    def _remembered(self, slot: Slot, before: Int64Array, rows: Int64Array) -> Int64Array:
        match slot.function:
            case "first":
                return np.where(before == _NONE, rows, before)
            case "last":
                return rows
        assert slot.ranks is not None
        assert slot.present is not None
        ranks, old = slot.ranks[rows], slot.ranks[before]
        better = slot.present[rows] & ((before == _NONE) | (ranks < old if slot.function == "least" else ranks > old))
        return np.where(better, rows, before)

    def _distinct(self, starts: Int64Array, states: Int64Array, memory: Int64Array) -> Int64Array:
        """Return the first of all threads with the same future, in order."""
        if len(starts) < 2 or bool((starts[1:] != starts[:-1]).all()):
            return np.arange(len(starts))
        columns = [starts, states, *(memory.T if self._with_memory else ())]
        return np.sort(group(len(starts), (), columns).firsts)

    def _names(self, start: int) -> list[str]:
        """Return the names of the rows of a match, found backwards from its end."""
        depth, thread = self._ends[start].tolist()
        names = []
        while depth >= 0:
            parents, states = self._steps[depth]
            names.append(self._automaton.names[states[thread]])
            thread = int(parents[thread])
            depth -= 1
        return names[::-1]
