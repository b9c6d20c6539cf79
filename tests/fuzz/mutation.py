"""Good input made bad: bits, bytes, lengths, pieces doubled, left out, moved, or taken from another input."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

_TELLING = (0, 1, 7, 0x40, 0x7F, 0x80, 0xA1, 0xB1, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0, 0xFE, 0xFF)
_LONGEST = 4096


def mutations(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """`count` inputs, the same ones for the same `seed`; the seeds themselves come first."""
    yield from seeds
    chance = random.Random(seed)
    for _ in range(count):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 2, 3, 8, 30))):
            _mutate(data, chance, seeds)
        yield bytes(data[:_LONGEST])


def _mutate(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    to = min(len(data), at + chance.choice((1, 2, 4, 8, 60)))
    match chance.randrange(8):
        case 0 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(data):
            data[at] = chance.choice(_TELLING)
        case 2:
            data[at:to] = chance.choice(_TELLING).to_bytes(4, chance.choice(("big", "little")))
        case 3:
            del data[at:to]
        case 4:
            data[at:at] = data[at:to] * chance.choice((1, 2, 20))
        case 5:
            other = chance.choice(seeds)
            start = chance.randrange(len(other) + 1)
            data[at:to] = other[start : start + chance.choice((1, 4, 30, 500))]
        case 6:
            data[at:] = b""
        case _:
            data[at:at] = chance.randbytes(chance.choice((1, 4, 16)))
