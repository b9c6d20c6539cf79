"""Random faults while two gateways append and read: a seed draws them, and the histories are checked afterwards."""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from collections import Counter

import pytest

from tests.kafka.cluster import cluster
from tests.patience import PATIENCE_S
from tests.profiles import scaled
from tests.store.kafka.test_store import everything, gateway, new_topic, opened
from tidegate.log import Appended, LogError
from tidegate.store.kafka.log import KafkaLog

FAULTS = 20
SEED = int(os.environ.get("TIDEGATE_FAULT_SEED", "1"))
FAULT_KINDS = ("kill", "pause", "delay", "cut", "cut back", "reset", "cut brokers")


class Publisher(threading.Thread):
    """Appends batches of three, one after the other, and remembers what became of each."""

    def __init__(self, log: KafkaLog, name: str) -> None:
        super().__init__(daemon=True)
        self.log, self.publisher = log, name
        self.is_over = False
        self.acknowledged: list[int] = []
        self.attempted = 0
        self.longest_s = 0.0
        self._last_s = time.monotonic()

    def run(self) -> None:
        while not self.is_over:
            number, self.attempted = self.attempted, self.attempted + 1
            results: queue.SimpleQueue[Appended | LogError] = queue.SimpleQueue()
            self.log.append([f"{self.publisher}/{number}/{part}".encode() for part in range(3)], results.put)
            result = results.get(timeout=PATIENCE_S)
            if isinstance(result, Appended):
                self.acknowledged.append(number)
                self.longest_s = max(self.longest_s, time.monotonic() - self._last_s)
                self._last_s = time.monotonic()


@pytest.mark.soak
def test_faults_lose_double_and_reorder_nothing() -> None:
    draw = random.Random(SEED)
    with cluster(clients=("a", "b"), skew_ms={1: 30_000}) as brokers:
        where = new_topic(brokers)
        with gateway(brokers, "a") as a, gateway(brokers, "b") as b:
            logs = {"a": opened(a, where), "b": opened(b, where)}
            publishers = [Publisher(log, name) for name, log in logs.items()]
            for publisher in publishers:
                publisher.start()
            bounds = []
            for _ in range(scaled(FAULTS)):
                kind, node, client = draw.choice(FAULT_KINDS), draw.randrange(3), draw.choice("ab")
                link = brokers.to_broker["brokers" if kind == "cut brokers" else client, node]
                bounds.append(logs[client].arrival_lower_bound())
                if kind == "kill":
                    brokers.kill(node)
                elif kind == "pause":
                    brokers.pause(node)
                elif kind == "delay":
                    link.delay_s = 0.2
                elif kind == "reset":
                    link.reset()
                else:
                    link.cut(there=kind != "cut back")
                time.sleep(draw.uniform(0.2, 3))
                if kind == "kill":
                    brokers.start(node)
                elif kind == "pause":
                    brokers.resume(node)
                else:
                    link.mend()
                time.sleep(draw.uniform(0, 1))
            for publisher in publishers:
                publisher.is_over = True
                publisher.join(PATIENCE_S)
            found = everything(opened(a, where))
            assert found == everything(opened(b, where)), "every gateway reads the same"
    print(f"longest time without an acknowledgement: {max(one.longest_s for one in publishers):.1f} s")
    check_history(found, publishers)
    for bound in bounds:
        assert all(at >= bound.lower_bound_ms for number, at, _ in found if number >= bound.next_sequence_number)


def check_history(found: list[tuple[int, int, bytes]], publishers: list[Publisher]) -> None:
    """Check that all that was acknowledged is there once, whole and in order, and that nothing else is."""
    times = [at for _, at, _ in found]
    assert times == sorted(times)
    numbers = [number for number, _, _ in found]
    assert numbers == sorted(set(numbers))
    bodies = [body.decode() for _, _, body in found]
    for first in range(0, len(bodies), 3):
        name, number, _ = bodies[first].split("/")
        assert bodies[first : first + 3] == [f"{name}/{number}/{part}" for part in range(3)], "batches are whole"
    for publisher in publishers:
        stored = [int(body.split("/")[1]) for body in bodies[::3] if body.startswith(publisher.publisher)]
        known = set(publisher.acknowledged)
        in_order = [number for number in stored if number in known]
        assert in_order == publisher.acknowledged, "acknowledged, once and in order"
        assert set(stored) <= set(range(publisher.attempted)), "none was invented"
        assert max(Counter(stored).values(), default=0) <= 1
