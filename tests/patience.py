"""How long a test waits for what is sure to come, and how soon something must come that waits for nothing."""

import time
from collections.abc import Callable

PATIENCE_S = 100.0
"""What has not come by then does not come, however busy the machine is. No time limit of the product is as long by
default, so it is never a matter of chance which of the two ends first."""

PROMPTLY_S = 30.0
"""Much longer than anything takes that does not wait, on the busiest machine, and much shorter than the waiting that a
test rules out, which lasts for PATIENCE_S or longer."""


def eventually(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition is true, and spend most of the time asleep however long the condition takes to compute."""
    deadline = time.monotonic() + patience_s
    began_s = time.monotonic()
    while not condition():
        now_s = time.monotonic()
        assert now_s < deadline, "it did not come true in time"
        time.sleep(min(max(0.01, 5 * (now_s - began_s)), 0.25))
        began_s = time.monotonic()
