"""Readers behind a gate take turns; the loop and its clock are the test's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.hub.throughput import EGRESS_BYTES, Throughput
from tidegate.server.context.readers import EgressGate


class Loop:
    """As much of an event loop as the gate asks for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, action: Callable[[], None]) -> Any:
        self.timers.append((self.now_s + delay_s, action))
        return object()

    def run_until(self, end_s: float) -> None:
        while self.timers and min(self.timers, key=lambda timer: timer[0])[0] <= end_s:
            timer = min(self.timers, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now_s = timer[0]
            timer[1]()
        self.now_s = end_s


CHUNK = 256 << 10


def reader(loop: Loop, gate: EgressGate, sent: list[int]) -> Callable[[], None]:
    """Sends a chunk when it may, and continues in the loop's next turn."""

    def pump() -> None:
        if gate.may_send(pump):
            gate.sent(CHUNK, 1)
            sent[0] += CHUNK
            loop.call_later(0, pump)

    return pump


def test_readers_share_what_goes_out_evenly_and_none_is_cut() -> None:
    loop = Loop()
    gate = EgressGate(Throughput(2, clock_s=lambda: loop.now_s), loop)
    sent = [[0] for _ in range(5)]
    for counts in sent:
        reader(loop, gate, counts)()
    loop.run_until(20.0)
    total = sum(counts[0] for counts in sent)
    # a second's worth at once, then the rate
    assert 20 * 2 * EGRESS_BYTES <= total <= 21 * 2 * EGRESS_BYTES + 5 * CHUNK
    waiting = [counts[0] for counts in sent[1:]]
    assert max(waiting) - min(waiting) <= 4 * CHUNK


def test_who_is_gone_is_not_called() -> None:
    loop = Loop()
    gate = EgressGate(Throughput(1, clock_s=lambda: loop.now_s), loop)
    gate.sent(EGRESS_BYTES * 2, 1)
    called: list[str] = []
    readers = {name: (lambda name=name: called.append(name)) for name in ("a", "b")}
    for action in readers.values():
        assert not gate.may_send(action)
    gate.forget(readers["a"])
    loop.run_until(5.0)
    assert called == ["b"]


def test_who_waits_goes_on_when_the_limit_is_taken_away() -> None:
    loop = Loop()
    throughput = Throughput(1, clock_s=lambda: loop.now_s)
    gate = EgressGate(throughput, loop)
    gate.sent(EGRESS_BYTES * 100, 1)
    called: list[float] = []

    def waiting() -> None:
        called.append(loop.now_s)

    assert not gate.may_send(waiting)
    throughput.set(None)
    assert not gate.is_limiting
    loop.run_until(1000.0)
    assert len(called) == 1
