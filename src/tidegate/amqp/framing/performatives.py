"""Performatives, termini and delivery states, field by field as parts 2, 3 and 5 of the specification list them.

http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html#section-performatives
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.amqp.encoding.composites import Field, composite
from tidegate.amqp.encoding.types import INTERNAL_ERROR, AmqpError, Described

MAX_UINT = 0xFFFFFFFF


@dataclass(slots=True)
class Open:
    """Section 2.7.1: a container's identity, and its limits for frames, channels and idle time."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = MAX_UINT
    channel_max: int = 65535
    idle_timeout_ms: int | None = None
    outgoing_locales: tuple[str, ...] | None = None
    incoming_locales: tuple[str, ...] | None = None
    offered_capabilities: tuple[str, ...] | None = None
    desired_capabilities: tuple[str, ...] | None = None
    properties: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Begin:
    """Section 2.7.2: a session on a channel; windows count transfer frames."""

    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = MAX_UINT
    offered_capabilities: tuple[str, ...] | None = None
    desired_capabilities: tuple[str, ...] | None = None
    properties: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Attach:
    """Section 2.7.3: a link on a session. `role` is True if the side that sends it is the receiver."""

    name: str
    handle: int
    role: bool
    snd_settle_mode: int = 2
    rcv_settle_mode: int = 0
    source: Any = None
    target: Any = None
    unsettled: Mapping[Any, Any] | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: tuple[str, ...] | None = None
    desired_capabilities: tuple[str, ...] | None = None
    properties: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Flow:
    """Section 2.7.4: windows of the session and, with a handle, the credit of a link."""

    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: Mapping[str, Any] | None = None


@dataclass(slots=True)
class TransferFrame:
    """Section 2.7.5: a delivery or part of it; its payload follows the performative in the frame."""

    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@dataclass(slots=True)
class DispositionFrame:
    """Section 2.7.6: the state of deliveries `first` to `last`. `role` is True if their receiver sends it."""

    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: Any = None
    batchable: bool = False


@dataclass(slots=True)
class Detach:
    """Section 2.7.7: the end of a link, permanent if `closed`."""

    handle: int
    closed: bool = False
    error: AmqpError | None = None


@dataclass(slots=True)
class End:
    """Section 2.7.8: the end of a session."""

    error: AmqpError | None = None


@dataclass(slots=True)
class Close:
    """Section 2.7.9: the end of a connection."""

    error: AmqpError | None = None


@dataclass(slots=True)
class SaslMechanisms:
    """Section 5.3.3.1: the mechanisms a server offers."""

    mechanisms: tuple[str, ...]


@dataclass(slots=True)
class SaslInitFrame:
    """Section 5.3.3.2: the mechanism a client chooses, and its initial response."""

    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@dataclass(slots=True)
class SaslOutcome:
    """Section 5.3.3.6: the outcome; code 0 is success, 1 is a refusal."""

    code: int
    additional_data: bytes | None = None


@dataclass(slots=True)
class Source:
    """Section 3.5.3: where messages come from; `filter` maps a name to a described value."""

    address: Any = None
    durable: int = 0
    expiry_policy: str | None = None
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Mapping[Any, Any] | None = None
    distribution_mode: str | None = None
    filter: Mapping[str, Any] | None = None
    default_outcome: Any = None
    outcomes: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] | None = None


@dataclass(slots=True)
class Target:
    """Section 3.5.4: where messages go."""

    address: Any = None
    durable: int = 0
    expiry_policy: str | None = None
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Mapping[Any, Any] | None = None
    capabilities: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """Section 3.4.1: how much of a delivery was received; not an outcome."""

    section_number: int
    section_offset: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """Section 3.4.2: the delivery was accepted. Use the constant ACCEPTED."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Section 3.4.3: the delivery was refused, and why; always sent with an error of three elements."""

    condition: str | None = None
    description: str | None = None
    info: Mapping[Any, Any] | None = None

    @property
    def error(self) -> AmqpError:
        """Return the reason as an error."""
        return AmqpError(INTERNAL_ERROR if self.condition is None else self.condition, self.description, self.info)

    @classmethod
    def of(cls, error: AmqpError | None) -> Rejected:
        """Return a rejection with the given reason."""
        return cls() if error is None else cls(error.condition, error.description, error.info)


@dataclass(frozen=True, slots=True)
class Released:
    """Section 3.4.4: the delivery was not and will not be processed. Use the constant RELEASED."""


@dataclass(frozen=True, slots=True)
class Modified:
    """Section 3.4.5: the delivery was modified but not processed."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: Mapping[Any, Any] | None = None


ACCEPTED = Accepted()
RELEASED = Released()

DeliveryState = Received | Accepted | Rejected | Released | Modified
PERFORMATIVES = (Open, Begin, Attach, Flow, TransferFrame, DispositionFrame, Detach, End, Close)
SASL_FRAMES = (SaslMechanisms, SaslInitFrame, SaslOutcome)

_CAPABILITIES = (Field("offered_capabilities", "symbols"), Field("desired_capabilities", "symbols"))
_PROPERTIES = Field("properties", "fields")
_ERROR = Field("error", "described", classes=(AmqpError,))
_STATES = (Received, Accepted, Rejected, Released, Modified, Described)

composite(
    Open,
    0x10,
    "amqp:open:list",
    Field("container_id", "string", mandatory=True),
    Field("hostname", "string"),
    Field("max_frame_size", "uint", MAX_UINT),
    Field("channel_max", "ushort", 65535),
    Field("idle_timeout_ms", "uint"),
    Field("outgoing_locales", "symbols"),
    Field("incoming_locales", "symbols"),
    *_CAPABILITIES,
    _PROPERTIES,
)
composite(
    Begin,
    0x11,
    "amqp:begin:list",
    Field("remote_channel", "ushort"),
    Field("next_outgoing_id", "uint", mandatory=True),
    Field("incoming_window", "uint", mandatory=True),
    Field("outgoing_window", "uint", mandatory=True),
    Field("handle_max", "uint", MAX_UINT),
    *_CAPABILITIES,
    _PROPERTIES,
)
composite(
    Attach,
    0x12,
    "amqp:attach:list",
    Field("name", "string", mandatory=True),
    Field("handle", "uint", mandatory=True),
    Field("role", "boolean", mandatory=True),
    Field("snd_settle_mode", "ubyte", 2),
    Field("rcv_settle_mode", "ubyte", 0),
    Field("source", "described", classes=(Source, Described)),
    Field("target", "described", classes=(Target, Described)),
    Field("unsettled", "map"),
    Field("incomplete_unsettled", "boolean", False),
    Field("initial_delivery_count", "uint"),
    Field("max_message_size", "ulong"),
    *_CAPABILITIES,
    _PROPERTIES,
)
composite(
    Flow,
    0x13,
    "amqp:flow:list",
    Field("next_incoming_id", "uint"),
    Field("incoming_window", "uint", mandatory=True),
    Field("next_outgoing_id", "uint", mandatory=True),
    Field("outgoing_window", "uint", mandatory=True),
    Field("handle", "uint"),
    Field("delivery_count", "uint"),
    Field("link_credit", "uint"),
    Field("available", "uint"),
    Field("drain", "boolean", False),
    Field("echo", "boolean", False),
    _PROPERTIES,
)
composite(
    TransferFrame,
    0x14,
    "amqp:transfer:list",
    Field("handle", "uint", mandatory=True),
    Field("delivery_id", "uint"),
    Field("delivery_tag", "binary"),
    Field("message_format", "uint"),
    Field("settled", "boolean"),
    Field("more", "boolean", False),
    Field("rcv_settle_mode", "ubyte"),
    Field("state", "described", classes=_STATES),
    Field("resume", "boolean", False),
    Field("aborted", "boolean", False),
    Field("batchable", "boolean", False),
)
composite(
    DispositionFrame,
    0x15,
    "amqp:disposition:list",
    Field("role", "boolean", mandatory=True),
    Field("first", "uint", mandatory=True),
    Field("last", "uint"),
    Field("settled", "boolean", False),
    Field("state", "described", classes=_STATES),
    Field("batchable", "boolean", False),
)
composite(
    Detach,
    0x16,
    "amqp:detach:list",
    Field("handle", "uint", mandatory=True),
    Field("closed", "boolean", False),
    _ERROR,
)
composite(End, 0x17, "amqp:end:list", _ERROR)
composite(Close, 0x18, "amqp:close:list", _ERROR)
composite(
    AmqpError,
    0x1D,
    "amqp:error:list",
    Field("condition", "symbol", mandatory=True),
    Field("description", "string"),
    Field("info", "fields"),
)
composite(SaslMechanisms, 0x40, "amqp:sasl-mechanisms:list", Field("mechanisms", "symbols", mandatory=True))
composite(
    SaslInitFrame,
    0x41,
    "amqp:sasl-init:list",
    Field("mechanism", "symbol", mandatory=True),
    Field("initial_response", "binary"),
    Field("hostname", "string"),
)
composite(
    SaslOutcome,
    0x44,
    "amqp:sasl-outcome:list",
    Field("code", "ubyte", mandatory=True),
    Field("additional_data", "binary"),
)
_TERMINUS = (
    Field("address", "any"),
    Field("durable", "uint", 0),
    Field("expiry_policy", "symbol"),
    Field("timeout", "uint", 0),
    Field("dynamic", "boolean", False),
    Field("dynamic_node_properties", "fields"),
)
composite(
    Source,
    0x28,
    "amqp:source:list",
    *_TERMINUS,
    Field("distribution_mode", "symbol"),
    Field("filter", "fields"),
    Field("default_outcome", "described", classes=_STATES),
    Field("outcomes", "symbols"),
    Field("capabilities", "symbols"),
)
composite(Target, 0x29, "amqp:target:list", *_TERMINUS, Field("capabilities", "symbols"))
composite(
    Received,
    0x23,
    "amqp:received:list",
    Field("section_number", "uint", mandatory=True),
    Field("section_offset", "ulong", mandatory=True),
)
composite(Accepted, 0x24, "amqp:accepted:list")
composite(Rejected, 0x25, "amqp:rejected:list", _ERROR, build=Rejected.of)
composite(Released, 0x26, "amqp:released:list")
composite(
    Modified,
    0x27,
    "amqp:modified:list",
    Field("delivery_failed", "boolean", False),
    Field("undeliverable_here", "boolean", False),
    Field("message_annotations", "fields"),
)
