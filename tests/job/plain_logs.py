"""Logs of events that the slow oracle takes too: each a time, a key and an arrival."""

from __future__ import annotations

import json
import random

from tests.job.logs import EPOCH
from tests.ordering.oracle import Arrived
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.ordering import TICKS_PER_SECOND, format_time

_HALF = TICKS_PER_SECOND // 2


def random_events(dice: random.Random, most: int = 40) -> list[Arrived]:
    """Events of up to three partitions: idle stretches, early and late ones, ties, bad times and NULL keys."""
    partitions = dice.randint(1, 3)
    clock, numbers = EPOCH, [0] * partitions
    events = []
    for _ in range(dice.randint(0, most)):
        clock += dice.choice([0, 0, 1, _HALF, TICKS_PER_SECOND, 3 * TICKS_PER_SECOND, 20 * TICKS_PER_SECOND])
        partition = dice.randrange(partitions)
        lateness = dice.choice(
            [dice.randint(-2, 12) * _HALF, dice.randint(-2, 12) * _HALF, 10**8 + dice.randint(-1, 1)]
        )
        time = None if dice.random() < 0.05 else clock - lateness
        key = None if dice.random() < 0.05 else dice.choice("abc")
        events.append(Arrived(partition, numbers[partition], clock, time, key))
        numbers[partition] += 1
    return events


def log_of(events: list[Arrived]) -> RecordedLog:
    """The same as a log to read."""
    return RecordedLog(RecordedEvent(str(one.partition), one.arrival, _body(one)) for one in events)


def _body(event: Arrived) -> bytes:
    time = "never" if event.time is None else format_time(event.time)
    return json.dumps({"t": time, "k": event.key, "p": event.partition, "n": event.number}).encode()
