"""Extracts bodies from encoded AMQP messages, a whole batch of messages at a time.

A message is a sequence of sections, each with a descriptor (``00 53 code``), a constructor and a size (AMQP 1.0 part 3,
section 3.2: https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html). To find a body one need
only skip what comes before it, not decode it. All messages of a batch do so together: ``position`` is the read position
in each message, and each round moves every message past one section. So a batch costs a few numpy passes instead of a
decoder call per event. A message of another shape (several data sections, a value body, a long-form descriptor) leaves
the rounds and is decoded by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.amqp.messages import parse_message
from tidegate.client.event import NO_DETAILS, Delivery, Details, body_of, details_of

_DATA = 0x75
_FOOTER = 0x78
# Header, delivery annotations, message annotations, properties, application properties may come before a body.
_SECTIONS_BEFORE_A_BODY = 5
_PADDING = bytes(16)


@dataclass(frozen=True, slots=True)
class Messages:
    """Consecutive messages of one partition in encoded form: n messages in one buffer.

    Attributes:
        sequence_numbers: int64[n]. enqueued_times_ms: int64[n], milliseconds since 1970.
        positions: what `offsets` returns, or int64[n] that it turns into text. Few queries ask for offsets, and text
            for every event would be an eighth of a task's time.
        buffer: the concatenated messages; ends: int64[n], where each ends in it.
    """

    sequence_numbers: npt.NDArray[np.int64]
    enqueued_times_ms: npt.NDArray[np.int64]
    positions: list[str] | npt.NDArray[np.int64]
    buffer: bytes
    ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, deliveries: Sequence[Delivery]) -> Messages:
        """Return deliveries as columns."""
        numbers, offsets, times_ms, payloads = zip(*deliveries, strict=True)
        return cls(
            sequence_numbers=np.array(numbers, dtype=np.int64),
            enqueued_times_ms=np.array(times_ms, dtype=np.int64),
            positions=list(offsets),
            buffer=b"".join(payloads),
            ends=np.cumsum(np.fromiter(map(len, payloads), dtype=np.int64, count=len(payloads))),
        )

    @property
    def offsets(self) -> list[str]:
        """The broker's opaque positions, n texts."""
        positions = self.positions
        return positions if isinstance(positions, list) else list(map(str, positions.tolist()))

    def parts(self, most_bytes: int) -> Iterator[Messages]:
        """Yield the same messages in parts of at most ``most_bytes``, or of one message that is larger."""
        first = 0
        while first < len(self.ends):
            begin = int(self.ends[first - 1]) if first else 0
            stop = max(first + 1, int(np.searchsorted(self.ends, begin + most_bytes, side="right")))
            yield self.part(first, stop)
            first = stop

    def part(self, first: int, stop: int) -> Messages:
        """Return a stretch of the messages."""
        if (first, stop) == (0, len(self.ends)):
            return self
        begin = int(self.ends[first - 1]) if first else 0
        return Messages(
            self.sequence_numbers[first:stop],
            self.enqueued_times_ms[first:stop],
            self.positions[first:stop],
            self.buffer[begin : int(self.ends[stop - 1])],
            self.ends[first:stop] - begin,
        )

    def details(self) -> list[Details]:
        """Return the publisher, partition key and properties of each event."""
        return details(self)


def bodies(buffer: bytes, ends: npt.NDArray[np.int64]) -> list[bytes]:
    """Return the body of each message.

    Args:
        buffer: the concatenated encoded messages.
        ends: int64[n], where each message ends in ``buffer``.

    Returns:
        n bodies; several data sections are joined, a value body is its text, bytes or JSON.
    """
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1]
    body_start, body_end = body_spans(buffer, starts, ends)
    found = body_start >= 0
    result = [buffer[start:end] for start, end in zip(body_start.tolist(), body_end.tolist(), strict=True)]
    for index in np.flatnonzero(~found).tolist():
        result[index] = _decoded_body(buffer[int(starts[index]) : int(ends[index])])
    return result


def body_spans(
    buffer: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where the body of each message begins and ends: the bytes of its only data section.

    Args:
        buffer: the concatenated encoded messages.
        starts: int64[n], where each message begins in ``buffer``.
        ends: int64[n], where each ends.

    Returns:
        int64[n] and int64[n]; −1 for a message that needs the decoder.
    """
    octets = np.frombuffer(buffer + _PADDING, dtype=np.uint8)
    body_start = np.full(len(ends), -1, dtype=np.int64)
    body_end = np.full(len(ends), -1, dtype=np.int64)
    rows = np.arange(len(ends))
    position = starts.copy()
    for _ in range(_SECTIONS_BEFORE_A_BODY + 1):
        described = (octets[position] == 0x00) & (octets[position + 1] == 0x53) & (position + 4 < ends[rows])
        code = octets[position + 2]
        constructor = octets[position + 3]
        short = octets[position + 4].astype(np.int64)
        long = _big_endian_32(octets, position + 4)

        is_data = described & (code == _DATA)
        for form, start, size in ((0xA0, position + 5, short), (0xB0, position + 8, long)):
            here = is_data & (constructor == form)
            stop = start + size
            whole = here & (
                (stop == ends[rows]) | ((stop < ends[rows]) & (octets[np.minimum(stop + 2, ends[rows])] == _FOOTER))
            )
            body_start[rows[whole]] = start[whole]
            body_end[rows[whole]] = stop[whole]

        before_body = described & (code >= 0x70) & (code < _DATA)
        following = np.where(
            (constructor == 0xC0) | (constructor == 0xC1),
            position + 5 + short,
            np.where((constructor == 0xD0) | (constructor == 0xD1), position + 8 + long, position + 4),
        )
        sized = np.isin(constructor, (0x45, 0xC0, 0xC1, 0xD0, 0xD1))
        go_on = before_body & sized & (following < ends[rows])
        rows, position = rows[go_on], following[go_on]
        if not len(rows):
            break
    return body_start, body_end


def _big_endian_32(octets: npt.NDArray[np.uint8], position: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    value = octets[position].astype(np.int64)
    for offset in (1, 2, 3):
        value = (value << 8) | octets[position + offset]
    return value


def _decoded_body(message: bytes) -> bytes:
    return body_of(parse_message(message))


def details(messages: Messages) -> list[Details]:
    """Return the details of each message; one with nothing but a data section has none, and is not decoded."""
    found = []
    start = 0
    for end in messages.ends.tolist():
        plain = messages.buffer[start : start + 3] == b"\x00\x53\x75"
        found.append(NO_DETAILS if plain else details_of(parse_message(messages.buffer[start:end])))
        start = end
    return found
