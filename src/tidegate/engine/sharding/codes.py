"""The shard of a row, from the values of its keys.

Rows of one key must meet in one shard (`values.grouping`), so whole numbers, floats and bits hash alike if they are
equal, and texts by their small letters. So must rows that `=` of a JOIN finds equal, which also converts
(`stateful.join_keys`): then a text that reads as a number or a time hashes as that number or time. A query without such
joins does not look for those, which is faster.

The hash starts from a seed of the run, so that a sender of keys cannot know which of them share a shard.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.stateful.join_keys import class_of
from tidegate.engine.substreams.keys import texts_as_keys
from tidegate.engine.values.grouping import without_case
from tidegate.engine.values.vectors import TEXT, Int64Array, Kind, Texts, Vector
from tidegate.ordering import Keys, hashes_of

Hashes = npt.NDArray[np.uint64]

_NUMBERS = (Kind.BIGINT, Kind.FLOAT, Kind.BIT)
# A text that begins otherwise, or is one of these words, may read as a number, a time or a bit.
_PLAIN_TEXT = r"^[a-z_{(\[#@/$%&*]"
_WORDS_FOR_BITS = "^(true|false)[^a-z0-9_]*$"
_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
_HALF = np.uint64(32)


def shard_codes(keys: Sequence[Vector], count: int, shards: int, seed: int, *, wide: bool) -> Int64Array:
    """Return int64[count]: the shard of each row, from the columns of its keys; without keys, shard 0.

    Args:
        wide: whether values that `=` finds equal must have one shard, or only those that GROUP BY does.
    """
    hashes = np.full(count, seed, dtype=np.uint64)
    for key in keys:
        hashes = _mixed(hashes ^ _hashes(key, seed, wide=wide))
    return shards_of(hashes, shards)


def codes_of_keys(keys: Keys, shards: int, seed: int) -> Int64Array:
    """Return int64[n]: the shard of each OVER key, by its bytes."""
    return shards_of(hashes_of(keys, np.uint64(seed)), shards)


def shards_of(hashes: Hashes, shards: int) -> Int64Array:
    """Return int64[n]: the shard of each hash, from its upper half."""
    return ((hashes >> _HALF) % np.uint64(shards)).astype(np.int64)


def _hashes(key: Vector, seed: int, *, wide: bool) -> Hashes:
    """Return a hash of each value; that of a NULL, a failure, a record or an array follows from its kind alone."""
    hashes = key.kinds.astype(np.uint64)
    for kind in key.present():
        if key.uniform == kind:
            return _of_kind(key, kind, seed, wide=wide)
        places = np.flatnonzero(key.kinds == kind)
        hashes[places] = _of_kind(key.take(places), kind, seed, wide=wide)
    return hashes


def _of_kind(key: Vector, kind: int, seed: int, *, wide: bool) -> Hashes:
    if kind == Kind.NVARCHAR:
        return _of_texts(without_case(key.text_values()), seed, wide=wide)
    if kind in _NUMBERS:
        numbers = key.float_values() if kind == Kind.FLOAT else key.int_values().astype(np.float64)
        return _of_numbers(numbers)
    if kind == Kind.DATETIME:
        return _of_times(key.int_values())
    return np.full(len(key), kind, dtype=np.uint64)


def _of_numbers(numbers: npt.NDArray[np.float64]) -> Hashes:
    return _mixed((numbers + 0.0).view(np.uint64))


def _of_times(ticks: Int64Array) -> Hashes:
    return _mixed(ticks.view(np.uint64) ^ _FACTOR)


def _of_texts(texts: Texts, seed: int, *, wide: bool) -> Hashes:
    hashes = hashes_of(texts_as_keys(texts), np.uint64(seed))
    if not wide:
        return hashes
    plain = pc.and_not(pc.match_substring_regex(texts, _PLAIN_TEXT), pc.match_substring_regex(texts, _WORDS_FOR_BITS))
    doubtful = np.flatnonzero(~plain.to_numpy(zero_copy_only=False))
    if len(doubtful):
        distinct = texts.take(pa.array(doubtful)).dictionary_encode()
        words = [class_of(Kind.NVARCHAR, text, "") for text in distinct.dictionary.to_pylist()]
        hashes[doubtful] = _of_classes(words, seed)[distinct.indices.to_numpy()]
    return hashes


def _of_classes(words: Sequence[tuple[str, float | int | str]], seed: int) -> Hashes:
    """Return the hash of each class of equal values, the same as that of its members of other types."""
    hashes = hashes_of(texts_as_keys(pa.array([str(value) for _, value in words], TEXT)), np.uint64(seed))
    for place, (family, value) in enumerate(words):
        if family == "number":
            hashes[place] = _of_numbers(np.array([value], dtype=np.float64))[0]
        elif family == "time":
            hashes[place] = _of_times(np.array([value], dtype=np.int64))[0]
    return hashes


def _mixed(hashes: Hashes) -> Hashes:
    mixed: Hashes = hashes * _FACTOR
    mixed ^= mixed >> _HALF
    mixed *= _FACTOR
    return mixed
