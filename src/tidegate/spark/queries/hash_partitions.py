"""Labels that Spark's hash partitioning tells apart: each goes to a partition of its own.

Spark puts a row into partition ``pmod(hash(label), count)``, and 0 and 1, for example, both belong to partition 1 of 2.
With labels that do not collide, as many tasks have something to do as there are partitions.
"""

from __future__ import annotations

from functools import lru_cache

_MASK = 0xFFFF_FFFF
_SEED = 42


@lru_cache
def labels(count: int) -> tuple[int, ...]:
    """Return a label, an ``int``, for each of ``count`` partitions: label n belongs to partition n."""
    found: dict[int, int] = {}
    label = 0
    while len(found) < count:
        found.setdefault(_signed(_hash(label)) % count, label)
        label += 1
    return tuple(found[partition] for partition in range(count))


def _hash(value: int) -> int:
    """Return what Spark's ``hash`` of an ``int`` is: MurmurHash3 for 32 bits, as an unsigned number."""
    mixed = _rotated(value * 0xCC9E_2D51, 15) * 0x1B87_3593 & _MASK
    state = _rotated(_SEED ^ mixed, 13) * 5 + 0xE654_6B64 & _MASK
    state ^= 4  # bytes
    state = (state ^ state >> 16) * 0x85EB_CA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2_AE35 & _MASK
    return state ^ state >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK


def _signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value
