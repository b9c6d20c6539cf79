"""How many rows operators take and release."""

from __future__ import annotations

from tidegate.engine.program.partial import OperatorRows


def counted(taken: dict[tuple[int, int], int], released: dict[int, int]) -> OperatorRows:
    rows = OperatorRows()
    rows.taken.update(taken)
    rows.released.update(released)
    return rows


def test_what_several_places_counted_adds_up_by_operator_and_side() -> None:
    total = OperatorRows.sum([counted({(0, 0): 3, (1, 1): 2}, {0: 1}), counted({(0, 0): 4}, {0: 2, 1: 5})])
    assert total == counted({(0, 0): 7, (1, 1): 2}, {0: 3, 1: 5})
    assert OperatorRows.sum([]) == OperatorRows()
