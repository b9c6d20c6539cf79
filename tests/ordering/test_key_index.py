import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.ordering import KeyIndex, Keys, key_index

# Lengths at and next to whole words; bytes that differ in the last place, and zeros that are part of the key.
few_bytes = st.builds(
    lambda length, last: (b"0123456789abcdefg" * 2)[:length] + last, st.integers(0, 25), st.binary(max_size=1)
)
some_keys = st.lists(st.one_of(few_bytes, st.binary(max_size=20)), unique=True, max_size=30)


def all_equal(keys: Keys) -> key_index.Words:
    return np.zeros(len(keys), dtype=np.uint64)


def by_length(keys: Keys) -> key_index.Words:
    return keys.lengths.astype(np.uint64) << np.uint64(62)


def hashing(weakly: Callable[[Keys], key_index.Words] | None) -> AbstractContextManager[object]:
    return nullcontext() if weakly is None else mock.patch.object(key_index, "hashes_of", weakly)


weakly = pytest.mark.parametrize("weakly", [None, all_equal, by_length], ids=["hashes", "one hash", "few hashes"])


@given(some_keys, st.data())
def test_keys_are_a_list_of_bytes(keys: list[bytes], data: st.DataObject) -> None:
    column = Keys.of(keys)
    assert column.to_list() == keys
    rows = data.draw(st.lists(st.integers(0, len(keys) - 1), max_size=10)) if keys else []
    some = column.take(np.array(rows, dtype=np.int64))
    for same in (some, some.packed(), pickle.loads(pickle.dumps(some))):
        assert same.to_list() == [keys[row] for row in rows]
        assert key_index.hashes_of(same).tolist() == [key_index.hashes_of(column).tolist()[row] for row in rows]


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=10))
def test_woven_keys_are_one_after_the_other_each_in_whole_words(pairs: list[tuple[bytes, bytes]]) -> None:
    def words(content: bytes) -> bytes:
        return content + bytes(-len(content) % 8)

    woven = Keys.woven([Keys.of([one for one, _ in pairs]), Keys.of([other for _, other in pairs])])
    assert woven.to_list() == [words(one) + words(other) for one, other in pairs]


@weakly
@given(st.lists(some_keys, max_size=6), st.data())
def test_an_index_is_a_dictionary(
    weakly: Callable[[Keys], key_index.Words] | None, batches: list[list[bytes]], data: st.DataObject
) -> None:
    with hashing(weakly), mock.patch.object(key_index, "_LEAST_ROOM", 4):
        index, model = KeyIndex(), dict[bytes, int]()
        for keys in batches:
            assert index.find(Keys.of(keys)).tolist() == [model.get(key, -1) for key in keys]
            assert index.add(Keys.of(keys)).tolist() == [model.setdefault(key, len(model)) for key in keys]
            assert len(index) == len(model)
            assert index.keys().to_list() == list(model)
            if data.draw(st.booleans()):
                index = pickle.loads(pickle.dumps(index))
            if model and data.draw(st.booleans()):
                kept = data.draw(st.lists(st.sampled_from(range(len(model))), unique=True))
                every = list(model)
                index = index.only(np.array(kept, dtype=np.int64))
                model = {every[code]: number for number, code in enumerate(kept)}


def test_many_keys_at_once_and_after_one_another() -> None:
    keys = [b"device-%d" % number for number in range(50_000)]
    at_once, one_by_one = KeyIndex(Keys.of(keys)), KeyIndex()
    for start in range(0, len(keys), 700):
        one_by_one.add(Keys.of(keys[start : start + 700]))
    shuffled = np.random.default_rng(1).permutation(len(keys))
    for index in (at_once, one_by_one):
        assert index.find(Keys.of(keys).take(shuffled)).tolist() == shuffled.tolist()
        assert (index.find(Keys.of([key + b"x" for key in keys])) == -1).all()


def test_hashes_are_spread() -> None:
    """Keys that differ in a bit or a place do not crowd into some slots, so that looking one up takes few rounds."""
    kinds: list[Sequence[bytes]] = [
        [b"device-%07d" % number for number in range(30_000)],
        [b"%d" % number for number in range(30_000)],
        [(number << 40).to_bytes(8, "little") for number in range(30_000)],
        [(number << 3).to_bytes(8, "big") * 2 for number in range(30_000)],
    ]
    for keys in kinds:
        hashes = key_index.hashes_of(Keys.of(keys))
        assert len(set(hashes.tolist())) == len(keys)
        slots = np.bincount((hashes >> np.uint64(64 - 16)).astype(np.int64))
        # 30,000 in 65,536: of a fair hash about one slot in ten thousand would have five.
        assert slots.max() <= 9


@pytest.mark.slow
def test_codes_are_the_same_in_every_process_whose_hashes_differ() -> None:
    program = (
        "from tidegate.ordering import KeyIndex, Keys, key_index\n"
        "index = KeyIndex(Keys.of([b'%d' % n for n in range(3000)]))\n"
        "print(index.add(Keys.of([b'%d' % n for n in range(4000, 0, -7)])).sum(), key_index.hashes_of(Keys.of([b'a'])))"
    )
    told = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in "ab"]
    one, other = (each.stdout.split() for each in told)
    assert one[0] == other[0]
    assert one[1] != other[1]
