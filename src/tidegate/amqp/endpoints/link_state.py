"""The life cycle of a link as an executable table.

AMQP 1.0, part 2, section 2.6. Both sides attach and both detach; either may start, and the other answers. `TRANSITIONS`
defines the state each step leads to. A step that is not listed for a state is ignored there: a local one does nothing,
and the peer may have sent its step before it learned of the new state.

A peer refuses to attach by answering without a terminus and then detaching (section 2.6.3). Until then the link stays
ATTACH_SENT, so that answer is not a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class LinkState(Enum):
    """The state of a link between the first attach and the last detach."""

    ATTACH_RECEIVED = auto()
    """The peer requested the link; the owner has to accept or refuse."""
    ATTACH_SENT = auto()
    """This side requested the link; the peer has not answered, or has refused and will detach."""
    ATTACHED = auto()
    DETACHING = auto()
    """This side detached; the peer has not answered."""
    DETACHED = auto()


class LinkStep(Enum):
    """A step from one state of a link to another."""

    WE_ACCEPT = auto()
    WE_DETACH = auto()
    """A closing detach; also ends a refusal."""
    PEER_ATTACHES = auto()
    """An attach with a terminus: the peer accepts the requested link."""
    PEER_DETACHES = auto()
    SESSION_ENDS = auto()


TRANSITIONS: Mapping[LinkState, Mapping[LinkStep, LinkState]] = {
    LinkState.ATTACH_RECEIVED: {
        LinkStep.WE_ACCEPT: LinkState.ATTACHED,
        LinkStep.WE_DETACH: LinkState.DETACHING,
        LinkStep.PEER_DETACHES: LinkState.DETACHED,
        LinkStep.SESSION_ENDS: LinkState.DETACHED,
    },
    LinkState.ATTACH_SENT: {
        LinkStep.PEER_ATTACHES: LinkState.ATTACHED,
        LinkStep.WE_DETACH: LinkState.DETACHING,
        LinkStep.PEER_DETACHES: LinkState.DETACHED,
        LinkStep.SESSION_ENDS: LinkState.DETACHED,
    },
    LinkState.ATTACHED: {
        LinkStep.WE_DETACH: LinkState.DETACHING,
        LinkStep.PEER_DETACHES: LinkState.DETACHED,
        LinkStep.SESSION_ENDS: LinkState.DETACHED,
    },
    LinkState.DETACHING: {
        LinkStep.PEER_DETACHES: LinkState.DETACHED,
        LinkStep.SESSION_ENDS: LinkState.DETACHED,
    },
    LinkState.DETACHED: {},
}
