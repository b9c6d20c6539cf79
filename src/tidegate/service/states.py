"""The states of a job and what leads from one to another: the table is the code.

A job is *wanted* to run from its start until it is stopped, fails or ends by itself. What is wanted is durable; the
states between are what the service sees of the job's process. After the service was restarted, every job that is wanted
to run is Starting.
"""

from __future__ import annotations

from enum import Enum, StrEnum


class JobState(StrEnum):
    """The states of Stream Analytics jobs, as the service names them."""

    CREATED = "Created"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    DEGRADED = "Degraded"
    FAILED = "Failed"


class JobEvent(Enum):
    """What happens to a job."""

    START = "a user starts it, or the service comes up"
    READY = "its process has taken a step, or what it waited for is back"
    TROUBLE = "an input or output is unavailable, and its process waits"
    STOP = "a user stops it, or a change makes it start again"
    DIED = "its process ended without being asked to; it will be started again"
    GAVE_UP = "its process ended, and starting it again would not help"
    COMPLETE = "its process ended because the inputs have ended"
    ENDED = "its process ended because it was asked to"
    RESTART = "its process ended because it was asked to, and it is wanted to run"


_S, _E = JobState, JobEvent

TRANSITIONS: dict[tuple[JobState, JobEvent], JobState] = {
    (_S.CREATED, _E.START): _S.STARTING,
    (_S.STOPPED, _E.START): _S.STARTING,
    (_S.FAILED, _E.START): _S.STARTING,
    (_S.STARTING, _E.READY): _S.RUNNING,
    (_S.STARTING, _E.TROUBLE): _S.DEGRADED,
    (_S.STARTING, _E.STOP): _S.STOPPING,
    (_S.STARTING, _E.DIED): _S.DEGRADED,
    (_S.STARTING, _E.GAVE_UP): _S.FAILED,
    (_S.STARTING, _E.COMPLETE): _S.STOPPED,
    (_S.RUNNING, _E.READY): _S.RUNNING,
    (_S.RUNNING, _E.TROUBLE): _S.DEGRADED,
    (_S.RUNNING, _E.STOP): _S.STOPPING,
    (_S.RUNNING, _E.DIED): _S.DEGRADED,
    (_S.RUNNING, _E.GAVE_UP): _S.FAILED,
    (_S.RUNNING, _E.COMPLETE): _S.STOPPED,
    (_S.DEGRADED, _E.READY): _S.RUNNING,
    (_S.DEGRADED, _E.TROUBLE): _S.DEGRADED,
    (_S.DEGRADED, _E.STOP): _S.STOPPING,
    (_S.DEGRADED, _E.DIED): _S.DEGRADED,
    (_S.DEGRADED, _E.GAVE_UP): _S.FAILED,
    (_S.DEGRADED, _E.COMPLETE): _S.STOPPED,
    (_S.STOPPING, _E.READY): _S.STOPPING,
    (_S.STOPPING, _E.TROUBLE): _S.STOPPING,
    (_S.STOPPING, _E.STOP): _S.STOPPING,
    (_S.STOPPING, _E.DIED): _S.STOPPED,
    (_S.STOPPING, _E.GAVE_UP): _S.STOPPED,
    (_S.STOPPING, _E.COMPLETE): _S.STOPPED,
    (_S.STOPPING, _E.ENDED): _S.STOPPED,
    (_S.STOPPING, _E.RESTART): _S.STARTING,
}

ACTIVE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.DEGRADED, JobState.STOPPING})
"""The states in which a job has a process, or will have one again by itself."""


class NoTransition(Exception):
    """An event that cannot happen in a state."""

    def __init__(self, state: JobState, event: JobEvent) -> None:
        self.state = state
        self.event = event
        super().__init__(f"a job that is {state} has no transition for {event.name}: {event.value}")


def after(state: JobState, event: JobEvent) -> JobState:
    """Return the state that follows an event.

    Raises:
        NoTransition: the event cannot happen in this state.
    """
    following = TRANSITIONS.get((state, event))
    if following is None:
        raise NoTransition(state, event)
    return following
