"""How often to retry, and after what delays."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """`attempts` in total; the delays between them double from `first_delay_s` to `longest_delay_s`.

    Each delay is shortened by a random part of up to half, so that consumers that failed together do not retry
    together.
    """

    attempts: int = 5
    first_delay_s: float = 0.2
    longest_delay_s: float = 30.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {self.attempts}")
        if not 0 <= self.first_delay_s <= self.longest_delay_s:
            raise ValueError("first_delay_s must be between 0 and longest_delay_s")

    def delays(self) -> Iterator[float]:
        """Yield the delay before the second attempt, the third, and so on."""
        for number in range(self.attempts - 1):
            yield self._delay(number)

    def endless_delays(self) -> Iterator[float]:
        """Yield delays without end."""
        number = 0
        while True:
            yield self._delay(number)
            number += 1

    def _delay(self, number: int) -> float:
        longest = min(self.first_delay_s * 2.0 ** min(number, 60), self.longest_delay_s)
        return longest * random.uniform(0.5, 1.0)
