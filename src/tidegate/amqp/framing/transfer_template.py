"""A template for the transfer frames of a sending link: only size, delivery id and tag differ between them."""

from __future__ import annotations

import struct

from tidegate.amqp.framing.frames import TRANSFER_DESCRIPTOR

MORE = b"\x41\x40\x40\x40\x40\x40"
"""The last fields of a frame that is followed by others of its delivery: `more`, then nulls."""
LAST = b"\x42\x40\x40\x40\x40\x40"
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")


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
