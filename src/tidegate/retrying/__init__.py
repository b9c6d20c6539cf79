"""Trying again: which refusals pass by themselves, and how long to wait between attempts.

A hub, an account or a model that is busy or restarting says so with a condition or status of these lists. Some
refusals pass only for one kind of request, such as a sequence number that is out of order; its module adds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["PASSING_CONDITIONS", "PASSING_STATUS", "BackOff", "call_again"]

PASSING_CONDITIONS = frozenset(
    {
        "amqp:connection:forced",
        "amqp:internal-error",
        "amqp:link:detach-forced",
        "amqp:resource-limit-exceeded",
        "com.microsoft:operation-cancelled",
        "com.microsoft:server-busy",
        "com.microsoft:timeout",
    }
)
"""AMQP error conditions after which the same request may succeed."""

PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may succeed."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class BackOff:
    """Pauses that double from the first to the longest."""

    first_s: float = 0.1
    longest_s: float = 5.0

    def after(self, failures: int) -> float:
        """Return the pause in seconds after a number of failures in a row, of which there is at least one."""
        return min(self.first_s * 2.0 ** min(failures - 1, 60), self.longest_s)


def call_again(
    attempt: Callable[[], Result],
    passes: Callable[[Exception], bool],
    within_s: float,
    back_off: BackOff = BackOff(),
    *,
    sleep: Callable[[float], None] = time.sleep,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Result:
    """Call ``attempt`` until it succeeds, and return its result.

    An error is raised if it does not pass, or if the pause after it would end later than ``within_s`` from the start.
    """
    gives_up_at = monotonic_s() + within_s
    failures = 0
    while True:
        try:
            return attempt()
        except Exception as error:
            failures += 1
            pause_s = back_off.after(failures)
            if not passes(error) or monotonic_s() + pause_s > gives_up_at:
                raise
            sleep(pause_s)
