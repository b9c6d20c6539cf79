"""The supervision of one job: what to do about its process, without a process, a clock or a thread.

Events go in with their time, actions come out; `Supervisor` carries them out. A process that dies is started again with
back-off: after 1, 2, 4 … 60 seconds. One that has run for a while is forgiven its earlier deaths. A job whose process
dies ten times without that has failed. One that waits for what is unavailable never fails: it is started again until
that is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from tidegate.retrying import BackOff
from tidegate.service.states import ACTIVE, JobEvent, JobState, after

BACK_OFF = BackOff(1.0, 60.0)
FORGIVEN_AFTER_S = 60.0
MOST_DEATHS = 10
STOP_WITHIN_S = 20.0


class ProcessAction(Enum):
    """What is to be done about a job's process."""

    LAUNCH = "start one"
    ASK_TO_STOP = "ask it to stop"
    KILL = "kill it"


class ExitKind(Enum):
    """Why a process ended."""

    ASKED = "it was asked to"
    COMPLETE = "the inputs have ended, and all results have left"
    FATAL = "it said that it cannot continue"
    UNAVAILABLE = "it gave up waiting for something that may come back"
    CRASHED = "it died"


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a process, with its reason for people."""

    kind: ExitKind
    message: str


class Supervision:
    """What to do about one process. Times are seconds of a clock that never goes back."""

    def __init__(self, state: JobState, reason: str | None = None) -> None:
        self.state = state
        self.reason = reason
        self.wanted = False
        self.restarts = 0
        self._has_process = False
        self._ready_at_s: float | None = None
        self._deaths = 0
        self._waits = 0
        self._launch_at_s: float | None = None
        self._kill_at_s: float | None = None

    @property
    def is_active(self) -> bool:
        """Whether the job has a process, or will have one again by itself."""
        return self.state in ACTIVE

    @property
    def due_at_s(self) -> float | None:
        """When `tick` has something to do; None: never, unless something else happens."""
        due = [time for time in (self._launch_at_s, self._kill_at_s) if time is not None]
        return min(due, default=None)

    def start(self) -> Sequence[ProcessAction]:
        """Want the job to run.

        Raises:
            NoTransition: it runs already.
        """
        self._move(JobEvent.START, None)
        self.wanted, self.restarts, self._deaths, self._waits = True, 0, 0, 0
        return self._launch()

    def stop(self, now_s: float, reason: str | None = None) -> Sequence[ProcessAction]:
        """Want the job not to run.

        Raises:
            NoTransition: it does not run.
        """
        self._move(JobEvent.STOP, reason)
        self.wanted = False
        return self._end_process(now_s)

    def restart(self, now_s: float, reason: str) -> Sequence[ProcessAction]:
        """Start the job's process again, with what has changed; nothing happens to a job that does not run."""
        if not self.is_active or not self.wanted:
            return ()
        self._deaths = 0
        self._move(JobEvent.STOP, reason)
        return self._end_process(now_s)

    def ready(self, now_s: float) -> None:
        """Note that the process takes steps."""
        if self._ready_at_s is None:
            self._ready_at_s = now_s
            self._waits = 0
        if self.is_active:
            self._move(JobEvent.READY, self.reason if self.state is JobState.STOPPING else None)

    def trouble(self, reason: str) -> None:
        """Note that the process waits for something."""
        if self.is_active:
            self._move(JobEvent.TROUBLE, self.reason if self.state is JobState.STOPPING else reason)

    def ended(self, end: Exit, now_s: float) -> Sequence[ProcessAction]:
        """Decide what follows the end of the process."""
        self._has_process = False
        self._kill_at_s = None
        ready_at_s, self._ready_at_s = self._ready_at_s, None
        if self.state is JobState.STOPPING:
            if self.wanted:
                self._move(JobEvent.RESTART, self.reason)
                return self._launch()
            self._move(JobEvent.ENDED, None if end.kind is ExitKind.ASKED else end.message)
            return ()
        match end.kind:
            case ExitKind.COMPLETE:
                self.wanted = False
                self._move(JobEvent.COMPLETE, end.message)
            case ExitKind.FATAL:
                self.wanted = False
                self._move(JobEvent.GAVE_UP, end.message)
            case ExitKind.UNAVAILABLE:
                self._waits += 1
                self._start_again(end.message, self._waits, now_s, "")
            case ExitKind.ASKED | ExitKind.CRASHED:
                self._died(end.message, ready_at_s, now_s)
            case _:
                assert_never(end.kind)
        return ()

    def tick(self, now_s: float) -> Sequence[ProcessAction]:
        """Return what is due."""
        if self._launch_at_s is not None and now_s >= self._launch_at_s:
            self.restarts += 1
            return self._launch()
        if self._kill_at_s is not None and now_s >= self._kill_at_s:
            self._kill_at_s = None
            return (ProcessAction.KILL,)
        return ()

    def _died(self, message: str, ready_at_s: float | None, now_s: float) -> None:
        if ready_at_s is not None and now_s - ready_at_s >= FORGIVEN_AFTER_S:
            self._deaths = 0
        self._deaths += 1
        if self._deaths >= MOST_DEATHS:
            self.wanted = False
            self._move(JobEvent.GAVE_UP, f"{message} (given up after {self._deaths} attempts)")
            return
        self._start_again(message, self._deaths, now_s, f" (attempt {self._deaths + 1} of {MOST_DEATHS})")

    def _start_again(self, message: str, times: int, now_s: float, attempts: str) -> None:
        pause_s = BACK_OFF.after(times)
        self._launch_at_s = now_s + pause_s
        self._move(JobEvent.DIED, f"{message}; starting again after {pause_s:g} s{attempts}")

    def _launch(self) -> Sequence[ProcessAction]:
        self._launch_at_s = None
        self._has_process = True
        return (ProcessAction.LAUNCH,)

    def _end_process(self, now_s: float) -> Sequence[ProcessAction]:
        """Ask the process to stop; a job that waits to be started again has none, and is stopped at once."""
        self._launch_at_s = None
        if not self._has_process:
            return self.ended(Exit(ExitKind.ASKED, ""), now_s)
        if self._kill_at_s is None:
            self._kill_at_s = now_s + STOP_WITHIN_S
        return (ProcessAction.ASK_TO_STOP,)

    def _move(self, event: JobEvent, reason: str | None) -> None:
        self.state = after(self.state, event)
        self.reason = reason
