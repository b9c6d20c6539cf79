"""How long a test waits for what is sure to come."""

import os
import time
from collections.abc import Callable

PATIENCE_S = 100.0
"""What has not come by then does not come, however busy the machine is. No time limit of the product is as long by
default, so that it is never a coin's toss whose comes first."""


def eventually(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait until it is true."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def stretched(limit_s: float) -> float:
    """A limit on time, which is that of a quiet machine, for this one: it may stall for a moment, and have more to do.

    Only for rules that are about time; where something is to come at all, wait for it.
    """
    return 5 * limit_s * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
