"""The clocks that stamp arrival."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Milliseconds since 1970-01-01T00:00:00Z, never going back."""

    def now_ms(self) -> int:
        """The time to stamp an event with that arrives now."""

    def promise(self) -> int:
        """A time that no later `now_ms` will be below, not even after a crash or with the machine's clock set back."""
