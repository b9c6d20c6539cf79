"""Throughput units: what gets through in a second, and what happens to what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.hub.support import NOW_S, batch, grant, message, open_namespace, publish
from tidegate.amqp.messages import BATCH_FORMAT
from tidegate.hub import ConfigError, EventHubConfig, NamespaceConfig
from tidegate.hub.config import Tier
from tidegate.hub.errors import QuotaExceeded, ServerBusy
from tidegate.hub.throughput import (
    EGRESS_BYTES,
    EGRESS_EVENTS,
    INGRESS_BYTES,
    INGRESS_EVENTS,
    RESERVED,
    Demand,
    Throughput,
    share_out,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


PUBLICATIONS = st.lists(
    st.tuples(st.floats(0, 0.5), st.integers(1, 1 << 20), st.integers(1, 2000)), min_size=1, max_size=60
)


@given(PUBLICATIONS, st.integers(1, 40))
def test_over_any_stretch_no_more_than_its_seconds_worth_and_one_publication_get_through(
    publications: Any, units: int
) -> None:
    clock = Clock()
    throughput = Throughput(units, clock_s=clock)
    passed: list[tuple[float, int, int]] = []
    for pause_s, size, count in publications:
        clock.now_s += pause_s
        if throughput.ingress_wait_s(size, count) == 0:
            passed.append((clock.now_s, size, count))
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            stretch_s = passed[last][0] - passed[first][0] + 1
            # the last may have gone into debt
            assert sum(p[1] for p in passed[first:last]) <= stretch_s * INGRESS_BYTES * units + 1
            assert sum(p[2] for p in passed[first:last]) <= stretch_s * INGRESS_EVENTS * units + 1


@given(PUBLICATIONS, st.integers(1, 40))
def test_who_waits_as_told_gets_through(publications: Any, units: int) -> None:
    clock = Clock()
    throughput = Throughput(units, clock_s=clock)
    for _, size, count in publications:
        wait_s = throughput.ingress_wait_s(size, count)
        if wait_s:
            clock.now_s += wait_s
            assert throughput.ingress_wait_s(size, count) == 0


@pytest.mark.parametrize(("size", "count"), [(INGRESS_BYTES // 10, 1), (1, INGRESS_EVENTS // 10)])
def test_bytes_and_events_each_have_their_limit(size: Any, count: Any) -> None:
    clock = Clock()
    throughput = Throughput(3, clock_s=clock)
    taken = sum(throughput.ingress_wait_s(size, count) == 0 for _ in range(100))
    assert 30 <= taken <= 31
    clock.now_s += 0.5
    assert 14 <= sum(throughput.ingress_wait_s(size, count) == 0 for _ in range(100)) <= 16


def test_what_goes_out_is_counted_apart() -> None:
    clock = Clock()
    throughput = Throughput(1, clock_s=clock)
    while throughput.ingress_wait_s(1000, 100) == 0:
        pass
    assert throughput.egress_wait_s() == 0
    throughput.spend_egress(EGRESS_BYTES // 2, EGRESS_EVENTS * 2)
    assert throughput.egress_wait_s() == pytest.approx(1, abs=0.01)
    clock.now_s += 1.1
    assert throughput.egress_wait_s() == 0


def test_auto_inflate_goes_up_step_by_step_to_its_maximum_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    throughput = Throughput(2, 4, clock_s=clock)
    taken = 0
    for _ in range(60):
        for _ in range(100):
            taken += throughput.ingress_wait_s(1, 100) == 0
        clock.now_s += 0.1
    assert throughput.units == 4
    steps = [record.getMessage() for record in caplog.records if record.name == "tidegate.hub.throughput"]
    assert steps == [
        "auto-inflate: from 2 to 3 throughput units of 4",
        "auto-inflate: from 3 to 4 throughput units of 4",
    ]
    # 6 s: the first burst, one second at 3 units, the rest at 4
    assert 200 <= taken <= 280


def test_a_namespace_is_as_large_as_its_units(tmp_path: Path) -> None:
    clock = Clock()
    hubs = (EventHubConfig(name="a"), EventHubConfig(name="b"))
    config = NamespaceConfig(name="ns", event_hubs=hubs, throughput_units=1)
    namespace = open_namespace(tmp_path, config, monotonic_s=clock)
    a, b = (namespace.open_publisher(hub, [grant(namespace)], NOW_S) for hub in ("a", "b"))
    publish(a, batch([message()] * 900), BATCH_FORMAT)
    # goes into debt: a batch is taken whole or not at all
    publish(b, batch([message()] * 600), BATCH_FORMAT)
    for publisher in (a, b):
        with pytest.raises(ServerBusy, match=r"throughput units \(1\) are used up; try again in 0\.50 s"):
            publish(publisher, message())
    assert namespace.event_hub("b").partition("0").log.next_sequence_number == 600
    clock.now_s += 0.52
    publish(a, message())
    namespace.management.create_event_hub(EventHubConfig(name="late"))
    clock.now_s += 10
    late = namespace.open_publisher("late", [grant(namespace)], NOW_S)
    publish(late, batch([message()] * 1000), BATCH_FORMAT)
    with pytest.raises(ServerBusy):
        publish(a, message())
    namespace.close()


def test_a_partition_takes_in_one_unit_however_many_there_are(tmp_path: Path) -> None:
    clock = Clock()
    hubs = (EventHubConfig(name="a", partition_count=2),)
    config = NamespaceConfig(name="ns", event_hubs=hubs, throughput_units=10)
    namespace = open_namespace(tmp_path, config, monotonic_s=clock)
    zero, one = (namespace.open_publisher(f"a/Partitions/{n}", [grant(namespace)], NOW_S) for n in (0, 1))
    publish(zero, batch([message()] * 1500), BATCH_FORMAT)
    with pytest.raises(ServerBusy, match=r"partition 0 takes in at most one throughput unit; try again in 0\.50 s"):
        publish(zero, message())
    publish(one, batch([message()] * 1000), BATCH_FORMAT)  # another partition has its own
    clock.now_s += 0.52
    publish(zero, message())
    clock.now_s += 100
    for _ in range(4):
        publish(zero, message(b"x" * 262_000))
    clock.now_s += 0.001
    publish(zero, message(b"x" * 10_000))
    with pytest.raises(ServerBusy, match="partition 0"):
        publish(zero, message())
    namespace.close()


def test_the_units_of_the_namespace_and_of_a_partition_are_used_up_together_or_not_at_all(tmp_path: Path) -> None:
    clock = Clock()
    hubs = (EventHubConfig(name="a", partition_count=2),)
    config = NamespaceConfig(name="n", event_hubs=hubs, throughput_units=1)
    namespace = open_namespace(tmp_path, config, monotonic_s=clock)
    zero, one = (namespace.open_publisher(f"a/Partitions/{n}", [grant(namespace)], NOW_S) for n in (0, 1))
    publish(zero, batch([message()] * 1000), BATCH_FORMAT)
    for _ in range(3):
        with pytest.raises(ServerBusy, match="namespace's throughput units"):
            publish(one, batch([message()] * 1000), BATCH_FORMAT)
    clock.now_s += 1.001
    publish(one, batch([message()] * 1000), BATCH_FORMAT)  # what was refused has used up nothing
    namespace.close()


TIERS = [(Tier.BASIC, 32, 0), (Tier.STANDARD, 32, 20), (Tier.PREMIUM, 100, 100)]


@pytest.mark.parametrize(("tier", "partitions", "groups"), TIERS)
def test_partitions_and_groups_follow_the_tier_under_throughput_units(
    tmp_path: Path, tier: Any, partitions: Any, groups: Any
) -> None:
    namespace = open_namespace(tmp_path, NamespaceConfig(name="n", tier=tier, throughput_units=1))
    names = tuple(f"g{number}" for number in range(groups))
    if groups < 100:
        with pytest.raises(QuotaExceeded, match=f"has {groups + 1} consumer groups besides .Default; the {tier.value}"):
            namespace.management.create_event_hub(EventHubConfig(name="a", consumer_groups=(*names, "more")))
    if partitions < 100:
        with pytest.raises(QuotaExceeded, match=f"has {partitions + 1} partitions; the {tier.value} tier allows"):
            namespace.management.create_event_hub(EventHubConfig(name="a", partition_count=partitions + 1))
    namespace.management.create_event_hub(EventHubConfig(name="a", partition_count=partitions, consumer_groups=names))
    with pytest.raises(QuotaExceeded, match=f"at most {groups} consumer groups"):
        namespace.management.create_consumer_group("a", "more")
    namespace.close()


def test_partitions_and_groups_of_a_configuration_follow_the_tier_too(tmp_path: Path) -> None:
    hub = EventHubConfig(name="a", partition_count=33, consumer_groups=tuple(f"g{number}" for number in range(21)))
    config = NamespaceConfig(name="n", event_hubs=(hub,), throughput_units=1)
    with pytest.raises(ConfigError, match="the event hub a has 33 partitions; the standard tier allows 32"):
        open_namespace(tmp_path / "units", config)
    namespace = open_namespace(tmp_path / "none", config.model_copy(update={"throughput_units": None}))
    namespace.management.create_consumer_group("a", "more")
    namespace.close()


def test_a_refused_publication_of_an_idempotent_producer_is_still_expected(tmp_path: Path) -> None:
    clock = Clock()
    config = NamespaceConfig(name="ns", event_hubs=(EventHubConfig(name="a"),), throughput_units=1)
    namespace = open_namespace(tmp_path, config, monotonic_s=clock)
    publisher = namespace.open_publisher("a/Partitions/0", [grant(namespace)], NOW_S, idempotent=True)

    def numbered(number: int) -> bytes:
        return message(
            **{
                "com.microsoft:producer-id": publisher.producer_id,
                "com.microsoft:producer-epoch": publisher.producer_epoch,
                "com.microsoft:producer-sequence-number": number,
            }
        )

    first = (publisher.producer_sequence_number or 0) + 1
    publish(publisher, batch([numbered(first + n) for n in range(1000)]), BATCH_FORMAT)
    with pytest.raises(ServerBusy):
        publish(publisher, numbered(first + 1000))
    clock.now_s += 1
    publish(publisher, numbered(first + 1000))
    assert namespace.event_hub("a").partition("0").log.next_sequence_number == 1001
    namespace.close()


def test_without_units_there_is_no_limit(tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path)
    publisher = namespace.open_publisher("tolls", [grant(namespace)], NOW_S)
    for _ in range(5):
        publish(publisher, batch([message()] * 2000), BATCH_FORMAT)
    namespace.close()


@pytest.mark.parametrize("wrong", [{"throughput_units": 41}, {"throughput_units": 0}, {"auto_inflate_to": 5}])
def test_units_are_one_to_forty_and_inflate_upwards(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        NamespaceConfig(name="ns", **wrong)
    with pytest.raises(ValidationError):
        NamespaceConfig(name="ns", throughput_units=5, auto_inflate_to=4)


class Gateways:
    """Gateways of one namespace that report once a second, and compute their shares from the reports."""

    def __init__(self, count: int, units: int, auto_inflate_to: int | None = None) -> None:
        self.clock = Clock()
        self.all = {str(number): Throughput(units, auto_inflate_to, self.clock) for number in range(count)}

    def run(self, seconds: int, load: dict[str, int]) -> dict[str, int]:
        """Publish at some gateways, in events a second, and return how many events each admitted."""
        admitted = dict.fromkeys(load, 0)
        for _ in range(seconds):
            for _ in range(20):
                self.clock.now_s += 0.05
                for gateway, events in load.items():
                    if self.all[gateway].ingress_wait_s(1, events // 20) == 0:
                        admitted[gateway] += events // 20
            demands = {gateway: throughput.demand() for gateway, throughput in self.all.items()}
            for gateway, throughput in self.all.items():
                throughput.share(gateway, demands)
        return admitted


@given(
    st.dictionaries(st.text(max_size=3), st.builds(Demand, st.floats(0, 50), st.booleans()), min_size=1, max_size=20),
    st.integers(1, 40),
)
def test_shares_are_all_units_and_leave_none_out(demands: Any, units: int) -> None:
    shares = share_out(units, demands)
    assert sum(shares.values()) == pytest.approx(units)
    assert min(shares.values()) >= units * RESERVED / len(demands) * 0.999
    limited = {gateway: shares[gateway] for gateway in demands if demands[gateway].is_limited}
    if limited:
        assert max(limited.values()) == pytest.approx(min(limited.values()))
        others = [shares[gateway] for gateway in demands if gateway not in limited]
        assert min(limited.values()) >= max(others, default=0) * 0.999


def test_the_only_busy_gateway_gives_out_nearly_all_units() -> None:
    gateways = Gateways(4, 8)
    gateways.run(2, {"0": 20_000})
    assert gateways.run(10, {"0": 20_000})["0"] >= 0.85 * 8 * INGRESS_EVENTS * 10


def test_busy_gateways_share_alike_and_give_out_no_more_than_all_units() -> None:
    gateways = Gateways(3, 6)
    gateways.run(2, {"0": 20_000})
    gateways.run(3, {"0": 20_000, "1": 20_000, "2": 500})
    admitted = gateways.run(20, {"0": 20_000, "1": 20_000, "2": 500})
    assert admitted["2"] == 500 * 20
    assert admitted["0"] == pytest.approx(admitted["1"], rel=0.1)
    # a bucket's worth at each gateway, and one publication into debt
    assert 0.9 * 20 * 6 * INGRESS_EVENTS <= sum(admitted.values()) <= 22 * 6 * INGRESS_EVENTS


def test_a_unit_is_added_when_gateways_need_it_together_not_when_one_share_is_small() -> None:
    gateways = Gateways(4, 4, auto_inflate_to=10)
    gateways.run(1, {})
    gateways.all["0"].ingress_wait_s(1, INGRESS_EVENTS * 2)
    assert gateways.all["0"].ingress_wait_s(1, 1) > 0
    assert gateways.all["0"].units == 4
    gateways.run(5, {str(number): 20_000 for number in range(4)})
    assert all((gateway.units or 0) > 4 for gateway in gateways.all.values())
