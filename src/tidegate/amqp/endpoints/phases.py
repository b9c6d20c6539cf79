"""The phases of a connection as an executable table: what it reads next.

AMQP 1.0, part 2, section 2.2, and part 5, section 5.3. A connection starts with a protocol header of eight bytes; with
the SASL layer there is one more header, and an exchange between the two. `TRANSITIONS` defines for each role the
phase that each step leads to. A step that a phase does not list is a bug in this package, never an error of the peer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Literal

Role = Literal["server", "client"]


class Phase(Enum):
    """What a connection expects to read next."""

    HEADER = auto()
    """A protocol header."""
    SASL_INIT = auto()
    """A server reads the mechanism that the client chose."""
    SASL_VERDICT = auto()
    """Nothing is read until the server's owner has accepted or refused."""
    SASL_MECHANISMS = auto()
    """A client reads the mechanisms on offer."""
    SASL_OUTCOME = auto()
    """A client reads whether it was accepted."""
    AMQP = auto()
    """Frames: open first, close last."""
    CLOSED = auto()
    """Nothing more is read."""


class PhaseStep(Enum):
    """A step from one phase of a connection to another."""

    SASL_HEADER = auto()
    AMQP_HEADER = auto()
    MECHANISMS = auto()
    INIT = auto()
    ACCEPTED = auto()
    """By the server's owner, or in the outcome that a client reads."""
    FINISHED = auto()
    """By a close, an error, or the end of the transport."""


_COMMON = {PhaseStep.FINISHED: Phase.CLOSED}

TRANSITIONS: Mapping[Role, Mapping[Phase, Mapping[PhaseStep, Phase]]] = {
    "server": {
        Phase.HEADER: {PhaseStep.SASL_HEADER: Phase.SASL_INIT, PhaseStep.AMQP_HEADER: Phase.AMQP, **_COMMON},
        Phase.SASL_INIT: {PhaseStep.INIT: Phase.SASL_VERDICT, **_COMMON},
        Phase.SASL_VERDICT: {PhaseStep.ACCEPTED: Phase.HEADER, **_COMMON},
        Phase.AMQP: _COMMON,
        Phase.CLOSED: {},
    },
    "client": {
        Phase.HEADER: {PhaseStep.SASL_HEADER: Phase.SASL_MECHANISMS, PhaseStep.AMQP_HEADER: Phase.AMQP, **_COMMON},
        Phase.SASL_MECHANISMS: {PhaseStep.MECHANISMS: Phase.SASL_OUTCOME, **_COMMON},
        Phase.SASL_OUTCOME: {PhaseStep.ACCEPTED: Phase.HEADER, **_COMMON},
        Phase.AMQP: _COMMON,
        Phase.CLOSED: {},
    },
}
