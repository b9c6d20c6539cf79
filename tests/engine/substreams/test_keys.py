from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.substreams.keys import keys_of, values_of
from tidegate.engine.values.grouping import codes_of, group, sort_keys
from tidegate.engine.values.json_lines import key_texts_of, plain
from tidegate.engine.values.vectors import Datetime, Kind, Vector, kind_of

values = st.one_of(
    st.text(max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0),
    st.booleans(),
    st.builds(Datetime, st.integers(0, 10**17)),
    st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
    st.lists(st.integers(0, 9), max_size=3),
)
tuples = st.integers(1, 3).flatmap(lambda width: st.lists(st.tuples(*[values] * width), min_size=1, max_size=12))


def told(value: Any) -> tuple[int, Any]:
    nested = isinstance(value, dict | list)
    return int(kind_of(value)), key_texts_of(Vector.of([plain(value)]))[0] if nested else value


@given(tuples)
def test_a_key_tells_its_values_and_their_types(rows: list[tuple[Any, ...]]) -> None:
    columns = [Vector.of(column) for column in zip(*rows, strict=True)]
    keys = keys_of(columns).to_list()
    assert [values_of(key) for key in keys] == [tuple(map(told, row)) for row in rows]
    # So does the key of a row in any other batch.
    alone = [keys_of([column.take(np.array([row])) for column in columns]) for row in range(len(rows))]
    assert [key.to_list()[0] for key in alone] == keys


TEXTS = ["a", "A", "é", "e\u0301", "É", "x" * 300, "x" * 299 + "y", "1", "true", "", " ", "{}", "[]", "null"]
NUMBERS = [None, 1, 1.0, 0, 0.0, -0.0, 2**53, 2.0**53, 2**53 + 1, True, False, Datetime(1), Datetime(0)]
NESTED = [{}, [], {"x": 1}, {"x": 1.0}, {"X": 1}, {"x": 1, "y": 2}, {"y": 2, "x": 1}, {"x": None}, [1], [1, 2], [[1]]]
confusable = st.one_of(*map(st.sampled_from, (TEXTS, NUMBERS, NESTED)))


@given(st.lists(st.tuples(confusable, confusable), min_size=1, max_size=12))
def test_keys_are_equal_where_groups_are(rows: list[tuple[Any, Any]]) -> None:
    """GROUP BY, PARTITION BY, DISTINCT and the order of groups tell the same values apart as OVER does."""
    column = Vector.of([one for one, _ in rows])
    groups, ranks, codes = group(len(rows), [column]), sort_keys(column), codes_of(column)[0]
    keys = keys_of([column, Vector.of([other for _, other in rows])]).to_list()
    pairs = group(len(rows), [column, Vector.of([other for _, other in rows])]).codes
    written = [(kind_of(one), json_of(one)) for one, _ in rows]
    for i in range(len(rows)):
        for j in range(len(rows)):
            same = written[i] == written[j]
            assert (groups.codes[i] == groups.codes[j]) == (codes[i] == codes[j]) == (ranks[i] == ranks[j]) == same
            assert (keys[i] == keys[j]) == (pairs[i] == pairs[j])


def json_of(value: Any) -> str:
    """Return what an output shows of a value, which is equal for values that are one key."""
    return key_texts_of(Vector.of([value, 1.5]))[0]


@given(st.lists(st.text(max_size=20), min_size=1))
def test_a_text_alone_is_its_bytes(texts: list[str]) -> None:
    assert keys_of([Vector.of(texts)]).to_list() == [text.encode() for text in texts]
    assert keys_of([Vector.of([*texts, 1])]).to_list()[:-1] == [text.encode() for text in texts]


def test_equal_numbers_of_other_types_are_other_keys() -> None:
    keys = keys_of([Vector.of([1, 1.0, True, "1", Datetime(1)])]).to_list()
    assert len(set(keys)) == 5
    assert [values_of(key)[0][0] for key in keys] == [
        Kind.BIGINT,
        Kind.FLOAT,
        Kind.BIT,
        Kind.NVARCHAR,
        Kind.DATETIME,
    ]
