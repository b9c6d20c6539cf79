"""Vectors against lists of Python values."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.values.grouping import codes_of, group, sort_keys, spelled, unified
from tidegate.engine.values.vectors import TEXT, Datetime, Failure, Kind, Reason, Vector, is_value, kind_of

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)
    | st.text(max_size=3)
    | st.integers(0, 9).map(Datetime)
    | st.lists(st.integers(0, 1), max_size=2)
    | st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=2)
    | st.just(Failure(Reason.OVERFLOW))
)
LISTS = st.lists(VALUES, max_size=8) | st.sampled_from([[1, 2], ["a", "b"], [0.5], [None, None], [{}], [[], []]])


def same(one: list[Any], other: list[Any]) -> bool:
    return [(type(value), value) for value in one] == [(type(value), value) for value in other]


@given(LISTS, st.data())
def test_a_vector_is_its_values(values: list[Any], data: st.DataObject) -> None:
    vector = Vector.of(values)
    assert same(vector.to_list(), values)
    assert vector.kinds.tolist() == [kind_of(value) for value in values]
    assert vector.present() == {int(kind_of(value)) for value in values}
    assert same(pickle.loads(pickle.dumps(vector)).to_list(), values)
    if values:
        places = data.draw(st.lists(st.integers(0, len(values) - 1)))
        assert same(vector.take(np.array(places, dtype=np.int64)).to_list(), [values[place] for place in places])
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
        assert same(vector.where(mask).to_list(), [value for value, kept in zip(values, mask, strict=True) if kept])


def test_the_pickle_of_a_slice_has_nothing_of_the_other_values() -> None:
    whole = Vector.of(["x" * 100] * 10_000)
    assert whole.texts is not None
    vector = Vector(whole.kinds[:10], texts=whole.texts[5_000:5_010])
    pickled = pickle.dumps(vector, protocol=5)
    assert len(pickled) < 3_000
    assert same(pickle.loads(pickled).to_list(), ["x" * 100] * 10)


@given(st.lists(LISTS, min_size=1, max_size=3))
def test_vectors_join(parts: list[list[Any]]) -> None:
    assert same(Vector.concat(list(map(Vector.of, parts))).to_list(), [value for part in parts for value in part])


@given(st.lists(st.tuples(VALUES, VALUES, st.integers(0, 1)), max_size=6))
def test_values_are_chosen_row_by_row(rows: list[tuple[Any, Any, int]]) -> None:
    which = np.array([row[2] for row in rows], dtype=np.int64)
    chosen = Vector.choose(which, [Vector.of([row[0] for row in rows]), Vector.of([row[1] for row in rows])])
    assert same(chosen.to_list(), [row[row[2]] for row in rows])


def test_what_is_out_of_range_is_an_overflow() -> None:
    overflow = Failure(Reason.OVERFLOW)
    for values in ([2**63, 1], [2**63], [float("inf")], [float("nan"), "x"], [-(2**63) - 1, None]):
        assert Vector.of(values).to_list()[0] == overflow
        assert Vector.of(values).kinds[0] == Kind.ERROR
    assert is_value({"a": [1, None, "x", 0.5, True]})
    assert not any(map(is_value, (2**63, float("nan"), object(), {1: 2}, [2**64])))


@given(LISTS)
def test_equal_values_have_equal_codes_and_sort_keys(values: list[Any]) -> None:
    vector = Vector.of(values)
    for numbers in (codes_of(vector)[0].tolist(), sort_keys(vector).tolist()):
        for one, number in zip(values, numbers, strict=True):
            for other, other_number in zip(values, numbers, strict=True):
                assert ((type(one), one) == (type(other), other)) == (number == other_number)


@given(
    st.lists(st.tuples(st.sampled_from(["a", None, 1, 1.0]), st.integers(-1, 1), st.integers(0, 10**12)), max_size=9)
)
def test_groups_are_dense_and_begin_at_their_first_row(rows: list[tuple[Any, int, int]]) -> None:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    vectors = [Vector.of(list(column)) for column in columns[:2]]
    groups = group(len(rows), vectors, (np.array(columns[2], dtype=np.int64),))
    seen: dict[Any, int] = {}
    firsts = [place for place, row in enumerate(rows) if seen.setdefault(repr(row), place) == place]
    assert sorted(groups.firsts.tolist()) == firsts
    for place, row in enumerate(rows):
        assert groups.firsts[groups.codes[place]] == seen[repr(row)]


def test_more_keys_than_one_number_holds() -> None:
    rng = np.random.default_rng(1)
    columns = [Vector.bigints(rng.integers(0, 2**40, 500) * 2) for _ in range(9)]
    assert group(500, columns).count == 500


@given(
    st.lists(st.sampled_from(["a", "A", "é", "b1", None]), min_size=20, max_size=40), st.randoms(use_true_random=False)
)
def test_texts_that_are_numbers_of_a_dictionary_are_the_texts(values: list[str | None], random: Any) -> None:
    distinct = ["b1", "é", "A", "unused", "a"]
    random.shuffle(distinct)
    numbers = pa.array([None if value is None else distinct.index(value) for value in values], pa.int32())
    encoded = Vector.of_encoded(pa.DictionaryArray.from_arrays(numbers, pa.array(distinct)))
    plain = Vector.of_texts(pa.array(values, TEXT))
    assert encoded.encoded is not None
    assert encoded.uniform == plain.uniform
    places = np.array([random.randrange(len(values)) for _ in values], dtype=np.int64)
    for one, other in (
        (encoded, plain),
        (encoded.take(places), plain.take(places)),
        (encoded.where(places % 2 == 0), plain.where(places % 2 == 0)),
        (encoded.take(places[:3]), plain.take(places[:3])),
        (encoded.with_kinds(encoded.kinds), plain),
        (Vector.concat([encoded, plain]), Vector.concat([plain, plain])),
        (
            Vector.choose(places % 2, [encoded, encoded.take(places)]),
            Vector.choose(places % 2, [plain, plain.take(places)]),
        ),
        (unified(encoded), unified(plain)),
    ):
        groups = group(len(one), [one])
        assert groups.firsts.tolist() == sorted(groups.firsts.tolist(), key=lambda row: int(groups.codes[row]))
        of_row = [other.to_list()[row] for row in groups.firsts[groups.codes].tolist()]
        assert of_row == other.to_list()
        assert groups.count == len(set(other.to_list()))
        folded = group(len(one), [unified(one)])
        assert spelled(one, folded).to_list() == spelled(other, folded).to_list()
        assert pickle.loads(pickle.dumps(one, protocol=5)).to_list() == other.to_list()
        assert one.to_list() == other.to_list()


def test_a_dictionary_of_use_to_few_rows_is_given_up() -> None:
    numbers = pa.array([0, 1, 2, 2] * 2, pa.int32())
    for distinct in (["x", "y", "z"], ["x", "x", "z"], ["x", None, "z"]):
        vector = Vector.of_encoded(pa.DictionaryArray.from_arrays(numbers, pa.array(distinct)))
        assert vector.encoded is None
        assert vector.to_list() == [distinct[number] for number in numbers.to_pylist()]
    many = Vector.of_encoded(
        pa.DictionaryArray.from_arrays(pa.array([7] * 5_000), pa.array([f"t{n}" for n in range(999)]))
    )
    pickled = pickle.dumps(many.take(np.arange(3)), protocol=5)
    assert len(pickled) < 1_000
    assert pickle.loads(pickled).to_list() == ["t7"] * 3
