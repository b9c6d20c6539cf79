"""Validate events before storing them, so that every stored event can be delivered and decoded.

Every delivery splits the message at its annotations, and every consumer decodes all of it: an event that cannot be
decoded would stop the readers of its partition for good. So an event must consist of sections only, with values of the
types that the sections allow, all of them decodable (AMQP part 3, section 3.2). Their meaning is up to publishers and
consumers.

Most events need no decoding: they are data, with or without a partition key, recognised by their first bytes.
Properties are mostly a few short strings and numbers, which a walk over their sizes validates; anything else is
decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from struct import Struct

from tidegate.amqp.messages import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    DecodeError,
    annotate,
    decode,
    sections,
)
from tidegate.hub.producers import PRODUCER_SEQUENCE_NUMBER

_EMPTY_MAP = b"\x00\x53\x72\xd1\x00\x00\x00\x04\x00\x00\x00\x00"
_KEYED = b"\xa3\x13x-opt-partition-key\xa1"
_LISTS = (HEADER, PROPERTIES, SEQUENCE)
_MAPS = (DELIVERY_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER)


def _heads(codes: Iterable[int], constructor: int) -> frozenset[bytes]:
    """Return the possible first bytes of sections of these kinds whose value has this constructor."""
    return frozenset(bytes((0, 0x53, code, constructor)) for code in codes)


_SHORT_ANNOTATIONS, _LONG_ANNOTATIONS = b"\x00\x53\x72\xc1", b"\x00\x53\x72\xd1"
# The annotation's name and the constructor of an int of four bytes.
_NUMBERED = bytes((0xA3, len(PRODUCER_SEQUENCE_NUMBER))) + PRODUCER_SEQUENCE_NUMBER.encode("ascii") + b"\x71"
_NUMBER_BYTES = 4
_TWO_U32 = Struct(">II").unpack_from
_REMEMBERED_BYTES = 256
_FEW = 8
"""So many events are checked one by one."""
_BINARY8, _STRING8, _SYMBOL8, _LIST8, _MAP8 = 0xA0, 0xA1, 0xA3, 0xC0, 0xC1
_SIMPLE = {0x40: 0, 0x41: 0, 0x42: 0, 0x43: 0, 0x44: 0, 0x50: 1, 0x51: 1, 0x52: 1, 0x53: 1, 0x54: 1, 0x55: 1, 0x60: 2}
_SIMPLE |= {0x61: 2, 0x70: 4, 0x71: 4, 0x72: 4, 0x80: 8, 0x81: 8, 0x82: 8, 0x83: 8, 0x98: 16}
_SIMPLE_SIZES = [_SIMPLE.get(code, -1) for code in range(256)]
"""Sizes by constructor, for values that are valid whatever their bytes are."""

# Sizes of 1 or 4 bytes; message annotations are not among them.
_SHORT_BYTES = _heads((DATA, VALUE), _BINARY8)
_LONG_BYTES = _heads((DATA, VALUE), 0xB0)
_SHORT_HEADS, _LONG_HEADS = (frozenset(map(int.from_bytes, heads)) for heads in (_SHORT_BYTES, _LONG_BYTES))
_SHORT = _heads(_LISTS, _LIST8) | _heads(_MAPS, _MAP8) | _heads((VALUE,), _STRING8)
_LONG = _heads(_LISTS, 0xD0) | _heads(_MAPS, 0xD1) | _heads((VALUE,), 0xB1)


def check_events(events: Sequence[bytes]) -> bool:
    """Check each event, and return whether any may have message annotations.

    Cheaper than repeated check_event(): events of one publisher begin alike, and a prefix found valid is remembered.
    Those of an idempotent producer begin alike but for their number, which may be any.
    """
    annotated, beginning, rest, rest_at, start = False, b"", b"", 0, 0
    for event in events:
        left = len(event) - start
        if left >= 8 and event.startswith(beginning) and (not rest or event.startswith(rest, rest_at)):
            head, size = _TWO_U32(event, start)
            if (head in _LONG_HEADS and size == left - 8) or (head in _SHORT_HEADS and size >> 24 == left - 5):
                continue
        start, has_annotations = _walk(event)
        if has_annotations and not start:
            start = max(section.start for section in sections(event))
        number = _place_of_number(event) if has_annotations else 0
        rest_at = number + _NUMBER_BYTES if number else start
        beginning, rest = event[: number or start], event[rest_at:start]
        annotated |= has_annotations
        if len(events) > _FEW and event is events[0] and _begin_alike(events, start):
            break
    return annotated


def _begin_alike(events: Sequence[bytes], start: int) -> bool:
    """Return whether all events are what the first, valid one is up to `start`, and then data that fills them.

    Each combination of a beginning and a length is checked once, and there are as many as there are lengths.
    """
    first = events[0]
    head = first[start : start + 4]
    if head in _SHORT_BYTES:
        stop = start + 5
    elif head in _LONG_BYTES:
        stop = start + 8
    else:
        return False
    beginning = first[: start + 4]
    if not (events[1].startswith(beginning) and events[-1].startswith(beginning)):
        return False
    return all(
        found.startswith(beginning) and length == stop + int.from_bytes(found[start + 4 :], "big")
        for found, length in set(zip(map(itemgetter(slice(stop)), events), map(len, events), strict=True))
    )


def _place_of_number(event: bytes) -> int:
    """Return where a valid event has its producer's number; 0 if it has none among the first, short annotations."""
    head = event[:4]
    if head not in (_SHORT_ANNOTATIONS, _LONG_ANNOTATIONS):
        return 0
    position, end = (6, 5 + event[4]) if head == _SHORT_ANNOTATIONS else (12, 8 + int.from_bytes(event[4:8], "big"))
    while position < end:
        if event.startswith(_NUMBERED, position):
            return position + len(_NUMBERED)
        for _ in range(2):
            size = _SIMPLE_SIZES[event[position]]
            if size < 0:
                if event[position] not in (_BINARY8, _STRING8, _SYMBOL8):
                    return 0
                size = 1 + event[position + 1]
            position += 1 + size
    return 0


def check_event(event: bytes) -> None:
    """Raise DecodeError for an event that could not be delivered or that no consumer could decode."""
    _walk(event)


def _walk(event: bytes) -> tuple[int, bool]:
    """Validate the sections. Return where the last one begins, and whether there may be message annotations."""
    position, last, size, annotated = 0, 0, len(event), False
    while position < size:
        last = position
        head = event[position : position + 4]
        if head in _SHORT_BYTES and position + 5 <= size:
            position += 5 + event[position + 4]
        elif head in _LONG_BYTES and position + 8 <= size:
            position += 8 + int.from_bytes(event[position + 4 : position + 8], "big")
        elif position == 0 and event.startswith(_EMPTY_MAP):
            position = len(_EMPTY_MAP)
        elif position == 0 and event.startswith(_KEYED, 6) and _is_one_key(event):
            position, annotated = 5 + event[4], True
        elif head in _SHORT and position + 5 <= size:
            value, position = position + 3, position + 5 + event[position + 4]
            _check_value(event[value:position])
        elif head in _LONG and position + 8 <= size:
            value = position + 3
            position += 8 + int.from_bytes(event[position + 4 : position + 8], "big")
            _check_value(event[value:position])
        else:
            _take_apart(event)
            return 0, True
    if position != size or not size:
        raise DecodeError("an event must be sections from its first byte to its last")
    return last, annotated


def _is_one_key(event: bytes) -> bool:
    """Return whether the leading annotations are a partition key and nothing else."""
    value = 6 + len(_KEYED)
    return (
        event[:4] == b"\x00\x53\x72\xc1"
        and event[5] == 2
        and value < len(event)
        and value + 1 + event[value] == 5 + event[4]
        and event[value + 1 : 5 + event[4]].isascii()
    )


def _check_value(encoded: bytes) -> None:
    if len(encoded) > _REMEMBERED_BYTES:
        _check_value_anew(encoded)
    else:
        _check_short_value(encoded)


def _check_value_anew(encoded: bytes) -> None:
    code = encoded[0]
    try:
        if code == _STRING8:
            sound = encoded[2:].isascii()
        elif code in (_LIST8, _MAP8):
            count = encoded[2]
            sound = _are_simple(encoded, 3, count) and (code == _LIST8 or not count & 1)
        else:
            sound = False
    except IndexError:
        sound = False
    if sound:
        return
    _, end = decode(encoded)
    if end != len(encoded):
        raise DecodeError("a section's value does not fill it")


# repeated properties are remembered
_check_short_value = lru_cache(maxsize=4096)(_check_value_anew)


def _are_simple(encoded: bytes, position: int, count: int) -> bool:
    """Return whether the rest is exactly `count` values of simple types.

    False, or an IndexError, if only decoding can tell.
    """
    sizes = _SIMPLE_SIZES
    for _ in range(count):
        code = encoded[position]
        position += 1
        size = sizes[code]
        if size < 0:
            size = 1 + encoded[position]
            if code in (_STRING8, _SYMBOL8):
                if not encoded[position + 1 : position + size].isascii():
                    return False
            elif code != _BINARY8:
                return False
        position += size
    return position == len(encoded)


def _take_apart(event: bytes) -> None:
    for section in sections(event):
        value, end = decode(event, section.value)
        if end != section.end:
            raise DecodeError("a section's value does not fill it")
        if section.code != VALUE and not _has_type(section.code, value):
            if section.code == DATA and value is None:
                # JavaScript's client sends this for a body of null or undefined; most clients cannot read it
                raise DecodeError("an event without a body: give it one, if only an empty text")
            raise DecodeError("a section whose value is not of its type")
    annotate(event, 0, 0, 0)


def _has_type(code: int, value: object) -> bool:
    if code == DATA:
        return isinstance(value, bytes)
    if code in _LISTS:
        return isinstance(value, list)
    return value is None or isinstance(value, dict)
