"""Encoding and decoding of AMQP values.

Part 1 of the specification, section 1.2: a constructor byte gives type and width, and compound values carry their size
and count. Decoding is a table of 256 functions `(data, position, depth) -> (value, position)`; encoding is a table by
Python type. Decoded values take memory in proportion to their bytes: counts are checked against sizes, and depth and
the number of zero-width array elements are limited.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from tidegate.amqp.encoding.types import (
    Array,
    Byte,
    Char,
    Decimal,
    DecodeError,
    Described,
    EncodeError,
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

MAX_DEPTH = 32
"""The deepest nesting of lists, maps, arrays and described values that decode() accepts."""
MAX_EMPTY_ELEMENTS = 32
"""Elements of an array whose encoding has no width: the only values whose number is not bounded by their bytes. Such
arrays can be nested by the hundred thousand in one message, so each must be small; no client's library writes any."""

_U8 = struct.Struct(">B")
_I8 = struct.Struct(">b")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_F32 = struct.Struct(">f")
_F64 = struct.Struct(">d")
_TWO_U8 = struct.Struct(">BB")
_TWO_U32 = struct.Struct(">II")

_Decoder = Callable[[bytes, int, int], tuple[Any, int]]


# --- decoding ---------------------------------------------------------------------------------------------------------


def decode(data: bytes, position: int = 0) -> tuple[Any, int]:
    """Return the value that starts at `position`, and the position after it.

    Raises DecodeError for anything that is not a complete, well-formed value within the limits.
    """
    try:
        return decode_at(data, position, 0)
    except (IndexError, struct.error):
        raise DecodeError("the value ends before its encoding does") from None
    except (TypeError, UnicodeDecodeError, OverflowError) as error:
        raise DecodeError(f"malformed value: {error}") from None


def decode_at(data: bytes, position: int, depth: int) -> tuple[Any, int]:
    """Decode like decode(), but raise any exception that malformed bytes cause; decode() converts them."""
    return _DECODERS[data[position]](data, position + 1, depth)


def _bad_constructor(data: bytes, position: int, depth: int) -> tuple[Any, int]:
    raise DecodeError(f"0x{data[position - 1]:02x} is not a constructor")


def _constant(value: Any) -> _Decoder:
    def decode_constant(data: bytes, position: int, depth: int) -> tuple[Any, int]:
        return value, position

    return decode_constant


def _fixed(layout: struct.Struct) -> _Decoder:
    width = layout.size
    unpack = layout.unpack_from

    def decode_fixed(data: bytes, position: int, depth: int) -> tuple[Any, int]:
        return unpack(data, position)[0], position + width

    return decode_fixed


def _fixed_as(layout: struct.Struct, kind: Callable[[Any], Any]) -> _Decoder:
    width = layout.size
    unpack = layout.unpack_from

    def decode_fixed_as(data: bytes, position: int, depth: int) -> tuple[Any, int]:
        return kind(unpack(data, position)[0]), position + width

    return decode_fixed_as


def _opaque(width: int, kind: Callable[[bytes], Any]) -> _Decoder:
    def decode_opaque(data: bytes, position: int, depth: int) -> tuple[Any, int]:
        return kind(_take(data, position, width)), position + width

    return decode_opaque


def _variable(length: struct.Struct, kind: Callable[[bytes], Any]) -> _Decoder:
    width = length.size
    unpack = length.unpack_from

    def decode_variable(data: bytes, position: int, depth: int) -> tuple[Any, int]:
        size = unpack(data, position)[0]
        start = position + width
        return kind(_take(data, start, size)), start + size

    return decode_variable


def _take(data: bytes, position: int, size: int) -> bytes:
    end = position + size
    if end > len(data):
        raise DecodeError("the value ends before its encoding does")
    return data[position:end]


def _boolean(value: int) -> bool:
    if value > 1:
        raise DecodeError(f"0x{value:02x} is not a boolean")
    return value == 1


def _text(encoded: bytes) -> str:
    return encoded.decode()


def _symbol(encoded: bytes) -> Symbol:
    return Symbol(encoded.decode())


def _char(code_point: int) -> Char:
    if code_point > 0x10FFFF or 0xD800 <= code_point <= 0xDFFF:
        raise DecodeError(f"0x{code_point:x} is not a character")
    return Char(chr(code_point))


def _uuid(encoded: bytes) -> UUID:
    return UUID(bytes=encoded)


def _compound(data: bytes, position: int, width: int, depth: int) -> tuple[int, int, int]:
    """Return item count, first item's position and end of the compound whose size field starts at `position`."""
    if depth >= MAX_DEPTH:
        raise DecodeError(f"values are nested more than {MAX_DEPTH} deep")
    if width == 1:
        size, count = data[position], data[position + 1]
    else:
        size, count = _TWO_U32.unpack_from(data, position)
    end = position + width + size
    if end > len(data) or size < width:
        raise DecodeError("the value ends before its encoding does")
    return count, position + 2 * width, end


def _list(width: int) -> _Decoder:
    def decode_list(data: bytes, position: int, depth: int) -> tuple[Any, int]:
        count, position, end = _compound(data, position, width, depth)
        if count > end - position:
            raise DecodeError("a list counts more items than it has bytes")
        items = []
        for _ in range(count):
            item, position = _DECODERS[data[position]](data, position + 1, depth + 1)
            items.append(item)
        if position != end:
            raise DecodeError("a list's items end elsewhere than it does")
        return items, end

    return decode_list


def _map(width: int) -> _Decoder:
    def decode_map(data: bytes, position: int, depth: int) -> tuple[Any, int]:
        count, position, end = _compound(data, position, width, depth)
        if count > end - position or count & 1:
            raise DecodeError("a map counts an odd number of items, or more than it has bytes")
        entries = {}
        for _ in range(count >> 1):
            key, position = _DECODERS[data[position]](data, position + 1, depth + 1)
            entries[key], position = _DECODERS[data[position]](data, position + 1, depth + 1)
        if position != end:
            raise DecodeError("a map's items end elsewhere than it does")
        return entries, end

    return decode_map


def _array(width: int) -> _Decoder:
    def decode_array(data: bytes, position: int, depth: int) -> tuple[Any, int]:
        count, position, end = _compound(data, position, width, depth)
        if not count and position == end:
            return Array(0x40, []), end  # Microsoft's Python client omits the constructor of an empty array
        descriptor = None
        code = data[position]
        position += 1
        if code == 0:
            descriptor, position = decode_at(data, position, depth + 1)
            code = data[position]
            position += 1
        limit = MAX_EMPTY_ELEMENTS if code in _EMPTY_CODES else end - position
        if count > limit:
            raise DecodeError("an array counts more elements than it may have")
        element = _DECODERS[code]
        if element is _bad_constructor or code == 0:
            raise DecodeError(f"0x{code:02x} is not a constructor of array elements")
        items: list[Any] = []
        for _ in range(count):
            item, position = element(data, position, depth + 1)
            items.append(item)
        if position != end:
            raise DecodeError("an array's elements end elsewhere than it does")
        return Array(code, items, descriptor), end

    return decode_array


def _described(data: bytes, position: int, depth: int) -> tuple[Any, int]:
    if depth >= MAX_DEPTH:
        raise DecodeError(f"values are nested more than {MAX_DEPTH} deep")
    descriptor, position = decode_at(data, position, depth + 1)
    value, position = decode_at(data, position, depth + 1)
    return Described(descriptor, value), position


def _empty_list(data: bytes, position: int, depth: int) -> tuple[Any, int]:
    return [], position


_EMPTY_CODES = frozenset((0x40, 0x41, 0x42, 0x43, 0x44, 0x45))
_KNOWN_DECODERS: dict[int, _Decoder] = {
    0x00: _described,
    0x40: _constant(None),
    0x41: _constant(True),
    0x42: _constant(False),
    0x43: _constant(Uint(0)),
    0x44: _constant(Ulong(0)),
    0x45: _empty_list,
    0x50: _fixed_as(_U8, Ubyte),
    0x51: _fixed_as(_I8, Byte),
    0x52: _fixed_as(_U8, Uint),
    0x53: _fixed_as(_U8, Ulong),
    0x54: _fixed_as(_I8, Int),
    0x55: _fixed(_I8),
    0x56: _fixed_as(_U8, _boolean),
    0x60: _fixed_as(_U16, Ushort),
    0x61: _fixed_as(_I16, Short),
    0x70: _fixed_as(_U32, Uint),
    0x71: _fixed_as(_I32, Int),
    0x72: _fixed_as(_F32, Float),
    0x73: _fixed_as(_U32, _char),
    0x74: _opaque(4, Decimal),
    0x80: _fixed_as(_U64, Ulong),
    0x81: _fixed(_I64),
    0x82: _fixed(_F64),
    0x83: _fixed_as(_I64, Timestamp),
    0x84: _opaque(8, Decimal),
    0x94: _opaque(16, Decimal),
    0x98: _opaque(16, _uuid),
    0xA0: _variable(_U8, bytes),
    0xA1: _variable(_U8, _text),
    0xA3: _variable(_U8, _symbol),
    0xB0: _variable(_U32, bytes),
    0xB1: _variable(_U32, _text),
    0xB3: _variable(_U32, _symbol),
    0xC0: _list(1),
    0xC1: _map(1),
    0xD0: _list(4),
    0xD1: _map(4),
    0xE0: _array(1),
    0xF0: _array(4),
}
_DECODERS: list[_Decoder] = [_KNOWN_DECODERS.get(code, _bad_constructor) for code in range(256)]


def skip(encoded: bytes, position: int) -> int:
    """Return the position after the value at `position`, using only its constructor and size (part 1, section 1.2).

    Raises DecodeError if there is no complete value.
    """
    try:
        end = _end(encoded, position, 0)
    except (IndexError, struct.error):
        raise DecodeError("the value ends before its encoding does") from None
    if end > len(encoded):
        raise DecodeError("the value ends before its encoding does")
    return end


def _end(encoded: bytes, position: int, depth: int) -> int:
    constructor = encoded[position]
    if constructor == 0:
        if depth >= MAX_DEPTH:
            raise DecodeError(f"values are nested more than {MAX_DEPTH} deep")
        return _end(encoded, _end(encoded, position + 1, depth + 1), depth + 1)
    category = constructor >> 4
    position += 1
    if category in _SIZED_BY_ONE:
        return position + 1 + encoded[position]
    if category in _SIZED_BY_FOUR:
        size: int = _U32.unpack_from(encoded, position)[0]
        return position + 4 + size
    if category >= 4:
        return position + _WIDTHS[category]
    raise DecodeError(f"0x{constructor:02x} is not a constructor")


_WIDTHS = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16)
_SIZED_BY_ONE = frozenset((0xA, 0xC, 0xE))
_SIZED_BY_FOUR = frozenset((0xB, 0xD, 0xF))


# --- encoding ---------------------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """Return the shortest AMQP encoding of a value for its type.

    Raises EncodeError for a Python type outside the table above and for a number its AMQP type cannot hold.
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        for base in type(value).__mro__[1:]:
            encoder = _ENCODERS.get(base)
            if encoder is not None:
                break
        else:
            raise EncodeError(f"a {type(value).__name__} has no AMQP encoding")
    try:
        return encoder(value)
    except (struct.error, UnicodeEncodeError, OverflowError):
        raise EncodeError(f"a {type(value).__name__} does not fit its AMQP type") from None


def encode_uint(value: int) -> bytes:
    """Encode a uint in its shortest form."""
    if value == 0:
        return b"\x43"
    return b"\x52" + _U8.pack(value) if value < 256 else b"\x70" + _U32.pack(value)


def encode_ulong(value: int) -> bytes:
    """Encode a ulong in its shortest form."""
    if value == 0:
        return b"\x44"
    return b"\x53" + _U8.pack(value) if value < 256 else b"\x80" + _U64.pack(value)


def encode_list(encoded_items: Sequence[bytes]) -> bytes:
    """Join encoded values to a list8 or list32, never a list0, which some clients cannot read as a performative."""
    return _sized(0xC0, 0xD0, len(encoded_items), b"".join(encoded_items))


def encode_map(encoded_items: Sequence[bytes]) -> bytes:
    """Join alternating encoded keys and values to a map8 or map32."""
    return _sized(0xC1, 0xD1, len(encoded_items), b"".join(encoded_items))


def _sized(small: int, large: int, count: int, content: bytes) -> bytes:
    if len(content) < 255 and count < 256:
        return bytes((small, len(content) + 1, count)) + content
    return bytes((large,)) + _TWO_U32.pack(len(content) + 4, count) + content


def _encode_int(value: int) -> bytes:
    return b"\x54" + _I8.pack(value) if -128 <= value < 128 else b"\x71" + _I32.pack(value)


def _encode_long(value: int) -> bytes:
    return b"\x55" + _I8.pack(value) if -128 <= value < 128 else b"\x81" + _I64.pack(value)


def _encode_bytes(value: bytes) -> bytes:
    return _encode_text(0xA0, 0xB0, bytes(value))


def _encode_text(small: int, large: int, encoded: bytes) -> bytes:
    size = len(encoded)
    return (bytes((small, size)) if size < 256 else bytes((large,)) + _U32.pack(size)) + encoded


def _encode_decimal(value: Decimal) -> bytes:
    code = {4: b"\x74", 8: b"\x84", 16: b"\x94"}.get(len(value.encoded))
    if code is None:
        raise EncodeError("a decimal is encoded in 4, 8 or 16 bytes")
    return code + value.encoded


def _encode_dict(value: dict[Any, Any]) -> bytes:
    return encode_map([encode(item) for entry in value.items() for item in entry])


def _encode_described(value: Described) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


def _encode_array(value: Array) -> bytes:
    return _sized(0xE0, 0xF0, len(value.items), _array_content(value))


def _array_content(value: Array) -> bytes:
    element = _ELEMENTS.get(value.code)
    if element is None:
        raise EncodeError(f"0x{value.code:02x} is not a constructor of array elements")
    constructor = bytes((value.code,))
    if value.descriptor is not None:
        constructor = b"\x00" + encode(value.descriptor) + constructor
    return constructor + b"".join([element(item) for item in value.items])


def _packed(code: int, layout: struct.Struct) -> Callable[[Any], bytes]:
    constructor = bytes((code,))
    pack = layout.pack

    def encode_packed(value: Any) -> bytes:
        return constructor + pack(value)

    return encode_packed


def _empty_element(expected: Any) -> Callable[[Any], bytes]:
    def encode_empty(value: Any) -> bytes:
        if value != expected:
            raise EncodeError(f"{value!r} in an array of {expected!r}")
        return b""

    return encode_empty


def _sized_element(length: struct.Struct) -> Callable[[Any], bytes]:
    def encode_element(value: Any) -> bytes:
        encoded = value.encode() if isinstance(value, str) else bytes(value)
        return length.pack(len(encoded)) + encoded

    return encode_element


def _compound_element(sizes: struct.Struct) -> Callable[[Any], bytes]:
    def encode_element(value: Any) -> bytes:
        items = [item for entry in value.items() for item in entry] if isinstance(value, dict) else value
        content = b"".join([encode(item) for item in items])
        return sizes.pack(len(content) + sizes.size // 2, len(items)) + content

    return encode_element


def _array_element(sizes: struct.Struct) -> Callable[[Any], bytes]:
    def encode_element(value: Any) -> bytes:
        content = _array_content(value)
        return sizes.pack(len(content) + sizes.size // 2, len(value.items)) + content

    return encode_element


def _opaque_element(value: Any) -> bytes:
    encoded: bytes = value.bytes if isinstance(value, UUID) else value.encoded
    return encoded


def _char_element(value: str) -> bytes:
    return _U32.pack(ord(value))


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    int: _encode_long,
    float: _packed(0x82, _F64),
    str: lambda value: _encode_text(0xA1, 0xB1, value.encode()),
    bytes: _encode_bytes,
    bytearray: _encode_bytes,
    memoryview: _encode_bytes,
    list: lambda value: encode_list([encode(item) for item in value]),
    tuple: lambda value: encode_list([encode(item) for item in value]),
    dict: _encode_dict,
    UUID: lambda value: b"\x98" + value.bytes,
    Ubyte: _packed(0x50, _U8),
    Ushort: _packed(0x60, _U16),
    Uint: encode_uint,
    Ulong: encode_ulong,
    Byte: _packed(0x51, _I8),
    Short: _packed(0x61, _I16),
    Int: _encode_int,
    Float: _packed(0x72, _F32),
    Char: lambda value: b"\x73" + _char_element(value),
    Timestamp: _packed(0x83, _I64),
    Symbol: lambda value: _encode_text(0xA3, 0xB3, value.encode()),
    Decimal: _encode_decimal,
    Described: _encode_described,
    Array: _encode_array,
}

_ELEMENTS: dict[int, Callable[[Any], bytes]] = {
    0x40: _empty_element(None),
    0x41: _empty_element(True),
    0x42: _empty_element(False),
    0x43: _empty_element(0),
    0x44: _empty_element(0),
    0x45: _empty_element([]),
    0x50: _U8.pack,
    0x51: _I8.pack,
    0x52: _U8.pack,
    0x53: _U8.pack,
    0x54: _I8.pack,
    0x55: _I8.pack,
    0x56: _U8.pack,
    0x60: _U16.pack,
    0x61: _I16.pack,
    0x70: _U32.pack,
    0x71: _I32.pack,
    0x72: _F32.pack,
    0x73: _char_element,
    0x74: _opaque_element,
    0x80: _U64.pack,
    0x81: _I64.pack,
    0x82: _F64.pack,
    0x83: _I64.pack,
    0x84: _opaque_element,
    0x94: _opaque_element,
    0x98: _opaque_element,
    0xA0: _sized_element(_U8),
    0xA1: _sized_element(_U8),
    0xA3: _sized_element(_U8),
    0xB0: _sized_element(_U32),
    0xB1: _sized_element(_U32),
    0xB3: _sized_element(_U32),
    0xC0: _compound_element(_TWO_U8),
    0xC1: _compound_element(_TWO_U8),
    0xD0: _compound_element(_TWO_U32),
    0xD1: _compound_element(_TWO_U32),
    0xE0: _array_element(_TWO_U8),
    0xF0: _array_element(_TWO_U32),
}
