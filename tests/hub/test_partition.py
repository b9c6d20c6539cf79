"""Who may read a partition in a consumer group, and who evicts whom."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate.hub.errors import LinkStolen, QuotaExceeded
from tidegate.hub.partition import ReaderSlots


def test_a_level_evicts_all_who_read_without_one() -> None:
    slots, stolen = ReaderSlots(), []
    for name in "abc":
        slots.occupy(None, name, lambda _, name=name: stolen.append(name))
    owner = slots.occupy(0, "owner", lambda _: stolen.append("owner"))
    assert (stolen, len(slots)) == (["a", "b", "c"], 1)
    slots.vacate(owner)
    slots.occupy(None, "d", lambda _: None)
    assert len(slots) == 1


@given(st.lists(st.tuples(st.sampled_from(["occupy", "vacate"]), st.none() | st.integers(0, 3)), max_size=40))
def test_slots_against_the_rules(steps: list[Any]) -> None:
    slots = ReaderSlots()
    there: list[Any] = []
    evicted: set[Any] = set()
    for action, level in steps:
        if action == "vacate":
            if there:
                slots.vacate(there.pop(0))
            continue
        highest = max((slot.epoch for slot in there if slot.epoch is not None), default=None)
        room = highest is None and len(there) < 5
        allowed = room if level is None else highest is None or level >= highest
        evicted.clear()
        try:
            slot = slots.occupy(level, "r", lambda error: evicted.add(id(error)))
        except (LinkStolen, QuotaExceeded):
            assert not allowed
            continue
        assert allowed
        there = [slot] if level is not None else [*there, slot]
        assert len(slots) == len(there)
