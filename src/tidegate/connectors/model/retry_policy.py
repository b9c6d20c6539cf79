"""Waits for something unavailable: a database that restarts, a full disk, a hub that cannot be reached."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tidegate.connectors.model.errors import InputError, JobError, OutputError, UnavailableError
from tidegate.ordering import TICKS_PER_SECOND, format_duration, format_time
from tidegate.retrying import BackOff

_BACK_OFF = BackOff()
_REPEAT_NOTICE_S = 30.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Trouble:
    """How messages describe a kind of unavailability.

    Attributes:
        phrase: the predicate, such as "cannot be written".
        setting: the setting of the job file for the longest wait.
    """

    phrase: str
    setting: str


WRITING = Trouble("cannot be written", "output_retry_s")
READING = Trouble("unreachable", "input_retry_s")


class WaitingNotice(str):
    """A notice that something is unavailable, and that the job waits for it."""

    __slots__ = ()


class WaitOver(str):
    """A notice that it is back."""

    __slots__ = ()


class RetryPolicy:
    """Repeats an attempt until it succeeds or has failed for too long."""

    def __init__(
        self,
        longest_s: float,
        notice: Callable[[str], None] = lambda text: None,
        *,
        trouble: Trouble = WRITING,
        sleep: Callable[[float], None] = time.sleep,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            longest_s: the longest that something may be unavailable, in seconds.
            notice: called with a message when a wait begins, from time to time during it, and when it is over.
        """
        self._longest_s = longest_s
        self._notice = notice
        self._trouble = trouble
        self._sleep = sleep
        self._monotonic_s = monotonic_s

    def call(self, what: str, attempt: Callable[[], Result]) -> Result:
        """Call ``attempt`` until it succeeds, and return its result.

        Args:
            what: the thing that may be unavailable, as messages name it.

        Raises:
            JobError: it has been unavailable for too long, or the attempt failed for another reason.
        """
        began = said = None
        since = ""
        failures = 0
        while True:
            try:
                result = attempt()
            except UnavailableError as error:
                now = self._monotonic_s()
                failures += 1
                pause_s = _BACK_OFF.after(failures)
                if began is None:
                    began, since = now, _clock_time()
                if now + pause_s - began > self._longest_s:
                    raise self._given_up(what, now - began, error) from error
                if said is None or now - said >= _REPEAT_NOTICE_S:
                    limit = _duration(self._longest_s)
                    wait = f"{what} {self._trouble.phrase} since {since}: {error}; waiting, {limit} at most"
                    self._notice(WaitingNotice(wait))
                    said = now
                self._sleep(pause_s)
            else:
                if began is not None:
                    self._notice(WaitOver(f"{what} is back after {_duration(self._monotonic_s() - began)}"))
                return result

    def _given_up(self, what: str, seconds: float, error: UnavailableError) -> JobError:
        kind = next((kind for kind in (OutputError, InputError) if isinstance(error, kind)), JobError)
        return kind(
            f"{what} has been unavailable for {_duration(seconds)}: {error}; nothing is lost; restart the job when "
            f"it is back, or increase {self._trouble.setting}"
        )


def _clock_time() -> str:
    return format_time(time.time_ns() // 10**9 * TICKS_PER_SECOND)[:19] + "Z"


def _duration(seconds: float) -> str:
    return format_duration(round(seconds * 10) * TICKS_PER_SECOND // 10)
