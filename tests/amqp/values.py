"""Any AMQP value, for Hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.amqp import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(alphabet="abcdefghijklmnopqrstuvwxyz:-", max_size=20)
longs = st.integers(-(2**63), 2**63 - 1)
doubles = st.floats(allow_nan=False)
uuids = st.uuids()


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


BY_CLASS: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: longs,
    float: doubles,
    str: text,
    bytes: st.binary(max_size=300),
    Ubyte: unsigned(8).map(Ubyte),
    Ushort: unsigned(16).map(Ushort),
    Uint: unsigned(32).map(Uint),
    Ulong: unsigned(64).map(Ulong),
    Byte: signed(8).map(Byte),
    Short: signed(16).map(Short),
    Int: signed(32).map(Int),
    Float: st.floats(width=32, allow_nan=False).map(Float),
    Char: st.characters(exclude_categories=["Cs"]).map(Char),
    Timestamp: longs.map(Timestamp),
    Symbol: names.map(Symbol),
}

scalars = st.one_of(
    st.none(),
    uuids,
    st.sampled_from([4, 8, 16]).flatmap(lambda size: st.binary(min_size=size, max_size=size)).map(Decimal),
    *BY_CLASS.values(),
)


def _containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(children, max_size=6),
        st.dictionaries(st.one_of(names.map(Symbol), text), children, max_size=6),
        st.builds(Described, st.one_of(names.map(Symbol), unsigned(64).map(Ulong)), children),
    )


arrays = st.sampled_from(sorted(BY_CLASS, key=lambda kind: kind.__name__)).flatmap(
    lambda kind: st.lists(BY_CLASS[kind], max_size=6).map(lambda items: Array.of(kind, items))
)
values = st.recursive(st.one_of(scalars, arrays), _containers, max_leaves=12)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in AMQP type, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, Array):
        return left.code == right.code and same(left.descriptor, right.descriptor) and left.items == right.items
    return bool(left == right)
