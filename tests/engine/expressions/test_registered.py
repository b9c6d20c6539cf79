"""What registered functions may return: a value, or their row fails and says why."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any

import pytest

from tidegate.engine.expressions.registered import accumulator, available, caller, first_raised
from tidegate.engine.values.vectors import Failure, Reason

FAILED = Failure(Reason.FUNCTION_FAILED)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("\ud800", "text with half of a surrogate pair"),
        ({"\ud800": 1}, "a dict with something else inside"),
        (nested(5_000), "a list with something else inside, or nested too deeply"),
        (OrderedDict(a=1), "an object of type OrderedDict"),
        (datetime(2026, 1, 1, tzinfo=UTC), "an object of type datetime"),
        (2**63, "int out of range"),
        (float("nan"), "float out of range, or not a number"),
    ],
    ids=["surrogate", "name", "deep", "subclass", "datetime", "int", "nan"],
)
def test_what_is_no_value_fails_its_row_and_is_named(returned: Any, said: str) -> None:
    class Returns:
        def accumulate(self, value: Any) -> None:
            pass

        def compute_result(self) -> Any:
            return returned

    for name in ("udf.f", "uda.f"):
        with available({"udf.f": lambda: returned, "uda.f": Returns}):
            assert (caller(name)() if name == "udf.f" else accumulator(name).result()) == FAILED
            assert f"TypeError: it returned {said}" in first_raised()


def test_values_are_returned_as_they_are() -> None:
    for value in (None, True, 2**63 - 1, 0.5, "é\U0001f600", {"a": [1, None]}, nested(100)):
        with available({"udf.f": lambda value=value: value}):
            assert caller("udf.f")() == value
