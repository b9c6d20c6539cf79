"""Refusals, each with the AMQP condition that clients act on and the equivalent HTTP status.

Azure's "AMQP errors in Azure Service Bus" and Event Hubs' exception list say which conditions the SDKs retry.
"""

from __future__ import annotations


class HubError(Exception):
    """A request the hub refuses.

    `condition` is the AMQP error condition, `description` is for people and holds no secret.
    """

    condition: str = "amqp:internal-error"
    http_status: int = 500

    def __init__(self, description: str) -> None:
        self.description = description
        super().__init__(description)


class NotFound(HubError):
    """No such hub, consumer group or path."""

    condition = "amqp:not-found"
    http_status = 404


class Unauthorized(HubError):
    """No token, or one that does not cover this operation on this path."""

    condition = "amqp:unauthorized-access"
    http_status = 401


class ServerBusy(HubError):
    """The throughput units are used up, or the disk cannot be written: try again later."""

    condition = "com.microsoft:server-busy"
    http_status = 503


class ArgumentError(HubError):
    """The request itself is wrong: a filter, an annotation or an address that cannot be read."""

    condition = "com.microsoft:argument-error"
    http_status = 400


class ArgumentOutOfRange(ArgumentError):
    """A partition that the hub does not have."""

    condition = "com.microsoft:argument-out-of-range"


class AlreadyExists(ArgumentError):
    """The name is already in use."""

    condition = "com.microsoft:entity-already-exists"
    http_status = 409


class NotAllowed(HubError):
    """Well-formed, but against a rule: a partition key that is not the publisher, two keys in one publication."""

    condition = "amqp:not-allowed"
    http_status = 400


class MessageTooLarge(HubError):
    """A publication is larger than the tier allows."""

    condition = "amqp:link:message-size-exceeded"
    http_status = 413


class MessageMalformed(HubError):
    """Bytes that are not an AMQP message, or that hold a value that cannot be decoded."""

    condition = "amqp:decode-error"
    http_status = 400


class LinkStolen(HubError):
    """A receiver with a higher owner level (or an equal one that came later) has taken over."""

    condition = "amqp:link:stolen"
    http_status = 409


class QuotaExceeded(HubError):
    """A limit of the service is exceeded: a sixth reader, a 21st consumer group."""

    condition = "amqp:resource-limit-exceeded"
    http_status = 403


class OutOfOrderSequence(HubError):
    """An idempotent producer left a gap in its sequence numbers."""

    condition = "com.microsoft:out-of-order-sequence"
    http_status = 409


class ProducerFenced(HubError):
    """Another instance of the idempotent producer has a newer epoch."""

    condition = "com.microsoft:producer-epoch-stolen"
    http_status = 409


class PublisherRevoked(HubError):
    """The publisher was revoked by an operator."""

    condition = "com.microsoft:publisher-revoked"
    http_status = 403


class InternalError(HubError):
    """The hub failed; the description says where to look."""


def entity_not_found(entity: str, reason: str) -> NotFound:
    """Return the refusal of an entity that does not exist.

    Microsoft's clients for JavaScript, Java and .NET search the text for "The messaging entity … could not be found";
    without it they treat `amqp:not-found` as a network fault and retry.
    """
    return NotFound(f"The messaging entity '{entity}' could not be found: {reason}")
