"""AMQP 1.0, bytes to events and back: types, frames, connections, sessions and links of either role, and messages.

There is no socket, no thread and no clock here. A `Connection` takes the peer's bytes and reports events; its methods
and those of its sessions and links produce bytes for the peer. `message` only works on encoded messages.
"""

from tidegate.amqp.encoding.codec import decode, encode
from tidegate.amqp.encoding.errors import AmqpError, DecodeError, EncodeError, UsageError
from tidegate.amqp.encoding.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from tidegate.amqp.endpoints.connection import Connection
from tidegate.amqp.endpoints.events import Closed, Event, Opened
from tidegate.amqp.endpoints.link import (
    AttachReceived,
    Credit,
    Detached,
    Disposition,
    Drained,
    Link,
    LinkAttached,
    Transfer,
    Transfers,
    TransferTooLarge,
)
from tidegate.amqp.endpoints.sasl import SaslInit
from tidegate.amqp.endpoints.session import Ended, Session, SessionBegun
from tidegate.amqp.endpoints.settings import ConnectionSettings
from tidegate.amqp.framing.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    DeliveryState,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
)
from tidegate.amqp.messages.annotations import (
    annotate,
    annotate_run,
    message_annotation,
    with_annotations,
    with_delivery_annotations,
)
from tidegate.amqp.messages.message import (
    BATCH_FORMAT,
    Header,
    Message,
    Properties,
    encode_message,
    parse_message,
    split_batch,
)

__all__ = [
    "ACCEPTED",
    "BATCH_FORMAT",
    "RELEASED",
    "Accepted",
    "AmqpError",
    "Array",
    "AttachReceived",
    "Byte",
    "Char",
    "Closed",
    "Connection",
    "ConnectionSettings",
    "Credit",
    "Decimal",
    "DecodeError",
    "DeliveryState",
    "Described",
    "Detached",
    "Disposition",
    "Drained",
    "EncodeError",
    "Ended",
    "Event",
    "Float",
    "Header",
    "Int",
    "Link",
    "LinkAttached",
    "Message",
    "Modified",
    "Opened",
    "Properties",
    "Rejected",
    "Released",
    "SaslInit",
    "Session",
    "SessionBegun",
    "Short",
    "Source",
    "Symbol",
    "Target",
    "Timestamp",
    "Transfer",
    "TransferTooLarge",
    "Transfers",
    "Ubyte",
    "Uint",
    "Ulong",
    "UsageError",
    "Ushort",
    "annotate",
    "annotate_run",
    "decode",
    "encode",
    "encode_message",
    "message_annotation",
    "parse_message",
    "split_batch",
    "with_annotations",
    "with_delivery_annotations",
]
