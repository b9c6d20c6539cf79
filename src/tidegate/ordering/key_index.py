"""Keys of substreams as columns, and the index that gives each its code.

A key is a string of bytes; the caller decides what it means. n keys are a column of eight-byte words, with a start and
a length for each key and zeros behind its last byte, so that a million keys are three arrays and not a million objects.

Theory. The index is a hash table with open addressing and linear probing (Knuth, "The Art of Computer Programming",
volume 3, 6.4, algorithm L), searched for all keys of a batch in parallel: in each round every key that has not been
found is compared with the key in its slot, and moves to the next slot if the two differ. Keys are equal if their
hashes, lengths and bytes are equal; different keys with the same hash end up in neighbouring slots. If several new keys
reach an empty slot together, one gets it and the others move on. At most half of the slots are taken, so few rounds are
needed. Keys are never removed one by one: `KeyIndex.only` builds another index.

Codes are assigned in the order of the keys. So they do not depend on the hashes, and are the same in every process that
has added the same keys in the same order.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

WORD = 8
_LEAST_ROOM = 1024
_SEED = np.uint64(secrets.randbits(64))
"""Random in each process, so that a sender of keys cannot know which of them collide."""
_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
_HALF = np.uint64(32)
_MASKS = np.array([2**64 - 1, *((1 << (8 * length)) - 1 for length in range(1, WORD))], dtype=np.uint64)
"""By length modulo 8, which bytes of a last word are the key's; the first byte is the least significant."""


class Keys:
    """n keys: key i is the ``lengths[i]`` bytes of ``words`` from word ``starts[i]`` on."""

    __slots__ = ("lengths", "starts", "words")

    def __init__(self, words: Words, starts: Codes, lengths: Codes) -> None:
        self.words = words
        self.starts = starts
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.starts)

    def __reduce__(self) -> tuple[Any, ...]:
        packed = self.packed()
        return _of_packed, (packed.words, packed.lengths)

    @classmethod
    def of(cls, keys: Sequence[bytes]) -> Keys:
        """Return these keys as columns."""
        lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
        return cls.of_bytes(np.frombuffer(b"".join(keys), dtype=np.uint8), np.cumsum(lengths) - lengths, lengths)

    @classmethod
    def of_bytes(cls, data: Bytes, starts: Codes, lengths: Codes) -> Keys:
        """Cut keys out of bytes: key i is ``lengths[i]`` bytes of ``data`` from ``starts[i]`` on."""
        counts = _counts(lengths)
        if len(data) < int((starts + WORD * counts).max(initial=WORD)):
            data = np.append(data, np.zeros(WORD, dtype=np.uint8))
        every = np.ndarray((len(data) - WORD + 1,), dtype="<u8", buffer=data.data, strides=(1,))
        ends = np.cumsum(counts)
        places = np.repeat(starts - WORD * (ends - counts), counts)
        places += WORD * np.arange(len(places))
        words = every[places].astype(np.uint64, copy=False)
        some = np.flatnonzero(counts)
        words[ends[some] - 1] &= _MASKS[lengths[some] % WORD]
        return cls(words, ends - counts, lengths)

    @classmethod
    def of_words(cls, rows: Words) -> Keys:
        """Return the rows of a matrix uint64[n, k] as keys."""
        count, each = rows.shape
        return cls(np.ascontiguousarray(rows).ravel(), each * np.arange(count), np.full(count, each * WORD))

    @classmethod
    def woven(cls, parts: Sequence[Keys]) -> Keys:
        """Join keys part by part: each result has all words of its key in every part, one after the other."""
        counts = [_counts(part.lengths) for part in parts]
        total = np.add.reduce(counts)
        starts = np.cumsum(total) - total
        words = np.empty(int(total.sum()), dtype=np.uint64)
        places = starts.copy()
        for part, count in zip(parts, counts, strict=True):
            words[_each(places, count)] = part.packed().words
            places += count
        return cls(words, starts, WORD * total)

    def take(self, rows: Codes) -> Keys:
        """Return some of the keys; the words are shared."""
        return Keys(self.words, self.starts[rows], self.lengths[rows])

    def packed(self) -> Keys:
        """Return the same keys over words that lie one after the other, and no others."""
        counts = _counts(self.lengths)
        starts = np.cumsum(counts) - counts
        total = int(counts.sum())
        first = int(self.starts[0]) if total else 0
        if bool((self.starts - first == starts).all()):
            return Keys(self.words[first : first + total], starts, self.lengths)
        return Keys(self.words[_each(self.starts, counts)], starts, self.lengths)

    def to_list(self) -> list[bytes]:
        """Return the keys as objects."""
        packed = self.packed()
        data = packed.words.astype("<u8", copy=False).tobytes()
        starts = WORD * packed.starts
        return [data[start:end] for start, end in zip(starts.tolist(), (starts + self.lengths).tolist(), strict=True)]


def _of_packed(words: Words, lengths: Codes) -> Keys:
    counts = _counts(lengths)
    return Keys(words, np.cumsum(counts) - counts, lengths)


def _counts(lengths: Codes) -> Codes:
    """Return how many words keys of these lengths have."""
    return (lengths + (WORD - 1)) >> 3


def _each(starts: Codes, counts: Codes) -> Codes:
    """Return the places starts[0], starts[0] + 1, …, counts[0] of them, then those of the next."""
    ends = np.cumsum(counts)
    places: Codes = np.repeat(starts - (ends - counts), counts)
    places += np.arange(len(places))
    return places


def hashes_of(keys: Keys, seed: np.uint64 = _SEED) -> Words:
    """Return a hash of each key, uint64[n]; with the seed that is random in each process, they hold within it only."""
    counts = _counts(keys.lengths)
    hashes = _mixed(seed ^ keys.lengths.astype(np.uint64))
    fewest, most = int(counts.min(initial=2**62)), int(counts.max(initial=0))
    for number in range(most):
        if number < fewest:
            hashes = _mixed(hashes ^ keys.words[keys.starts + number])
        else:
            rows = np.flatnonzero(counts > number)
            hashes[rows] = _mixed(hashes[rows] ^ keys.words[keys.starts[rows] + number])
    return hashes


def _mixed(hashes: Words) -> Words:
    """Mix every bit into the upper half and back: the slot is taken from the upper bits."""
    mixed: Words = hashes * _FACTOR
    mixed ^= mixed >> _HALF
    mixed *= _FACTOR
    return mixed


def _equal(mine: Keys, my_rows: Codes, theirs: Keys, their_rows: Codes) -> npt.NDArray[np.bool_]:
    """Return which pairs of keys have the same bytes."""
    lengths, starts, others = mine.lengths[my_rows], mine.starts[my_rows], theirs.starts[their_rows]
    equal: npt.NDArray[np.bool_] = lengths == theirs.lengths[their_rows]
    counts = np.where(equal, _counts(lengths), 0)
    fewest, most = int(counts.min(initial=2**62)), int(counts.max(initial=0))
    for number in range(most):
        if number < fewest:
            equal &= mine.words[starts + number] == theirs.words[others + number]
        else:
            pairs = np.flatnonzero(counts > number)
            equal[pairs] &= mine.words[starts[pairs] + number] == theirs.words[others[pairs] + number]
    return equal


class KeyIndex:
    """The dictionary key -> code, 0 to n − 1. It only grows."""

    def __init__(self, keys: Keys | None = None) -> None:
        self._count = 0
        self._used = 0
        self._words = np.empty(0, dtype=np.uint64)
        self._starts = np.empty(0, dtype=np.int64)
        self._lengths = np.empty(0, dtype=np.int64)
        self._hashes = np.empty(0, dtype=np.uint64)
        self._slots = np.full(_LEAST_ROOM, -1, dtype=np.int32)
        if keys is not None:
            self.add(keys)

    def __len__(self) -> int:
        return self._count

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyIndex, (self.keys(),)

    def keys(self) -> Keys:
        """Return all keys, in order of their codes."""
        return Keys(self._words[: self._used], self._starts[: self._count], self._lengths[: self._count])

    def only(self, codes: Codes) -> KeyIndex:
        """Return a new index of some of the keys, in this order."""
        other = KeyIndex()
        other._append(self.keys().take(codes), self._hashes[codes])
        return other

    def find(self, keys: Keys) -> Codes:
        """Return int64[n]: the code of each key, −1 for a key that is not in the index."""
        return self._found(keys, hashes_of(keys))

    def add(self, keys: Keys) -> Codes:
        """Return int64[n]: the code of each key, no two of which are equal; new keys get the next codes."""
        hashes = hashes_of(keys)
        codes = self._found(keys, hashes)
        new = np.flatnonzero(codes < 0)
        if len(new):
            codes[new] = np.arange(self._count, self._count + len(new))
            self._append(keys.take(new), hashes[new])
        return codes

    def _found(self, keys: Keys, hashes: Words) -> Codes:
        codes = np.full(len(keys), -1, dtype=np.int64)
        known, last = self.keys(), len(self._slots) - 1
        rows, slots = np.arange(len(keys)), self._homes(hashes)
        while len(rows):
            every = self._slots[slots]
            taken = np.flatnonzero(every >= 0)
            here, rows, slots = every[taken].astype(np.int64), rows[taken], slots[taken]
            same = self._hashes[here] == hashes[rows]
            alike = np.flatnonzero(same)
            if len(alike):
                equal = _equal(known, here[alike], keys, rows[alike])
                same[alike] = equal
                alike = alike[equal]
                codes[rows[alike]] = here[alike]
            others = np.flatnonzero(~same)
            rows, slots = rows[others], (slots[others] + 1) & last
        return codes

    def _append(self, keys: Keys, hashes: Words) -> None:
        """Append keys that are not in the index."""
        packed = keys.packed()
        first, count, end = self._count, self._count + len(packed), self._used + len(packed.words)
        self._words = _room(self._words, self._used, end)
        self._starts, self._lengths, self._hashes = (
            _room(column, first, count) for column in (self._starts, self._lengths, self._hashes)
        )
        self._words[self._used : end] = packed.words
        self._starts[first:count] = packed.starts + self._used
        self._lengths[first:count] = packed.lengths
        self._hashes[first:count] = hashes
        self._count, self._used = count, end
        if 2 * count > len(self._slots):
            self._slots = np.full(2 << (2 * count - 1).bit_length(), -1, dtype=np.int32)
            first = 0
        self._place(np.arange(first, count, dtype=np.int32))

    def _place(self, codes: npt.NDArray[np.int32]) -> None:
        """Put each code into a slot of its own."""
        last = len(self._slots) - 1
        slots = self._homes(self._hashes[codes])
        while len(codes):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = codes[free]
            left = np.flatnonzero(self._slots[slots] != codes)
            codes, slots = codes[left], (slots[left] + 1) & last

    def _homes(self, hashes: Words) -> Codes:
        bits = np.uint64(64 - (len(self._slots).bit_length() - 1))
        return (hashes >> bits).astype(np.int64)


def _room(column: npt.NDArray[Any], used: int, needed: int) -> npt.NDArray[Any]:
    """Return a column with enough room and the used part of the old one."""
    if needed <= len(column):
        return column
    more = np.empty(max(needed, 2 * len(column), _LEAST_ROOM), dtype=column.dtype)
    more[:used] = column[:used]
    return more
