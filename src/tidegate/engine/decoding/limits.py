"""Limits on one event or file: untrusted bytes may claim no more than this depth, count and size."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of decoding. Anything beyond them is an Input Deserialization Error of that event or file.

    Attributes:
        depth: how deeply arrays, records and their schemas may be nested.
        event_bytes: the size of one event's body after decompression.
        file_bytes: the size of one file after decompression.
        rows: how many rows one event or file may announce.
    """

    depth: int = 64
    event_bytes: int = 16 << 20
    file_bytes: int = 2 << 30
    rows: int = 10_000_000


DEFAULT_LIMITS = Limits()
