"""The AMQP type system in Python: one class for each type (`codec` turns them to bytes and back).

Part 1 of the specification, http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-types-v1.0-os.html

Every AMQP type has one Python type, so that what was decoded encodes to the same AMQP type again:

| AMQP | Python | AMQP | Python |
|---|---|---|---|
| null, boolean | None, bool | char | Char |
| long | int | timestamp | Timestamp (ms since 1970) |
| ubyte, ushort, uint, ulong | Ubyte, Ushort, Uint, Ulong | uuid | uuid.UUID |
| byte, short, int | Byte, Short, Int | binary, string, symbol | bytes, str, Symbol |
| double, float | float, Float | list, map | list, dict |
| decimal32, 64, 128 | Decimal (opaque bytes) | array, described | Array, Described |

The wrappers are subclasses of int, float and str and compare equal to them, so `Symbol("a") == "a"`.

AMQP error conditions, the error type sent to peers, and the exceptions of this package.

Conditions: AMQP 1.0 part 2, sections 2.8.15 to 2.8.18, and two that Event Hubs adds.
http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html#type-amqp-error
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID


class Ubyte(int):
    """An unsigned 8-bit integer."""

    __slots__ = ()


class Ushort(int):
    """An unsigned 16-bit integer."""

    __slots__ = ()


class Uint(int):
    """An unsigned 32-bit integer."""

    __slots__ = ()


class Ulong(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


class Byte(int):
    """A signed 8-bit integer."""

    __slots__ = ()


class Short(int):
    """A signed 16-bit integer."""

    __slots__ = ()


class Int(int):
    """A signed 32-bit integer; a plain Python int is a long."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970-01-01T00:00:00Z."""

    __slots__ = ()


class Float(float):
    """A 32-bit float; a plain Python float is a double."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A symbolic value: ASCII by the specification, but UTF-8 is accepted from peers that send it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Decimal:
    """An opaque decimal number: the 4, 8 or 16 bytes of its IEEE 754-2008 encoding."""

    encoded: bytes


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor (usually a Symbol or a Ulong) that gives its meaning."""

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type with the shared constructor `code`, and a shared `descriptor` if they are described."""

    code: int
    items: list[Any]
    descriptor: Any = None

    @classmethod
    def of(cls, kind: type, items: Iterable[Any]) -> Array:
        """Return an array of one Python type of the table above, e.g. `Array.of(Symbol, ["a", "b"])`."""
        return cls(_ARRAY_CODE[kind], list(items))


_ARRAY_CODE: dict[type, int] = {
    bool: 0x56,
    int: 0x81,
    float: 0x82,
    str: 0xB1,
    bytes: 0xB0,
    list: 0xD0,
    dict: 0xD1,
    UUID: 0x98,
    Array: 0xF0,
    Ubyte: 0x50,
    Ushort: 0x60,
    Uint: 0x70,
    Ulong: 0x80,
    Byte: 0x51,
    Short: 0x61,
    Int: 0x71,
    Float: 0x72,
    Char: 0x73,
    Timestamp: 0x83,
    Symbol: 0xB3,
}


INTERNAL_ERROR = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"
NOT_IMPLEMENTED = "amqp:not-implemented"
ILLEGAL_STATE = "amqp:illegal-state"
CONNECTION_FORCED = "amqp:connection:forced"
FRAMING_ERROR = "amqp:connection:framing-error"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"
HANDLE_IN_USE = "amqp:session:handle-in-use"
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
STOLEN = "amqp:link:stolen"


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
