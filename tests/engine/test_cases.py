"""The worked examples of the documents (tests/cases) whose queries the engine runs: the rows they state, over any cut
of the log."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.streams import SECOND, START, Events, program, task
from tidegate.engine import KeyedSide, Program
from tidegate.ordering import END_OF_TIME, NO_TIME, Carry, Policy, SubstreamCarry, format_time, parse_time

CASES = Path(__file__).parent.parent / "cases"
DISPUTED = {
    "d365-heartbeat-metrics-missing-fields": "the original query declares columns with CREATE TABLE, which loses both "
    "events; the case's text does not, so that the second event is one",
}


NAMES = [path.stem for path in sorted(CASES.glob("*.json")) if path.stem not in DISPUTED]


@cache
def case_of(name: str) -> tuple[dict[str, Any], Program]:
    """Return a case and its query, compiled when a test needs it and not in every process that collects the tests."""
    case = json.loads((CASES / f"{name}.json").read_text())
    of = program(
        case["query"],
        compatibility_level=case.get("compatibility_level", "1.2"),
        reference=case.get("reference_data"),
        functions={"udf.Hex2Int": from_hexadecimal},
    )
    return case, of


def from_hexadecimal(text: str) -> int:
    return int(text, 16)


def policy_of(case: dict[str, Any]) -> Policy:
    policy = case["policy"]
    if policy is None:
        return Policy.none()
    return Policy.seconds(
        early=policy["early"], late=policy["late"], out_of_order=policy["ooo"], action=policy["action"]
    )


def log_of(case: dict[str, Any]) -> dict[tuple[str, str], Events]:
    events: dict[tuple[str, str], list[tuple[int, Any]]] = {}
    for place, entry in enumerate(case["inputs"]):
        arrival = START + place * SECOND if entry["arrival"] is None else parse_time(entry["arrival"])
        body = entry["body"].encode() if isinstance(entry["body"], str) else entry["body"]
        events.setdefault((entry["input"], str(entry["partition"])), []).append((arrival, body))
    return {
        place: Events.of([body for _, body in found], [arrival for arrival, _ in found])
        for place, found in events.items()
    }


def rows_of(case: dict[str, Any], of: Program, batch: int) -> list[dict[str, Any]]:
    keyed = KeyedSide(of)
    partials = []
    for (name, partition), events in log_of(case).items():
        carry: Carry | SubstreamCarry = of.new_carry(name)
        for start in range(0, len(events), batch):
            partial, carry = task(of, name, partition, events.part(start, start + batch), policy_of(case), carry)
            partials.append(partial)
    order = np.random.default_rng(batch).permutation(len(partials))
    keyed.absorb([partials[place] for place in order])
    return [
        {"output": result.output, "timestamp": format_time(timestamp), "row": row}
        for result in keyed.emit(NO_TIME, END_OF_TIME)
        for timestamp, row in zip(result.timestamps.tolist(), result.to_dicts(), strict=True)
    ]


def same(expected: Any, got: Any) -> bool:
    if isinstance(expected, dict) and isinstance(got, dict):
        return expected.keys() == got.keys() and all(same(value, got[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(map(same, expected, got))
    numbers = isinstance(expected, (int, float)) and isinstance(got, (int, float))
    if numbers and not isinstance(expected, bool) and not isinstance(got, bool):
        return math.isclose(expected, got, rel_tol=1e-9)
    return type(expected) is type(got) and expected == got


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_the_rows_of_a_case(name: str, batch: int) -> None:
    case, of = case_of(name)
    left = rows_of(case, of, batch)
    for expected in case["expected"]:
        matching = [
            place
            for place, row in enumerate(left)
            if row["output"] == expected["output"]
            and expected["timestamp"] in (None, row["timestamp"])
            and same(expected["row"], row["row"])
        ]
        assert matching, f"missing {expected}"
        del left[matching[0]]
    if case.get("expected_complete", True):
        assert not left
