"""Frames: splitting the peer's bytes into frames, encoding them, and a fast path for transfers.

Part 2, section 2.3: four bytes of size, one of data offset in words, one of type, two of channel; then the
performative and, in a transfer, the payload. http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tidegate.amqp.encoding.codec import decode, skip
from tidegate.amqp.encoding.composites import decode_composite, encode_composite
from tidegate.amqp.encoding.types import DECODE_ERROR, FRAMING_ERROR, DecodeError, PeerError
from tidegate.amqp.framing.performatives import TransferFrame

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_FRAME = 0
SASL_FRAME = 1
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"
FRAME_HEAD = struct.Struct(">IBBH")
MIN_MAX_FRAME_SIZE = 512
MAX_FRAME_SIZE_BEFORE_OPEN = 1 << 14
"""The largest frame before the peer's open: more than the 512 bytes of section 2.4.1, which clients exceed."""
MAX_PERFORMATIVE_SIZE = 1 << 14
"""The largest performative: unlike a payload, its decoded form takes many times its size in memory."""

TRANSFER_DESCRIPTOR = b"\x00\x53\x14"
_SERIAL = 0xFFFFFFFF
_TWO_U32 = struct.Struct(">II")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")


class FrameBuffer:
    """The peer's unread bytes.

    `data` is unread from `position` on. A reader that finds an incomplete frame calls keep() with the size it needs. A
    frame received in many pieces is joined once, when its last piece has arrived.
    """

    __slots__ = ("_needed", "_partial", "data", "position")

    def __init__(self) -> None:
        self.data = b""
        self.position = 0
        self._partial = bytearray()
        self._needed = 0

    def feed(self, data: bytes) -> None:
        """Append bytes to the unread ones."""
        if self.position < len(self.data):
            self.keep(0)
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed:
                return
            data = bytes(self._partial)
            self._partial.clear()
        self.data = data
        self.position = 0

    def keep(self, needed: int) -> None:
        """Set the unread bytes aside until there are `needed` of them."""
        self._partial += self.data[self.position :]
        self._needed = needed
        self.data = b""
        self.position = 0

    @property
    def waiting(self) -> int:
        """The number of unread bytes."""
        return len(self._partial) + len(self.data) - self.position


def read_head(data: bytes, position: int, limit: int) -> tuple[int, int, int, int]:
    """Return size, body offset, type and channel of the frame at a position. Raises PeerError."""
    size, words, kind, channel = FRAME_HEAD.unpack_from(data, position)
    if size > limit:
        raise PeerError(FRAMING_ERROR, f"a frame of {size} bytes where {limit} are allowed")
    if size < 8 or words < 2 or 4 * words > size:
        raise PeerError(FRAMING_ERROR, "a malformed frame header")
    return size, 4 * words, kind, channel


def read_performative(body: bytes, *expected: type[Any]) -> tuple[Any, int]:
    """Return the performative of a frame's body, and where its payload starts. Raises PeerError."""
    try:
        stop = skip(body, 0)
        if stop > MAX_PERFORMATIVE_SIZE:
            raise PeerError(DECODE_ERROR, f"a performative of {stop} bytes")
        value, _ = decode(body[:stop])
    except DecodeError as error:
        raise PeerError(DECODE_ERROR, f"a malformed performative: {error}") from None
    return decode_composite(value, *expected), stop


def encode_frame(channel: int, performative: Any, kind: int = AMQP_FRAME) -> bytes:
    """Return the frame of a performative without a payload."""
    body = encode_composite(performative)
    return FRAME_HEAD.pack(8 + len(body), 2, kind, channel) + body


def accepted_frame(channel: int, first: int, last: int) -> bytes:
    """Return a receiver's disposition that settles and accepts `first` to `last`, the answer publishers wait for."""
    return _ACCEPTED.pack(33, 2, 0, channel, b"\x00\x53\x15\xc0\x14\x06\x41\x70", first, b"\x70", last, _AND_SETTLED)


_ACCEPTED = struct.Struct(">IBBH8sIsI8s")
_AND_SETTLED = b"\x41\x00\x53\x24\xc0\x01\x00\x42"

TransferFields = tuple[int, int | None, bytes | None, int | None, bool, bool, bool, int]
"""Handle, delivery id, delivery tag, message format, settled, more, aborted, and where the payload starts."""


def parse_transfer(data: bytes, start: int, end: int) -> TransferFields:
    """Parse the transfer whose body starts with TRANSFER_DESCRIPTOR at `start`.

    The encodings that clients use are read in place; all others go through the codec. Raises PeerError.
    """
    fields = _parse_quickly(data, start + len(TRANSFER_DESCRIPTOR), end)
    if fields is not None:
        return fields
    frame, payload = read_performative(data[start:end], TransferFrame)
    return transfer_fields(frame, start + payload)


class TransferShape:
    """The shared parts of a busy link's transfer frames: all but size, delivery id, tag and payload.

    Each frame is a complete delivery, and their ids have no gap; `next_id` is the next one.
    `layout.unpack_from(data, position)` gives size, head, delivery id, tag head and rest of a frame. If the three that
    are stored here are equal, the frame's other fields are those in `common`.
    """

    __slots__ = ("channel", "common", "head", "layout", "next_id", "rest", "size", "tag_head")

    def __init__(self, data: bytes, position: int, id_at: int, fields: TransferFields) -> None:
        handle, delivery_id, tag, message_format, settled, _, _, stop = fields
        tag_size = len(tag or b"")
        tag_at = id_at + 6
        self.channel: int = FRAME_HEAD.unpack_from(data, position)[3]
        self.common = (handle, message_format, settled)
        self.next_id = ((delivery_id or 0) + 1) & _SERIAL
        self.head = data[position + 4 : id_at]
        self.tag_head = data[id_at + 4 : tag_at]
        self.rest = data[tag_at + tag_size : stop]
        self.size = stop - position
        self.layout = struct.Struct(f">I{len(self.head)}sI2s{tag_size}x{len(self.rest)}s")


def transfer_shape(data: bytes, position: int, body: int, fields: TransferFields) -> TransferShape | None:
    """Return the shape of the transfer frame at `position` with the given fields.

    None if it is only part of a delivery, or its encodings are not the usual ones for a delivery id above 255.
    """
    at = body + len(TRANSFER_DESCRIPTOR)
    if fields[2] is None or fields[5] or fields[6] or data[at] not in _LIST_HEADS:
        return None
    at += _LIST_HEADS[data[at]]
    handle_size = _HANDLE_SIZES.get(data[at])
    if handle_size is None or data[at + handle_size] != 0x70 or data[at + handle_size + 5] != 0xA0:
        return None
    return TransferShape(data, position, at + handle_size + 1, fields)


_LIST_HEADS = {0xC0: 3, 0xD0: 9}
_HANDLE_SIZES = {0x43: 1, 0x52: 2, 0x70: 5}


def transfer_fields(frame: TransferFrame, payload: int) -> TransferFields:
    """Return the fields of a decoded transfer."""
    return (
        frame.handle,
        frame.delivery_id,
        frame.delivery_tag,
        frame.message_format,
        bool(frame.settled),
        frame.more,
        frame.aborted,
        payload,
    )


def _parse_quickly(data: bytes, position: int, end: int) -> TransferFields | None:
    """Parse a transfer by the usual constructors of its fields, or return None at the first unusual one.

    It may look past `end`, into the next frame, before it notices that the list ended; no field is taken from there.
    """
    try:
        if data[position] == 0xC0:
            stop = position + 2 + data[position + 1]
            count, at = data[position + 2], position + 3
        else:
            size, count = _TWO_U32.unpack_from(data, position + 1)
            stop, at = position + 5 + size, position + 9
            if data[position] != 0xD0:
                return None
        if stop > end or not 4 <= count <= 11:
            return None
        code = data[at]
        if code == 0x52:
            handle, at = data[at + 1], at + 2
        elif code == 0x43:
            handle, at = 0, at + 1
        elif code == 0x70:
            handle, at = _U32.unpack_from(data, at + 1)[0], at + 5
        else:
            return None
        delivery_id: int | None
        code = data[at]
        if code == 0x52:
            delivery_id, at = data[at + 1], at + 2
        elif code == 0x70:
            delivery_id, at = _U32.unpack_from(data, at + 1)[0], at + 5
        elif code == 0x43:
            delivery_id, at = 0, at + 1
        elif code == 0x40:
            delivery_id, at = None, at + 1
        else:
            return None
        tag: bytes | None
        code = data[at]
        if code == 0xA0:
            tag_end = at + 2 + data[at + 1]
            tag, at = data[at + 2 : tag_end], tag_end
        elif code == 0x40:
            tag, at = None, at + 1
        else:
            return None
        message_format: int | None
        code = data[at]
        if code == 0x43:
            message_format, at = 0, at + 1
        elif code == 0x70:
            message_format, at = _U32.unpack_from(data, at + 1)[0], at + 5
        elif code == 0x40:
            message_format, at = None, at + 1
        else:
            return None
        flags = _FLAGS.get(data[at:stop])
        if flags is None or flags[2] != count - 4 or at > stop:
            return None
        return handle, delivery_id, tag, message_format, flags[0], flags[1], False, stop
    except (IndexError, struct.error):
        return None


def _all_flags() -> dict[bytes, tuple[bool, bool, int]]:
    """Return the byte sequences that can follow the message format in an ordinary transfer, with their field counts.

    They are settled, more, then null or false to the end of the list; only batchable may be true.
    """
    booleans = {b"\x40": False, b"\x41": True, b"\x42": False, b"\x56\x00": False, b"\x56\x01": True}
    flags: dict[bytes, tuple[bool, bool, int]] = {b"": (False, False, 0)}
    for settled_bytes, settled in booleans.items():
        flags[settled_bytes] = (settled, False, 1)
        for more_bytes, more in booleans.items():
            start = settled_bytes + more_bytes
            for count in range(5):
                for unset in (b"\x40", b"\x42", b"\x56\x00"):
                    rest = b"\x40" * min(count, 2) + unset * max(count - 2, 0)
                    flags[start + rest] = (settled, more, 2 + count)
                    if count == 4:
                        for batchable in booleans:
                            flags[start + rest + batchable] = (settled, more, 7)
    return flags


_FLAGS = _all_flags()


MORE = b"\x41\x40\x40\x40\x40\x40"
"""The last fields of a frame that is followed by others of its delivery: `more`, then nulls."""
LAST = b"\x42\x40\x40\x40\x40\x40"


class TransferTemplate:
    """A frame is `layout.pack(size, head, delivery id, tail)`, then MORE or LAST, then the payload."""

    __slots__ = ("_tail", "head", "layout", "message_format", "settled")

    def __init__(self, channel: int, handle: int, message_format: int, settled: bool) -> None:
        # A settled delivery needs no unique tag, and a constant one saves memory in clients that remember tags.
        tag = b"\xa0\x01\x00" if settled else b"\xa0\x04\x00\x00\x00\x00"
        self._tail = tag + b"\x70" + _U32.pack(message_format) + (b"\x41" if settled else b"\x42")
        fields = b"\x70" + _U32.pack(handle) + b"\x70"
        size = 1 + len(fields) + 4 + len(self._tail) + len(LAST)
        start = b"\x02\x00" + _U16.pack(channel) + TRANSFER_DESCRIPTOR
        self.head = start + bytes((0xC0, size, 11)) + fields
        self.layout = struct.Struct(f">I{len(self.head)}sI{len(self._tail)}s")
        self.message_format = message_format
        self.settled = settled

    @property
    def overhead(self) -> int:
        """Return the bytes of a frame before its payload."""
        return self.layout.size + len(LAST)

    def tail(self, delivery_id: int) -> bytes:
        """Return the bytes after the delivery id. An unsettled delivery's tag is its id."""
        tail = self._tail
        return tail if self.settled else tail[:2] + _U32.pack(delivery_id) + tail[6:]


class FrameQueue:
    """The frames that wait for data_to_send(), in order. After the local close nothing more is queued.

    Attributes: `frames`; `max_frame_size`, the largest size in bytes that the peer accepts; `closed`; `flushes`, called
    once before the frames are taken, for frames written as late as possible (settlements).
    """

    __slots__ = ("closed", "flushes", "frames", "max_frame_size")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.max_frame_size = MIN_MAX_FRAME_SIZE
        self.closed = False
        self.flushes: list[Callable[[], None]] = []

    def send(self, channel: int, performative: Any) -> None:
        """Queue a performative without a payload."""
        if not self.closed:
            self.frames.append(encode_frame(channel, performative))

    def send_frame(self, frame: bytes) -> None:
        """Queue an encoded frame."""
        if not self.closed:
            self.frames.append(frame)

    def flush(self) -> None:
        """Queue the deferred frames."""
        if self.flushes:
            for flush in self.flushes:
                flush()
            self.flushes.clear()
