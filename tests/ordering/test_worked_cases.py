"""The documents' worked tables and the Trill demos: fate, reasons, stamp and both watermarks of every event."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ordering.logs import codes_of, verdicts
from tidegate import ordering
from tidegate.ordering import Carry, Policy, Stamps, SubstreamCarry

CASES = [json.loads(path.read_text()) for path in sorted((Path(__file__).parents[1] / "cases").glob("t[pr]*.json"))]
TRACED = [case for case in CASES if case.get("trace") and "timestamp_by" in case]


def policy_of(case: dict[str, Any]) -> Policy:
    given = case["policy"]
    return Policy.seconds(early=given["early"], late=given["late"], out_of_order=given["ooo"], action=given["action"])


def stamp_partition(case: dict[str, Any], events: list[dict[str, Any]]) -> Stamps:
    arrivals = np.array([ordering.parse_time(event["arrival"]) for event in events])
    if case["timestamp_by"] is None:
        return ordering.scan_arrival(arrivals, Carry())[0]
    times = np.array([ordering.parse_time(event["body"][case["timestamp_by"]]) for event in events])
    if not case.get("over"):
        return ordering.scan(times, arrivals, Carry(), policy_of(case))[0]
    # PartitionId, where it is among the columns, is the same within a partition.
    columns = [column for column in case["over"] if column != "PartitionId"]
    carry = SubstreamCarry()
    codes = codes_of(carry, [tuple(event["body"][column] for column in columns) for event in events])
    return ordering.scan_substreams(times, arrivals, codes, carry, policy_of(case))[0]


def text_of(time: int) -> str | None:
    return None if time == ordering.NO_TIME else ordering.format_time(time)


@pytest.mark.parametrize("case", TRACED, ids=lambda case: case["name"])
def test_trace_and_metrics(case: dict[str, Any]) -> None:
    said: dict[int, tuple[object, ...]] = {}
    metrics = dict.fromkeys(case["expected_metrics"], 0)
    for partition in {event["partition"] for event in case["inputs"]}:
        places = [i for i, event in enumerate(case["inputs"]) if event["partition"] == partition]
        stamps = stamp_partition(case, [case["inputs"][place] for place in places])
        said |= dict(zip(places, verdicts(stamps), strict=True))
        for name, count in ordering.counts(stamps).items():
            metrics[name] += count
    for step in case["trace"]:
        fate, reasons, *times = said[step["event"] - 1]
        assert (fate, sorted(reasons), *map(text_of, times)) == (
            step["fate"],
            sorted(step["reasons"]),
            step["system_timestamp"],
            step["watermark_event"],
            step["watermark"],
        ), step["event"]
    assert metrics == case["expected_metrics"]


def test_the_corpus_is_there() -> None:
    names = {case["name"] for case in TRACED}
    assert names >= {"tp01-seed12-early", "tp02-seed12-no-early", "tp03-seed12-substreams", "tp07-seed5-adjust"}


@pytest.mark.slow
def test_one_event_a_minute_over_sixteen_partitions() -> None:
    """The documents' advice for sparse inputs: row 0 leaves after the late tolerance, not after sixteen minutes."""
    case = next(case for case in CASES if case["name"] == "tp26-sparse-partitions-emission")
    start = ordering.parse_time(case["inputs"][0]["arrival"])

    def leaves_after(policy: Policy) -> int:
        for second in range(1_000):
            now = start + second * ordering.TICKS_PER_SECOND
            watermarks = []
            for partition in range(16):
                came = [
                    ordering.parse_time(event["arrival"])
                    for event in case["inputs"]
                    if event["partition"] == partition and ordering.parse_time(event["arrival"]) <= now
                ]
                column = np.array(came, dtype=np.int64)
                _, carry = ordering.scan(column, column, Carry(), policy)
                watermarks.append(ordering.watermark(carry.advance(now), policy))
            if ordering.merge(watermarks) >= start:
                return second
        raise AssertionError("the row never left")

    stated = {row["with_late_tolerance_seconds"]: row["leaves_after_seconds"] for row in case["emission"]}
    assert leaves_after(policy_of(case)) == stated[5]
    assert leaves_after(Policy.seconds(late=-1)) == stated[-1]
