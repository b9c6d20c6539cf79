"""What saturates first with many gateways over one cluster of Kafka: a simulation from costs that are measured here.

    python -m benchmarks.gateways_simulation [--gateways N] [--million-events N] [--brokers N] [--partitions N]

*Measured*, in processor time of one core, with three brokers of this machine. A gateway: for each event that is
published in batches of 100 and one by one, and for each that is delivered (`hub_gateways` has the same loads). A
request of its client to a broker, and a record of the topic that gateways share, applied. Brokers: Produce requests
with 1 and 16 record batches of 1, 100 and 1,000 events are sent to one leader; least squares give the cost of a
request, of a batch and of an event, for the leader and for the two other replicas together. Fetch requests of one batch
and of a megabyte give those of a request and of a byte.

*Assumed*: events of 200 bytes, evenly spread over partitions, publishers over gateways; one consumer group that reads
everything through gateways, and one job that reads the topic itself; a gateway has a core, a broker 16, a network of 10
and 25 Gbit/s each way, and a broker's disk takes 1 GB/s; an acknowledgement takes 5 ms unless brokers are busy. The
processors of this machine are those of the cluster. Kafka's controllers are left out: they take part in no request of a
gateway but to create and delete hubs. A broker has about five connections of each gateway.

*Simulated*: what each resource has to do. A gateway has one Produce request under way to each broker, which carries
what waits for its partitions, so the slower the brokers answer, the larger the batches. A resource's limit is the rate
at which it is busy all the time, with acknowledgements of 5 ms and, if it becomes cheaper then, with ones of 100 ms.

Kafka's jars come from Maven Central, as for the tests (`mvn`, Java 17).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.hub_throughput import BATCH_EVENTS, BATCH_FORMAT, IN_FLIGHT_BATCHES, IN_FLIGHT_SINGLES, batch, event
from benchmarks.hub_workers import CLIENTS, UpProcess, delivering, publishing
from tests.kafka.cluster import Cluster as Brokers
from tests.kafka.cluster import cluster
from tidegate.kafka.records import decode, encode, parse_batch
from tidegate.store import read_settings
from tidegate.store.client.cluster import Cluster, TopicPartition
from tidegate.store.kafka.records import encode_messages
from tidegate.store.kafka.shared import SharedState

EVENT_BYTES = 200
LEADER, TOPIC, PARTITIONS = 0, "simulated", 16
ACKNOWLEDGED_S, PATIENT_S = 0.005, 0.1
BEATS_PER_S, BEAT_BYTES = 1.0, 250
FOLLOWS_PER_S = 200.0
"""Fetch requests a second of a gateway to a broker at most: each waits for its answer, and is answered at once."""
LOOKUPS_PER_S, REQUESTS_OF_LOOKUP = 20.0, 7
"""How many ends of partitions without readers a gateway looks up in a second at most, and with how many requests."""


@dataclass(frozen=True)
class Costs:
    """Processor time of one core, µs."""

    gateway_batched: float
    gateway_single: float
    gateway_delivered: float
    gateway_request: float
    shared_record: float
    leader_request: float
    leader_batch: float
    leader_event: float
    replicas_request: float
    replicas_batch: float
    replicas_event: float
    fetch_request: float
    fetch_megabyte: float


@dataclass(frozen=True)
class Load:
    """What there is, and what it has to do. Rates are those of all gateways together."""

    events_per_s: float
    publisher_batch: int = 100
    gateways: int = 100
    brokers: int = 20
    partitions: int = 2000
    groups: int = 1
    jobs: int = 1
    acknowledged_s: float = ACKNOWLEDGED_S
    follows_all: bool = False
    """Whether a gateway fetches what others append to a partition that it serves no reader of."""
    cores_of_broker: int = 16
    gateway_bytes_per_s: float = 1.25e9
    broker_bytes_per_s: float = 3.125e9
    disk_bytes_per_s: float = 1e9


def produced(load: Load) -> tuple[float, float]:
    """Return the Produce requests and the record batches of a second, of all gateways.

    In one round a gateway sends a broker one request, with one record batch for each partition that something waits
    for. With λ publications in a round and p partitions, that is p(1 - exp(-λ/p)) of them on average.
    """
    rounds_per_s = load.gateways * load.brokers / load.acknowledged_s
    publications = load.events_per_s / load.publisher_batch / rounds_per_s
    led = load.partitions / load.brokers
    batches = led * -math.expm1(-publications / led)
    return rounds_per_s * -math.expm1(-publications), rounds_per_s * batches


def fetched_copies(load: Load) -> float:
    """Return how many times gateways fetch each event."""
    readers = min(load.gateways, load.groups)
    return load.gateways - 1 + readers / load.gateways if load.follows_all else readers


def usage(load: Load, costs: Costs) -> dict[str, float]:
    """Return for each resource which share of it is in use; 1 is all of it."""
    requests, batches = produced(load)
    copies = fetched_copies(load)
    follows = min(load.gateways * load.brokers * FOLLOWS_PER_S, batches * copies)
    direct = load.events_per_s * EVENT_BYTES / 4e6 * load.jobs  # a task fetches 4 MB at once
    unread = max(0.0, load.partitions * (1 - copies / load.gateways))
    lookups = load.gateways * min(unread, LOOKUPS_PER_S) * REQUESTS_OF_LOOKUP
    bytes_per_s = load.events_per_s * EVENT_BYTES
    beats = load.gateways * BEATS_PER_S
    published_us = costs.gateway_batched if load.publisher_batch > 1 else costs.gateway_single
    gateway_us = load.events_per_s * (published_us + costs.gateway_delivered * load.groups)
    # who follows without readers takes the records apart, which is most of what delivering them takes
    gateway_us += load.events_per_s * max(0.0, copies - load.groups) * costs.gateway_delivered / 2
    gateway_us += lookups * costs.gateway_request + beats * load.gateways * costs.shared_record
    broker_us = requests * (costs.leader_request + costs.replicas_request)
    broker_us += batches * (costs.leader_batch + costs.replicas_batch)
    broker_us += load.events_per_s * (costs.leader_event + costs.replicas_event)
    broker_us += (follows + direct + lookups + beats * load.gateways) * costs.fetch_request
    broker_us += bytes_per_s / 1e6 * (copies + load.jobs) * costs.fetch_megabyte
    shared_us = beats * (costs.leader_request + costs.leader_batch + costs.leader_event)
    shared_us += beats * load.gateways * costs.fetch_request
    return {
        "gateways: processors": gateway_us / 1e6 / load.gateways,
        "gateways: network": bytes_per_s * (1 + max(copies, load.groups)) / load.gateways / load.gateway_bytes_per_s,
        "brokers: processors": broker_us / 1e6 / (load.brokers * load.cores_of_broker),
        "brokers: network, out": bytes_per_s * (2 + copies + load.jobs) / load.brokers / load.broker_bytes_per_s,
        "brokers: network, in": bytes_per_s * 3 / load.brokers / load.broker_bytes_per_s,
        "brokers: disks": bytes_per_s * 3 / load.brokers / load.disk_bytes_per_s,
        "the shared topic's broker": shared_us / 1e6 / load.cores_of_broker
        + beats * load.gateways * BEAT_BYTES / load.broker_bytes_per_s,
    }


def claimed_again_s(load: Load, costs: Costs) -> float:
    """Return how long it takes at least until all readers have their partitions again after they lost them at once.

    Every gateway applies every claim, and the withdrawal of the one before.
    """
    return 2 * load.partitions * load.groups * costs.shared_record / 1e6


def limit(load: Load, costs: Costs, resource: str) -> float:
    """Return the events of a second at which a resource is busy all the time, infinity if nothing makes it so."""

    def is_free(events_per_s: float) -> bool:
        tried = (replace(load, events_per_s=events_per_s, acknowledged_s=at) for at in (ACKNOWLEDGED_S, PATIENT_S))
        return min(usage(one, costs)[resource] for one in tried) < 1

    low, high = 0.0, 1e12
    if is_free(high) or not is_free(1.0):
        return math.inf if is_free(high) else 0.0
    while high - low > 1000:
        middle = (low + high) / 2
        low, high = (middle, high) if is_free(middle) else (low, middle)
    return low


# -- measuring


def cpu_s(pid: int) -> float:
    """What a process has used so far."""
    found = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(found[11]) + int(found[12])) / 100


def measure_gateway(address: str, events: int = 60_000) -> dict[str, float]:
    """Costs of a gateway for an event."""
    loads: dict[str, tuple[int, Callable[[UpProcess], None]]] = {
        "gateway_batched": (
            events,
            lambda hub: publishing(hub, batch(), BATCH_FORMAT, events // BATCH_EVENTS, IN_FLIGHT_BATCHES),
        ),
        "gateway_single": (events // 2, lambda hub: publishing(hub, event(), 0, events // 2, IN_FLIGHT_SINGLES)),
        "gateway_delivered": (events, lambda hub: delivering(hub, events)),
    }
    with tempfile.TemporaryDirectory() as name:
        hub = UpProcess(Path(name) / "gateway", 1, "--store", f"kafka://{address}")
        found: dict[str, list[float]] = {load: [] for load in loads}
        for _ in range(3):
            for load, (each, run) in loads.items():
                before_s = hub.cpu_seconds()
                run(hub)
                found[load].append((hub.cpu_seconds() - before_s) / (CLIENTS * each) * 1e6)
        hub.stop()
    return {load: float(np.median(costs)) for load, costs in found.items()}


async def measure_brokers(brokers: Brokers) -> dict[str, float]:
    """Costs of brokers, and of a gateway's requests to them."""
    client = Cluster(read_settings(brokers.clients["a"]))
    await client.refresh([TOPIC])
    pids = brokers.pids
    others = [pid for node, pid in pids.items() if node != LEADER]
    rows: list[tuple[int, int, int]] = []
    leader_us: list[float] = []
    replicas_us: list[float] = []
    own_us = 0.0
    for count, size, requests in ((1, 1, 1500), (16, 1, 600), (1, 100, 1500), (16, 100, 200), (1, 1000, 300)):
        encoded = encode_messages([b"x" * EVENT_BYTES] * size, 0, (-1, -1, -1))
        batches = {TopicPartition(TOPIC, number): encoded for number in range(count)}
        for is_warm in (False, True):
            before = cpu_s(pids[LEADER]), sum(map(cpu_s, others)), time.process_time()
            for _ in range(requests):
                await client.produce(LEADER + 1, batches, 10)
            if is_warm:
                rows.append((1, count, count * size))
                leader_us.append((cpu_s(pids[LEADER]) - before[0]) / requests * 1e6)
                replicas_us.append((sum(map(cpu_s, others)) - before[1]) / requests * 1e6)
                own_us = own_us or (time.process_time() - before[2]) / requests * 1e6
    found = {"gateway_request": own_us}
    for side, measured in (("leader", leader_us), ("replicas", replicas_us)):
        weights = 1 / np.array(measured)  # relative errors count, or the largest request decides
        solved, *_ = np.linalg.lstsq(np.array(rows) * weights[:, None], np.ones(len(rows)), rcond=None)
        found |= {
            f"{side}_{what}": max(0.0, float(one))
            for what, one in zip(("request", "batch", "event"), solved, strict=True)
        }
    fetched_us: list[float] = []
    megabytes: list[float] = []
    for max_bytes, requests in ((1, 2000), (1 << 20, 300)):
        for is_warm in (False, True):
            before_s, size = cpu_s(pids[LEADER]), 0
            for _ in range(requests):
                size += len((await client.fetch_one(TopicPartition(TOPIC, 0), 0, max_bytes=max_bytes)).records)
            if is_warm:
                fetched_us.append((cpu_s(pids[LEADER]) - before_s) / requests * 1e6)
                megabytes.append(size / requests / 1e6)
    found["fetch_megabyte"] = max(0.0, (fetched_us[1] - fetched_us[0]) / (megabytes[1] - megabytes[0]))
    found["fetch_request"] = fetched_us[0]
    await client.close()
    return found


def measure_shared_record(count: int = 20_000) -> dict[str, float]:
    """The cost of a sign of life of another gateway, read and applied."""
    report = {"beat": 1, "report": {"ingress": [1.0, 2.0], "egress": [3.0, 4.0]}}
    encoded = encode([json.dumps(report).encode()], timestamps_ms=[0], keys=[b"beat/0123456789ab"])
    state = SharedState()
    state.apply(0, "gateway/0123456789ab", {"started": 1.0})
    before_s = time.process_time()
    for offset in range(count):
        found = parse_batch(encoded)
        found.check()
        columns = decode(found)
        state.apply(offset, (columns.keys[0] or b"").decode(), json.loads(columns.values[0] or b""))
    return {"shared_record": (time.process_time() - before_s) / count * 1e6}


def measure() -> Costs:
    """Measure all costs."""
    with cluster(clients=("a",)) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.clients["a"]})
        order = [LEADER + 1, *(node + 1 for node in brokers.nodes if node != LEADER)]
        settings = {"min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}
        topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=[order] * PARTITIONS, config=settings)
        admin.create_topics([topic])[TOPIC].result()
        found: Mapping[str, float] = {
            **measure_gateway(brokers.clients["a"]),
            **asyncio.run(measure_brokers(brokers)),
            **measure_shared_record(),
        }
    return Costs(**found)


def main() -> None:
    """Measure, simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", type=int, default=100)
    parser.add_argument("--million-events", type=float, default=10.0, help="a second")
    parser.add_argument("--brokers", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=2000)
    given = parser.parse_args()
    costs, console = measure(), Console(width=140)
    measured = Table(title="measured, \u00b5s of processor time")
    for one in fields(costs):
        measured.add_column(one.name.replace("_", " "), justify="right")
    measured.add_row(*(f"{getattr(costs, one.name):.1f}" for one in fields(costs)))
    console.print(measured)
    load = Load(given.million_events * 1e6, gateways=given.gateways, brokers=given.brokers, partitions=given.partitions)
    cases = {
        "batches of 100": load,
        "single events": replace(load, publisher_batch=1),
        "single, acknowledged after 100 ms": replace(load, publisher_batch=1, acknowledged_s=PATIENT_S),
        "batches, if every gateway fetched all": replace(load, follows_all=True),
    }
    table = Table(
        title=f"{given.gateways} gateways, {given.brokers} brokers, {given.partitions} partitions: share in use at "
        f"{given.million_events:g} million events a second, and million events a second at which all is in use"
    )
    table.add_column("resource")
    for name in cases:
        table.add_column(name, justify="right")
    used = {name: usage(case, costs) for name, case in cases.items()}
    for resource in used["batches of 100"]:
        row = []
        for name, case in cases.items():
            most = limit(case, costs, resource)
            text = "\u221e" if math.isinf(most) else f"{most / 1e6:.1f}"
            row.append(f"{used[name][resource]:.1%}, {text}")
        table.add_row(resource, *row)
    console.print(table)
    for name, case in cases.items():
        first = max(used[name], key=lambda resource: used[name][resource])
        requests, batches = produced(case)
        console.print(
            f"{name}: {first} saturate first; {requests:,.0f} Produce requests a second with "
            f"{batches / requests:.1f} record batches of {case.events_per_s / batches:.1f} events each"
        )
    console.print(f"all {load.partitions * load.groups:,} readers are back after {claimed_again_s(load, costs):.2f} s")


if __name__ == "__main__":
    main()
