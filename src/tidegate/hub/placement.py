"""Placement: the partition that an event goes to.

By key: Bob Jenkins' lookup3 (hashlittle2 with both seeds 0, http://burtleburtle.net/bob/c/lookup3.c) of the key's
UTF-8 bytes. The two halves are combined by exclusive or and cut to a signed 16-bit number; its absolute value modulo
the number of partitions is the partition. So a key lands where the service itself and its SDKs would put it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count

_MASK = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    a = (a - c & _MASK) ^ _rotate(c, 4)
    c = c + b & _MASK
    b = (b - a & _MASK) ^ _rotate(a, 6)
    a = a + c & _MASK
    c = (c - b & _MASK) ^ _rotate(b, 8)
    b = b + a & _MASK
    a = (a - c & _MASK) ^ _rotate(c, 16)
    c = c + b & _MASK
    b = (b - a & _MASK) ^ _rotate(a, 19)
    a = a + c & _MASK
    c = (c - b & _MASK) ^ _rotate(b, 4)
    b = b + a & _MASK
    return a, b, c


def _final(a: int, b: int, c: int) -> tuple[int, int]:
    c = (c ^ b) - _rotate(b, 14) & _MASK
    a = (a ^ c) - _rotate(c, 11) & _MASK
    b = (b ^ a) - _rotate(a, 25) & _MASK
    c = (c ^ b) - _rotate(b, 16) & _MASK
    a = (a ^ c) - _rotate(c, 4) & _MASK
    b = (b ^ a) - _rotate(a, 14) & _MASK
    c = (c ^ b) - _rotate(b, 24) & _MASK
    return b, c


@lru_cache(maxsize=1 << 16)
def partition_key_hash(partition_key: str) -> int:
    """Return the key's hash, -32768 to 32767."""
    data = partition_key.encode("utf-8", "surrogatepass")
    a = b = c = 0xDEADBEEF + len(data) & _MASK
    if data:
        last = (len(data) - 1) // 12 * 12  # the last block, of 1 to 12 bytes, goes through the final mix
        for at in range(0, last, 12):
            x, y, z = (int.from_bytes(data[at + k : at + k + 4], "little") for k in (0, 4, 8))
            a, b, c = _mix(a + x & _MASK, b + y & _MASK, c + z & _MASK)
        x, y, z = (int.from_bytes(data[last + k : last + k + 4], "little") for k in (0, 4, 8))
        b, c = _final(a + x & _MASK, b + y & _MASK, c + z & _MASK)
    low = (b ^ c) & 0xFFFF
    return low - 0x10000 if low & 0x8000 else low


def partition_for_key(partition_key: str, partition_count: int) -> int:
    """Return the index of the key's partition."""
    return abs(partition_key_hash(partition_key)) % partition_count


class RoundRobin:
    """Chooses partitions in turn, for events that name none. Safe to call from any thread."""

    def __init__(self, partition_count: int) -> None:
        self._partition_count = partition_count
        self._turns = count()

    def next(self) -> int:
        """Return the index of the next partition."""
        return next(self._turns) % self._partition_count
