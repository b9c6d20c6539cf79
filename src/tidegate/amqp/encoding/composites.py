"""Composite types: described lists with named fields, such as performatives, termini, states and sections.

Part 1, section 1.4. `composite` binds a class to its descriptor and its fields, in the order of the class's own fields.
Composites are always sent at full length with explicit nulls, in a list8 or list32 under a smallulong descriptor:
Microsoft's Python client reads fields by position and fails if trailing ones are omitted. Received lists may be shorter
or longer, and may have the symbolic descriptor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from tidegate.amqp.encoding.codec import encode, encode_list, encode_map, encode_uint, encode_ulong
from tidegate.amqp.encoding.types import (
    INVALID_FIELD,
    Array,
    Described,
    PeerError,
    Symbol,
    Timestamp,
    Ubyte,
    Ulong,
    Ushort,
)

Composite = TypeVar("Composite")


class Field(NamedTuple):
    """One field: its name, the kind of its value (a key of `_ENCODERS`), its default, and whether it may be null.

    `classes` are the classes that a described value may have.
    """

    name: str
    kind: str
    default: Any = None
    mandatory: bool = False
    classes: tuple[type, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The wire format of a class: numeric and symbolic descriptor, and fields."""

    kind: type
    code: int
    symbol: str
    fields: tuple[Field, ...]
    build: Callable[..., Any]


_BY_CLASS: dict[type, Layout] = {}
_BY_DESCRIPTOR: dict[Any, Layout] = {}


def composite(kind: type, code: int, symbol: str, *fields: Field, build: Callable[..., Any] | None = None) -> Layout:
    """Bind a class to its descriptor and fields. `build` creates instances from field values."""
    layout = Layout(kind, code, symbol, fields, build or kind)
    _BY_CLASS[kind] = layout
    _BY_DESCRIPTOR[code] = layout
    _BY_DESCRIPTOR[symbol] = layout
    return layout


def encode_composite(value: Any) -> bytes:
    """Return the encoding of an instance of a bound class, with all fields present.

    Raises EncodeError for a field whose value does not match its kind.
    """
    layout = _BY_CLASS[type(value)]
    items = []
    for field in layout.fields:
        item = getattr(value, field.name)
        items.append(b"\x40" if item is None else _ENCODERS[field.kind](item))
    return bytes((0x00, 0x53, layout.code)) + encode_list(items)


def decode_composite(value: Any, *expected: type[Composite]) -> Composite:
    """Convert a decoded Described value to an instance of one of the `expected` classes.

    Raises PeerError for another descriptor, for a missing mandatory field and for a value of the wrong type.
    """
    layout = layout_of(value)
    if layout is None or layout.kind not in expected:
        names = ", ".join(kind.__name__.lower() for kind in expected)
        raise PeerError(INVALID_FIELD, f"expected {names}")
    instance: Composite = layout.build(*read_fields(layout, value.value))
    return instance


def layout_of(value: Any) -> Layout | None:
    """Return the layout for a Described value's descriptor; None for unknown descriptors and other values."""
    if not isinstance(value, Described) or not isinstance(value.descriptor, Ulong | Symbol):
        return None
    return _BY_DESCRIPTOR.get(value.descriptor)


def read_fields(layout: Layout, items: Any) -> list[Any]:
    """Return the values of a layout's fields from a decoded list, with defaults for absent and null fields."""
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


# --- encoding and decoding of each kind of field ----------------------------------------------------------------------


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
    """Convert a bound composite to its instance. Other described values are returned unchanged."""
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
