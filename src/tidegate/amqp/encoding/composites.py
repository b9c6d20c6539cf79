"""Composite types: described lists with named fields, as performatives, terminus, states and sections all are.

Part 1, section 1.4. A class is bound to its descriptor and its fields by `composite`; the fields stand in the order of
the class's own. What goes out is always full length with explicit nulls, in a list8 or list32 under a smallulong
descriptor: Microsoft's Python client reads fields by position and fails on a list that leaves the trailing ones out.
What comes in may be shorter, or longer, and the descriptor may be the symbolic one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from tidegate.amqp.encoding.codec import encode, encode_list, encode_map, encode_uint, encode_ulong
from tidegate.amqp.encoding.errors import INVALID_FIELD, PeerError
from tidegate.amqp.encoding.types import Array, Described, Symbol, Timestamp, Ubyte, Ulong, Ushort

Composite = TypeVar("Composite")


class Field(NamedTuple):
    """One field: its name, the kind of its value (a key of `_ENCODERS`), what null means, and whether null may be.

    `classes` are the ones a described value may turn out to be.
    """

    name: str
    kind: str
    default: Any = None
    mandatory: bool = False
    classes: tuple[type, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """How a class goes on the wire: numeric and symbolic descriptor, and fields."""

    kind: type
    code: int
    symbol: str
    fields: tuple[Field, ...]
    build: Callable[..., Any]


_BY_CLASS: dict[type, Layout] = {}
_BY_DESCRIPTOR: dict[Any, Layout] = {}


def composite(kind: type, code: int, symbol: str, *fields: Field, build: Callable[..., Any] | None = None) -> Layout:
    """Bind a class to its descriptor and fields; `build` makes an instance of their values if the class does not."""
    layout = Layout(kind, code, symbol, fields, build or kind)
    _BY_CLASS[kind] = layout
    _BY_DESCRIPTOR[code] = layout
    _BY_DESCRIPTOR[symbol] = layout
    return layout


def encode_composite(value: Any) -> bytes:
    """The encoding of an instance of a bound class, all fields present.

    Raises EncodeError for a field whose value does not fit its kind.
    """
    layout = _BY_CLASS[type(value)]
    items = []
    for field in layout.fields:
        item = getattr(value, field.name)
        items.append(b"\x40" if item is None else _ENCODERS[field.kind](item))
    return bytes((0x00, 0x53, layout.code)) + encode_list(items)


def decode_composite(value: Any, *expected: type[Composite]) -> Composite:
    """The instance of one of the `expected` classes that a decoded Described value stands for.

    Raises PeerError for another descriptor, for a missing mandatory field and for a value of the wrong type.
    """
    layout = layout_of(value)
    if layout is None or layout.kind not in expected:
        names = ", ".join(kind.__name__.lower() for kind in expected)
        raise PeerError(INVALID_FIELD, f"expected {names}")
    instance: Composite = layout.build(*read_fields(layout, value.value))
    return instance


def layout_of(value: Any) -> Layout | None:
    """The layout a Described value's descriptor names; None for an unknown descriptor or anything but a Described."""
    if not isinstance(value, Described) or not isinstance(value.descriptor, Ulong | Symbol):
        return None
    return _BY_DESCRIPTOR.get(value.descriptor)


def read_fields(layout: Layout, items: Any) -> list[Any]:
    """The values of a layout's fields from a decoded list; absent and null ones take their defaults."""
    name = layout.kind.__name__.lower()
    if not isinstance(items, list):
        raise PeerError(INVALID_FIELD, f"{name} is not a list")
    values = []
    for index, field in enumerate(layout.fields):
        item = items[index] if index < len(items) else None
        if item is None:
            if field.mandatory:
                raise PeerError(INVALID_FIELD, f"{name}.{field.name} is missing")
            values.append(field.default)
            continue
        try:
            read = _READERS[field.kind](item)
        except (TypeError, ValueError):
            raise PeerError(INVALID_FIELD, f"{name}.{field.name} is not a {field.kind}") from None
        if field.classes and not isinstance(read, field.classes):
            raise PeerError(INVALID_FIELD, f"{name}.{field.name} is described as something else")
        values.append(read)
    return values


# --- what a field of each kind is written from and read to ------------------------------------------------------------


def _symbols(values: Any) -> bytes:
    return encode(Array.of(Symbol, [values] if isinstance(values, str) else values))


def _fields(value: Any) -> bytes:
    return encode_map([part for key, item in value.items() for part in (encode(Symbol(key)), encode(item))])


def _annotations(value: Any) -> bytes:
    parts = []
    for key, item in value.items():
        parts.append(encode(Symbol(key)) if isinstance(key, str) else encode_ulong(key))
        parts.append(encode(item))
    return encode_map(parts)


def _boolean(value: Any) -> bytes:
    return b"\x41" if value else b"\x42"


def _composite_or_described(value: Any) -> bytes:
    return encode_composite(value) if type(value) in _BY_CLASS else encode(value)


def _small(kind: Callable[[int], Any]) -> Callable[[Any], bytes]:
    return lambda value: encode(kind(value))


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "any": encode,
    "boolean": _boolean,
    "ubyte": _small(Ubyte),
    "ushort": _small(Ushort),
    "uint": encode_uint,
    "ulong": encode_ulong,
    "timestamp": _small(Timestamp),
    "binary": encode,
    "string": lambda value: encode(str(value)),
    "symbol": lambda value: encode(Symbol(value)),
    "symbols": _symbols,
    "map": encode,
    "fields": _fields,
    "annotations": _annotations,
    "described": _composite_or_described,
}


def _read_instance(kind: type) -> Callable[[Any], Any]:
    def read(item: Any) -> Any:
        if not isinstance(item, kind):
            raise TypeError
        return item

    return read


def _read_number(limit: int) -> Callable[[Any], int]:
    def read(item: Any) -> int:
        if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item < limit:
            raise TypeError
        return int(item)

    return read


def _read_timestamp(item: Any) -> Timestamp:
    if not isinstance(item, int) or isinstance(item, bool):
        raise TypeError
    return Timestamp(item)


def _read_symbols(item: Any) -> tuple[Symbol, ...]:
    items = item.items if isinstance(item, Array) else item if isinstance(item, list) else [item]
    if not all(isinstance(entry, str) for entry in items):
        raise TypeError
    return tuple(Symbol(entry) for entry in items)


def _read_described(item: Any) -> Any:
    """A bound composite becomes its instance; a description nobody bound here is kept as it is."""
    if not isinstance(item, Described):
        raise TypeError
    layout = layout_of(item)
    return item if layout is None else layout.build(*read_fields(layout, item.value))


_READERS: dict[str, Callable[[Any], Any]] = {
    "any": lambda item: item,
    "boolean": _read_instance(bool),
    "ubyte": _read_number(1 << 8),
    "ushort": _read_number(1 << 16),
    "uint": _read_number(1 << 32),
    "ulong": _read_number(1 << 64),
    "timestamp": _read_timestamp,
    "binary": _read_instance(bytes),
    "string": _read_instance(str),
    "symbol": lambda item: Symbol(_read_instance(str)(item)),
    "symbols": _read_symbols,
    "map": _read_instance(dict),
    "fields": _read_instance(dict),
    "annotations": _read_instance(dict),
    "described": _read_described,
}
