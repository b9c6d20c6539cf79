import json
from pathlib import Path

import numpy as np
from hypothesis import given

from tests.ordering.logs import Event, codes_of, logs, policies
from tests.ordering.oracle import Partition
from tidegate import ordering
from tidegate.ordering import Carry, Policy, explain

TOLLS = json.loads((Path(__file__).parents[1] / "cases" / "tp01-seed12-early.json").read_text())


def explain_tolls(policy: Policy) -> list[ordering.Explanation]:
    carry, explained = Carry(), []
    for event in TOLLS["inputs"]:
        time, arrival = ordering.parse_time(event["body"]["EventTime"]), ordering.parse_time(event["arrival"])
        explained.append(explain(time, arrival, carry, policy))
        _, carry = ordering.scan(np.array([time]), np.array([arrival]), carry, policy)
    return explained


def test_the_documents_table_is_told_as_the_documents_tell_it() -> None:
    told = [str(one) for one in explain_tolls(Policy.seconds(late=300, out_of_order=120))]
    assert "6 min ahead of its arrival" in told[2]
    assert "early arrival window of 5 min: an Early Input Event, always dropped" in told[2]
    assert "The watermark stays at 2019-01-01T12:06:00Z." in told[2]
    assert "No rule touches it" in told[3]
    assert "goes from 2019-01-01T12:06:00Z to 2019-01-01T12:08:00Z" in told[3]
    assert (
        "The watermark stood at 2019-01-01T12:17:00Z, the largest time seen (2019-01-01T12:19:00Z) less the "
        "out-of-order tolerance of 2 min: an Out-of-Order Event, moved up to the watermark."
    ) in told[5]
    assert "late arrival tolerance of 5 min: a Late Input Event, moved to 2019-01-01T12:22:00Z" in told[11]
    assert "System.Timestamp is 2019-01-01T12:22:00Z, 1 min after its own time" in told[11]


def test_dropping_is_told_as_dropping() -> None:
    told = [str(one) for one in explain_tolls(Policy.seconds(late=300, out_of_order=120, action="drop"))]
    assert "an Out-of-Order Event, dropped." in told[5]
    assert "a Late Input Event, dropped." in told[11]
    assert "System.Timestamp is" not in told[5] + told[11]


def test_an_unreadable_event_is_told_by_the_services_error_names() -> None:
    explained = explain(None, ordering.parse_time("2019-01-01"), Carry(), Policy(), null_key=True)
    assert explained.reasons == ordering.INVALID_TIMESTAMP | ordering.INVALID_KEY
    assert explained.fate == ordering.DROPPED
    assert "InvalidInputTimeStamp)" in str(explained)
    assert "InvalidInputTimeStampKey" in str(explained)
    assert "arrived at 2019-01-01T00:00:00Z" in str(explained)


def test_an_estimate_that_overshot_is_named() -> None:
    late = ordering.TICKS_PER_MINUTE
    clock = ordering.parse_time("2019-01-01T12:00:00Z")
    explained = explain(clock - 3 * late, clock - 2 * late, Carry(arrival=clock), Policy(late_ticks=late))
    assert explained.reasons == ordering.OUT_OF_ORDER
    assert explained.system_timestamp == clock - late
    assert "by the arrival clock, which had already been taken to be at 2019-01-01T12:00:00Z" in str(explained)


def test_one_tick_is_told() -> None:
    base = ordering.parse_time("2019-01-01T12:00:00Z")
    assert "12:00:00.0000001Z, arrival" in str(explain(base + 1, base, Carry(), Policy()))


@given(logs(keys=2), policies)
def test_an_explanation_says_what_happened(events: list[Event], policy: Policy) -> None:
    oracle, carry = Partition(policy), ordering.SubstreamCarry()
    for event in events:
        code = codes_of(carry, [event.key])
        explained = explain(event.time, event.arrival, carry.timeline(int(code[0])), policy, null_key=event.key is None)
        verdict = oracle.event(event.time, event.arrival, event.key)
        assert explained.system_timestamp == verdict.system_timestamp
        assert ("ok", "adjusted", "dropped")[explained.fate] == verdict.fate
        assert explained.watermark_after == (ordering.NO_TIME if verdict.watermark is None else verdict.watermark)
        time = np.array([event.time or 0])
        _, carry = ordering.scan_substreams(
            time, np.array([event.arrival]), code, carry, policy, np.array([event.time is not None])
        )
