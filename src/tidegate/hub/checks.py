"""Whether the bytes of an event can be delivered.

Every delivery cuts the message open where its annotations are, so an event must be sections from end to end with
annotations that can be read; what is inside the other sections is the publisher's and the consumers' affair. The shapes
that clients write are recognised by their first bytes, the rest is taken apart.
"""

from __future__ import annotations

from tidegate.amqp.message import DecodeError, annotate, sections

_MESSAGE_ANNOTATIONS = 0x72
_EMPTY_MAP = b"\x00\x53\x72\xd1\x00\x00\x00\x04\x00\x00\x00\x00"
_KEYED = b"\xa3\x13x-opt-partition-key\xa1"
# A section's first 4 bytes, when its value has a size in 1 byte or in 4; annotations of messages are not among them.
_SECTIONS = [code for code in range(0x70, 0x79) if code != _MESSAGE_ANNOTATIONS]
_SHORT = frozenset(bytes((0, 0x53, code, kind)) for code in _SECTIONS for kind in (0xA0, 0xA1, 0xC0, 0xC1))
_LONG = frozenset(bytes((0, 0x53, code, kind)) for code in _SECTIONS for kind in (0xB0, 0xB1, 0xD0, 0xD1))


def check_event(event: bytes) -> None:
    """Raises DecodeError for an event that no consumer could be given."""
    position, size = 0, len(event)
    while position < size:
        head = event[position : position + 4]
        if head in _SHORT and position + 5 <= size:
            position += 5 + event[position + 4]
        elif head in _LONG and position + 8 <= size:
            position += 8 + int.from_bytes(event[position + 4 : position + 8], "big")
        elif position == 0 and event.startswith(_EMPTY_MAP):
            position = len(_EMPTY_MAP)
        elif position == 0 and event.startswith(_KEYED, 6) and _is_one_key(event):
            position = 5 + event[4]
        else:
            _take_apart(event)
            return
    if position != size or not size:
        raise DecodeError("an event must be sections from its first byte to its last")


def _is_one_key(event: bytes) -> bool:
    """The annotations at the beginning are a partition key and nothing else."""
    value = 6 + len(_KEYED)
    return (
        event[:4] == b"\x00\x53\x72\xc1"
        and event[5] == 2
        and value < len(event)
        and value + 1 + event[value] == 5 + event[4]
    )


def _take_apart(event: bytes) -> None:
    for _ in sections(event):
        pass
    annotate(event, 0, "0", 0)
