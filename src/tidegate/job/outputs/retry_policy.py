"""Waiting for what is away: a database that restarts, a full disk, a hub that cannot be reached."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tidegate.job.model.errors import JobError, OutputError, UnavailableError
from tidegate.ordering import TICKS_PER_SECOND, format_duration

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_SAY_AGAIN_S = 30.0

Result = TypeVar("Result")


class RetryPolicy:
    """Makes an attempt again until it succeeds or it has taken too long."""

    def __init__(
        self,
        longest_s: float,
        notice: Callable[[str], None] = lambda text: None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            longest_s: how long something may be away.
            notice: told what is waited for, now and then, and when it is over.
        """
        self._longest_s = longest_s
        self._notice = notice
        self._sleep = sleep
        self._monotonic_s = monotonic_s

    def call(self, what: str, attempt: Callable[[], Result]) -> Result:
        """What the attempt gives. ``what`` is written to, for people.

        Raises:
            JobError: it has been away too long, or failed for another reason.
        """
        began = said = None
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                result = attempt()
            except UnavailableError as error:
                now = self._monotonic_s()
                began = now if began is None else began
                if now + pause_s - began > self._longest_s:
                    kind = OutputError if isinstance(error, OutputError) else JobError
                    raise kind(
                        f"{what} has been away for {_duration(now - began)}: {error}; nothing is lost, start "
                        "the job again when it is back, or let it wait longer with output_retry_s"
                    ) from error
                if said is None or now - said >= _SAY_AGAIN_S:
                    self._notice(f"{what} cannot be written: {error}; waiting, {_duration(self._longest_s)} at most")
                    said = now
                self._sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                if began is not None:
                    self._notice(f"{what} is back after {_duration(self._monotonic_s() - began)}")
                return result


def _duration(seconds: float) -> str:
    return format_duration(round(seconds * 10) * TICKS_PER_SECOND // 10)
