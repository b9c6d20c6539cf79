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

_HEADER = 0x70
_DATA = 0x75
_FOOTER = 0x78
# Header, delivery annotations, message annotations, properties, application properties may come before a body.
_SECTIONS_BEFORE_A_BODY = 5
_WORD_BYTES = 8


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
    body_start = np.full(len(ends), -1, dtype=np.int64)
    body_end = np.full(len(ends), -1, dtype=np.int64)
    rows, position = np.arange(len(ends)), starts
    for _ in range(_SECTIONS_BEFORE_A_BODY + 1):
        if not len(rows):
            break
        words = _words_at(buffer, position)
        heads = words.astype(np.uint32)
        # Nearly always, all messages are at the same kind of section.
        alike = bool((heads == heads[0]).all())
        following: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        for head in (int(heads[0]),) if alike else _SECTIONS:
            section = _SECTIONS.get(head)
            here = slice(None) if alike else np.flatnonzero(heads == head)
            if section is None or not len(rows[here]):
                continue
            of_section, stop = rows[here], section.content_ends(position[here], words[here])
            end = ends[of_section]
            if section.is_body:
                whole = stop == end
                if not whole.all():
                    whole |= (stop + 2 < end) & (_octets_at(buffer, np.minimum(stop + 2, end - 1)) == _FOOTER)
                body_start[of_section[whole]] = position[here][whole] + section.content_at
                body_end[of_section[whole]] = stop[whole]
            else:
                inside = stop < end
                following.append((of_section[inside], stop[inside]))
        if not following:
            break
        rows, position = (np.concatenate(parts) for parts in zip(*following, strict=True))
    return body_start, body_end


@dataclass(frozen=True, slots=True)
class _Section:
    """A form that a section may have.

    Attributes:
        content_at: where its content begins, in bytes from the section's first.
        size_bytes: how many bytes before that say how long the content is; 0, 1 or 4.
        is_body: whether it is a data section.
    """

    content_at: int
    size_bytes: int
    is_body: bool

    def content_ends(self, position: npt.NDArray[np.int64], words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return where the contents of n sections end, given the first eight bytes of each."""
        end = position + self.content_at
        if self.size_bytes == 1:
            end += ((words >> np.uint64(32)) & np.uint64(0xFF)).astype(np.int64)
        elif self.size_bytes:
            end += (words >> np.uint64(32)).astype(np.uint32).byteswap()
        return end


def _sections() -> dict[int, _Section]:
    """Return the forms of sections by their first four bytes, as a little-endian number."""
    empty, short, long = (4, 0), (5, 1), (8, 4)
    lists = {0x45: empty, 0xC0: short, 0xC1: short, 0xD0: long, 0xD1: long}
    found = {(_DATA, 0xA0): _Section(*short, is_body=True), (_DATA, 0xB0): _Section(*long, is_body=True)}
    for code in range(_HEADER, _DATA):
        found |= {(code, constructor): _Section(*form, is_body=False) for constructor, form in lists.items()}
    return {int.from_bytes((0x00, 0x53, *key), "little"): section for key, section in found.items()}


_SECTIONS = _sections()


def _words_at(buffer: bytes, position: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return the eight bytes at each position, as little-endian numbers; bytes after the end are 0."""
    if len(position) and int(position.max()) + _WORD_BYTES > len(buffer):
        buffer += bytes(_WORD_BYTES)
    count = max(0, len(buffer) - _WORD_BYTES + 1)
    words: npt.NDArray[np.uint64] = np.ndarray((count,), dtype="<u8", buffer=buffer, strides=(1,))
    return words[position]


def _octets_at(buffer: bytes, position: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(buffer, dtype=np.uint8)[position]


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
