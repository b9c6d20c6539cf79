"""The life cycle of a session as an executable table.

AMQP 1.0, part 2, sections 2.5.1 to 2.5.5. Either side begins and the other answers; either side ends and the other
answers. `TRANSITIONS` defines the state each step leads to; a step that a state does not list changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class SessionState(Enum):
    """The state of a session between its begin and its end."""

    BEGIN_SENT = auto()
    """This side began, or is about to answer the peer's begin."""
    MAPPED = auto()
    """Both sides have begun."""
    ENDING = auto()
    """This side ended; the peer has not answered, and its frames are ignored."""
    ENDED = auto()


class SessionStep(Enum):
    """A step from one state of a session to another."""

    PEER_BEGINS = auto()
    WE_END = auto()
    PEER_ENDS = auto()
    CONNECTION_ENDS = auto()


TRANSITIONS: Mapping[SessionState, Mapping[SessionStep, SessionState]] = {
    SessionState.BEGIN_SENT: {
        SessionStep.PEER_BEGINS: SessionState.MAPPED,
        SessionStep.WE_END: SessionState.ENDING,
        SessionStep.CONNECTION_ENDS: SessionState.ENDED,
    },
    SessionState.MAPPED: {
        SessionStep.WE_END: SessionState.ENDING,
        SessionStep.PEER_ENDS: SessionState.ENDED,
        SessionStep.CONNECTION_ENDS: SessionState.ENDED,
    },
    SessionState.ENDING: {
        SessionStep.PEER_BEGINS: SessionState.ENDING,
        SessionStep.PEER_ENDS: SessionState.ENDED,
        SessionStep.CONNECTION_ENDS: SessionState.ENDED,
    },
    SessionState.ENDED: {},
}
