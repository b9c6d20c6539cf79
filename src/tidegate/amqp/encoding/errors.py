"""AMQP error conditions, the error type sent to peers, and the exceptions of this package.

Conditions: AMQP 1.0 part 2, sections 2.8.15 to 2.8.18, and two that Event Hubs adds.
http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html#type-amqp-error
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

INTERNAL_ERROR = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"
NOT_IMPLEMENTED = "amqp:not-implemented"
ILLEGAL_STATE = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL = "amqp:frame-size-too-small"
CONNECTION_FORCED = "amqp:connection:forced"
FRAMING_ERROR = "amqp:connection:framing-error"
WINDOW_VIOLATION = "amqp:session:window-violation"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"
HANDLE_IN_USE = "amqp:session:handle-in-use"
DETACH_FORCED = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
STOLEN = "amqp:link:stolen"
SERVER_BUSY = "com.microsoft:server-busy"
ARGUMENT_ERROR = "com.microsoft:argument-error"


@dataclass(frozen=True, slots=True)
class AmqpError:
    """The error that explains a refusal, sent or received (section 2.8.14).

    It is always sent with all three elements: a shorter one hangs the Python Event Hubs client.
    """

    condition: str
    description: str | None = None
    info: Mapping[Any, Any] | None = None


class DecodeError(ValueError):
    """Bytes that are not the AMQP encoding of a value, or that exceed a limit of depth or size."""


class EncodeError(ValueError):
    """A Python value that has no AMQP encoding, or does not fit the requested one."""


class UsageError(RuntimeError):
    """A call that the state of the connection, session or link forbids: an error of the caller, never of the peer."""


class PeerError(Exception):
    """A protocol violation by the peer that ends the connection. Never leaves this package."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description
