"""Locating the sections of an encoded message without decoding them.

Part 3, section 3.2, defines the sections; part 1, section 1.2, how a constructor determines the size of its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidegate.amqp.encoding.codec import decode, skip
from tidegate.amqp.encoding.errors import DecodeError
from tidegate.amqp.encoding.types import Symbol

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
VALUE = 0x77
FOOTER = 0x78

_SYMBOLS = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}


class Section(NamedTuple):
    """The location of a section in a message: its descriptor's code, its start, its value's start, and its end."""

    code: int
    start: int
    value: int
    end: int


def sections(encoded: bytes) -> Iterator[Section]:
    """Yield the sections of a message by their sizes alone. Raises DecodeError if they do not fill it."""
    position, size = 0, len(encoded)
    while position < size:
        section = section_at(encoded, position)
        yield section
        position = section.end


def section_at(encoded: bytes, start: int) -> Section:
    """Return the section that starts at a position. Raises DecodeError if there is none."""
    try:
        constructor = encoded[start + 1]
        if encoded[start] != 0:
            raise DecodeError("a section is not a described value")
        if constructor == 0x53:
            code, value = encoded[start + 2], start + 3
        else:
            descriptor, value = decode(encoded, start + 1)
            code = _SYMBOLS.get(descriptor.encode(), 0) if isinstance(descriptor, Symbol) else descriptor
        if not isinstance(code, int) or not HEADER <= code <= FOOTER:
            raise DecodeError("a section of an unknown kind")
        return Section(code, start, value, skip(encoded, value))
    except IndexError:
        raise DecodeError("the message ends inside a section") from None
