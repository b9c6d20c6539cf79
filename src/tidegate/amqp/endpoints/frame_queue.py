"""The queue of outgoing frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.amqp.framing.frames import MIN_MAX_FRAME_SIZE, encode_frame


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
