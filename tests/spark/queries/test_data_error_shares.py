"""A query over history that can use few of its events as they are says so, or ends."""

from __future__ import annotations

import logging

import pytest

from tests.job.equality import EPOCH
from tests.job.logs import prepared
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.model.errors import InputError
from tidegate.engine.sharding.payloads import Sharding
from tidegate.ordering import TICKS_PER_SECOND, Policy, format_time
from tidegate.spark.queries.data_error_shares import DataErrorShares
from tidegate.spark.queries.parcels import TimelineRun
from tidegate.spark.queries.shared_query import QueryOnShards, SharedProgram


def run(shares: DataErrorShares, late: int, count: int = 20) -> None:
    """Evaluate events of which so many are late by a minute."""
    program = prepared("SELECT t INTO result FROM input TIMESTAMP BY t").sharded()
    sharding = Sharding.of(program, 1)
    query = QueryOnShards(
        SharedProgram.of(program), Policy.seconds(late=5), sharding, parcel_events=7, data_errors=shares
    )
    log = RecordedLog(
        RecordedEvent(
            "0",
            EPOCH + at * TICKS_PER_SECOND,
            b'{"t": "%s"}' % format_time(EPOCH + (at - 60 * (at < late)) * TICKS_PER_SECOND).encode(),
        )
        for at in range(count)
    )
    end = log.ends()["0"]
    list(TimelineRun(query, ("input", "0")).parcels(log.range("0", 0, end.end).read_events(3), end))


def test_a_warning_names_the_share_and_an_example(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(DataErrorShares(warning=0.4), late=8)
        assert not caplog.records
        run(DataErrorShares(warning=0.4), late=9)
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith(
        "input 'input', partition 0: 9 of 20 events (45 %) were adjusted or rejected: LateInputEvent (the event's time"
    )
    assert "; for example event 0: {" in text


def test_a_query_ends_above_the_share_that_it_allows() -> None:
    run(DataErrorShares(stop=0.5), late=10)
    with pytest.raises(InputError, match=r"11 of 20 events \(55 %\).*data_error_stop_share \(0\.5\)"):
        run(DataErrorShares(stop=0.5), late=11)


def test_nothing_is_counted_where_nothing_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    run(DataErrorShares(), late=20)
    assert not caplog.records
