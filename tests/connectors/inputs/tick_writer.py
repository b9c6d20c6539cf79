"""A process whose children record ticks until it kills them; it says how far each came, and what it finds then."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from tidegate.connectors.inputs.ticks import Ticks

KEPT = 3


def record(folder: Path, said: int) -> None:
    """Record a tick after the other for ever; restarts need the last few. Say the number of each that is durable."""
    ticks = Ticks(folder)
    place = ticks.of("i", "0")[-1][0] + 1 if ticks.of("i", "0") else 0
    while True:
        ticks.tick("i", "0", place, 10 * place)
        ticks.forget_before(10 * (place - KEPT))
        ticks.write()
        os.write(said, b"%d\n" % place)
        place += 1


def main(folder: Path, kills: int) -> None:
    """Kill children at random, and print a line of JSON for each."""
    dice = random.Random(7)
    for _ in range(kills):
        heard, said = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(heard)
            record(folder, said)
        os.close(said)
        first = os.read(heard, 1)  # it is at work
        time.sleep(dice.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(heard, "rb") as pipe:
            last = int((first + pipe.read()).splitlines()[-1])
        found = Ticks(folder, with_past=True).of("i", "0")
        print(json.dumps({"last": last, "present": len(Ticks(folder).of("i", "0")), "all": found}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
