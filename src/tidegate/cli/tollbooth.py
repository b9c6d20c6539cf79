"""A toll road, simulated: four booths with two lanes each, whose clocks are skewed and whose network is slow.

Each lane has a camera with a clock of its own. A car's event carries the camera's time; it gets through to the hub
after the network's delay, and the hub stamps its arrival. So the stream has what a real one has: events out of order
(two cameras of a booth disagree), late (a link was down and sends everything when it is back), early (a camera's clock
jumped ahead), and a few that are broken. The same seed gives the same road.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Camera:
    """One lane's camera. `skew_s`: how far its clock is ahead of the hub's, in seconds (negative: behind)."""

    booth: str
    lane: int
    skew_s: float = 0.0
    delay_s: tuple[float, float] = (0.02, 0.15)
    """The network's shortest and longest delay."""
    outage_s: tuple[float, float] | None = None
    """The link is down from the first to the second moment of the road's time, and then sends what has piled up."""
    wrong_clock_s: tuple[float, float] | None = None
    """Between these moments the clock is `JUMP_S` ahead: further than the early arrival window allows."""


JUMP_S = 600.0

CAMERAS = (
    Camera("north", 1),
    Camera("north", 2, skew_s=-0.4),
    Camera("east", 1, skew_s=1.2),
    Camera("east", 2, delay_s=(0.05, 0.9)),
    Camera("south", 1, outage_s=(9.0, 17.5)),
    Camera("south", 2, delay_s=(0.2, 2.5)),
    Camera("west", 1, wrong_clock_s=(12.0, 12.8)),
    Camera("west", 2, delay_s=(0.05, 0.4)),
)


@dataclass(frozen=True, slots=True)
class Crossing:
    """A car at a booth, or the wreck of its event. Times are seconds since the road opened, by the hub's clock."""

    booth: str
    lane: int
    plate: str
    speed: float
    passed_s: float
    camera_s: float
    """What the camera's clock said."""
    sent_s: float
    """When the event gets through to the hub."""
    damage: str = ""

    def body(self, opened: datetime) -> bytes:
        """The event's content: JSON, unless it is damaged. `opened` is when the road opened, in UTC."""
        entry_time = (opened + timedelta(seconds=self.camera_s)).isoformat(timespec="microseconds")
        event = {
            "booth": self.booth,
            "lane": self.lane,
            "plate": self.plate,
            "speed": self.speed,
            "entry_time": entry_time.replace("+00:00", "Z"),
        }
        if self.damage == "no time":
            del event["entry_time"]
        elif self.damage == "nonsense time":
            event["entry_time"] = "yesterday"
        text = json.dumps(event)
        return (text[: len(text) // 2] if self.damage == "cut off" else text).encode()


DAMAGES = ("cut off", "no time", "nonsense time", "cut off", "no time", "nonsense time")


def traffic(*, duration_s: float, cars_per_s: float = 10.0, seed: int = 7) -> list[Crossing]:
    """All crossings of a road that is open for `duration_s`, in the order in which they get through to the hub.

    Args:
        duration_s: how long cars pass; the last events get through up to the longest delay later.
        cars_per_s: cars in each lane, on average.
        seed: the same one gives the same crossings.
    """
    chance = random.Random(seed)
    crossings = [crossing for camera in CAMERAS for crossing in _lane(camera, duration_s, cars_per_s, chance)]
    for place, damage in zip(chance.sample(range(len(crossings)), len(DAMAGES)), DAMAGES, strict=True):
        crossings[place] = replace(crossings[place], damage=damage)
    return sorted(crossings, key=lambda crossing: crossing.sent_s)


def _lane(camera: Camera, duration_s: float, cars_per_s: float, chance: random.Random) -> Iterator[Crossing]:
    passed_s = chance.expovariate(cars_per_s)
    while passed_s < duration_s:
        sent_s = passed_s + chance.uniform(*camera.delay_s)
        if camera.outage_s is not None and camera.outage_s[0] <= sent_s < camera.outage_s[1]:
            sent_s = camera.outage_s[1] + chance.uniform(*camera.delay_s)
        skew_s = camera.skew_s
        if camera.wrong_clock_s is not None and camera.wrong_clock_s[0] <= passed_s < camera.wrong_clock_s[1]:
            skew_s += JUMP_S
        yield Crossing(
            booth=camera.booth,
            lane=camera.lane,
            plate=f"TG {chance.randrange(1000, 10000)}",
            speed=round(chance.gauss(68, 9), 1),
            passed_s=passed_s,
            camera_s=passed_s + skew_s,
            sent_s=sent_s,
        )
        passed_s += chance.expovariate(cars_per_s)
