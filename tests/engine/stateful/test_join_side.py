"""The rows that a side of a join holds, and joins over rows that are held in many small parts."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.stateful.test_operators import RULES, Event, logs
from tests.engine.streams import Events, task
from tidegate.engine import KeyedSide
from tidegate.engine.expressions.frames import Frame
from tidegate.engine.stateful import join_operator
from tidegate.engine.stateful import join_operator as join_side
from tidegate.engine.stateful.join_operator import HeldRows, neighbours
from tidegate.engine.stateful.joins import Reach
from tidegate.engine.substreams import watermarks
from tidegate.engine.substreams.watermarks import Waiting
from tidegate.engine.values.vectors import Vector
from tidegate.job.runtime.state_store import StateStore
from tidegate.ordering import END_OF_TIME, NO_TIME, Policy

WIDTH = 3


def reaching(frame: Frame) -> Reach:
    return Reach(frame.times - WIDTH, frame.times + WIDTH)


def rows(times: list[int], first: int = 0) -> HeldRows:
    """Rows whose number is their order and their key."""
    numbers = first + np.arange(len(times))
    frame = Frame(np.array(times, dtype=np.int64), aggregates=(Vector.bigints(numbers),), order=(numbers,))
    return HeldRows.of(frame, reaching(frame), marked=True)


parts = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), max_size=5)


@given(parts, st.lists(st.integers(0, 40), min_size=1, max_size=3), st.integers(0, 40), st.integers(1, 6))
def test_neighbours_are_the_held_rows_that_may_meet_the_others(
    steps: list[list[int]], others: list[int], passed: int, most: int
) -> None:
    held: Waiting[HeldRows] = Waiting()
    model: dict[int, int] = {}
    with mock.patch.object(watermarks, "SMALL_ROWS", 4), mock.patch.object(join_side, "_MOST_ROWS", most):
        for times in steps:
            first = len(model)
            held.append(rows(times, first))
            model |= dict(enumerate(times, first))
        held.discard(lambda part: part.table.times < passed)
        other = rows(others)
        near = {
            number
            for number, time in model.items()
            if time >= passed and time - WIDTH <= max(others) + WIDTH and time + WIDTH >= min(others) - WIDTH
        }
        found = list(neighbours(held.parts, reaching, other))
        assert [number for some in found for number in some.keys[0].to_list()] == sorted(near)
        for some in found:
            backwards = np.arange(len(some))[::-1]
            assert some.take(backwards).order[0].tolist() == some.keys[0].to_list()[::-1]
            some.mark(backwards[::2])
        marked = {number for some in found for number in some.keys[0].to_list()[::-1][::2]}
        kept = [part.rest() for part in held.parts]
    assert {
        number
        for one in kept
        if one.matched is not None
        for number, matched in zip(one.frame.order[0].tolist(), one.matched.tolist(), strict=True)
        if matched
    } == marked


def test_a_part_out_of_reach_is_not_read() -> None:
    held: Waiting[HeldRows] = Waiting()
    with mock.patch.object(watermarks, "SMALL_ROWS", 0):
        for first in range(0, 1000, 10):
            held.append(rows(list(range(first, first + 10)), first))
    read: list[int] = []

    def watched(frame: Frame) -> Reach:
        read.append(int(frame.times[0]))
        return reaching(frame)

    assert [len(some) for some in neighbours(held.parts, watched, rows([500]))] == [2 * WIDTH + 2 * WIDTH + 1]
    assert read == [490, 500]


@pytest.mark.parametrize("name", ["inner", "left_outer"])
@given(log=logs(), data=st.data())
def test_a_join_is_the_same_from_small_parts_mapped_from_a_disk(
    name: str, log: list[Event], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rule, of = RULES[name]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(log)), max_size=6)) | {0, len(log)})
    store, stored, released = StateStore(tmp_path_factory.mktemp("state")), None, NO_TIME
    carry = of.new_carry("a")
    found: list[tuple[int, object]] = []
    with (
        mock.patch.object(watermarks, "SMALL_ROWS", 3),
        mock.patch.object(join_side, "_MOST_ROWS", 2),
        mock.patch.object(join_operator, "_MOST_PAIRS", 2),
        mock.patch("tidegate.job.runtime.state_store.IN_TREE_BYTES", 0),
    ):
        for version, (begin, end) in enumerate(zip(cuts, [*cuts[1:], len(log)], strict=True)):
            keyed = KeyedSide(of)
            if stored is not None:
                stored = store.load("shard", version - 1)
                keyed.state = stored.value
            events = Events.of([body for _, body in log[begin:end]], [time for time, _ in log[begin:end]])
            partial, carry = task(of, "a", "0", events, Policy.none(), carry)
            keyed.absorb([partial])
            last = end == len(log)
            complete = of.complete_before(END_OF_TIME if last else log[end - 1][0] if end else NO_TIME)
            for result in keyed.emit(released, complete) if complete > released else ():
                found += zip(result.timestamps.tolist(), result.to_dicts(), strict=True)
            released = max(released, complete)
            stored = store.save("shard", version, keyed.state, stored)
            if last:
                break
    assert sorted(found, key=repr) == sorted(rule(log), key=repr)
    assert [time for time, _ in found] == sorted(time for time, _ in found)
