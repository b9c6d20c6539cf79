"""The life of a link, as a table that runs.

AMQP 1.0, part 2, section 2.6. Both sides attach, and both detach; whoever starts, the other answers. `TRANSITIONS` says
which step leads where. A step that a state does not list cannot happen in it: ours does nothing, and the peer's is
ignored, as the peer may have sent it before it knew better.

A peer refuses to attach by answering without a terminus, and detaches next (section 2.6.3); until then the link stays
ATTACH_SENT. That answer is therefore no step.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class LinkState(Enum):
    """Where a link is between the first attach and the last detach."""

    ATTACH_RECEIVED = auto()
    """The peer asked for the link; our owner has to accept or refuse."""
    ATTACH_SENT = auto()
    """We asked for the link; the peer has not answered, or has refused and will detach."""
    ATTACHED = auto()
    DETACHING = auto()
    """We detached; the peer has not answered."""
    DETACHED = auto()


class LinkStep(Enum):
    """What moves a link from one state to another."""

    WE_ACCEPT = auto()
    WE_DETACH = auto()
    """For good; also how we refuse."""
    PEER_ATTACHES = auto()
    """With a terminus: it agrees to the link we asked for."""
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
