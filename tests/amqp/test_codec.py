"""AMQP values, against the tables of part 1 of the specification and against Microsoft's codec."""

from __future__ import annotations

import contextlib
import struct
from typing import Any
from uuid import UUID

import pytest
from azure.eventhub._pyamqp._decode import _DECODE_BY_CONSTRUCTOR
from azure.eventhub._pyamqp._encode import encode_value
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.values import same, values
from tidegate.amqp import (
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
    decode,
    encode,
)
from tidegate.amqp.encoding.codec import MAX_DEPTH, skip

ENCODINGS = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (Ubyte(255), "50ff"),
    (Ushort(258), "600102"),
    (Uint(0), "43"),
    (Uint(255), "52ff"),
    (Uint(256), "7000000100"),
    (Ulong(0), "44"),
    (Ulong(255), "53ff"),
    (Ulong(256), "800000000000000100"),
    (Byte(-1), "51ff"),
    (Short(-2), "61fffe"),
    (Int(-128), "5480"),
    (Int(-129), "71ffffff7f"),
    (127, "557f"),
    (128, "810000000000000080"),
    (Float(1.0), "723f800000"),
    (1.0, "823ff0000000000000"),
    (Decimal(b"\1\2\3\4"), "7401020304"),
    (Decimal(bytes(8)), "84" + "00" * 8),
    (Decimal(bytes(16)), "94" + "00" * 16),
    (Char("é"), "73000000e9"),
    (Timestamp(-1), "83ffffffffffffffff"),
    (UUID(int=1), "98" + "00" * 15 + "01"),
    (b"\1", "a00101"),
    (b"a" * 256, "b000000100" + "61" * 256),
    ("é", "a102c3a9"),
    ("a" * 256, "b100000100" + "61" * 256),
    (Symbol("a"), "a30161"),
    ([None], "c0020140"),
    ([None] * 255, "d000000103000000ff" + "40" * 255),
    ({"a": 1}, "c10602a101615501"),
    (Described(Ulong(0x24), [True]), "005324c0020141"),
    (Array.of(Ubyte, [1, 2]), "e00402500102"),
    (Array.of(Symbol, ["a"]), "e00701b30000000161"),
    (Array(0xA3, [Symbol("a")]), "e00401a30161"),
    (Array(0x50, [1], Symbol("d")), "e0070100a301645001"),
]


@pytest.mark.parametrize(("value", "encoded"), ENCODINGS, ids=str)
def test_a_value_has_the_encoding_of_the_specification(value: Any, encoded: str) -> None:
    assert encode(value).hex() == encoded
    decoded, end = decode(bytes.fromhex(encoded))
    assert same(decoded, value)
    assert end == len(encoded) // 2


ALTERNATIVES = [
    ("5600", False),
    ("5601", True),
    ("7000000001", Uint(1)),
    ("800000000000000001", Ulong(1)),
    ("7100000001", Int(1)),
    ("810000000000000001", 1),
    ("45", []),
    ("d00000000400000000", []),
    ("c10100", {}),
    ("d10000000400000000", {}),
    ("b30000000161", Symbol("a")),
    ("f000000006000000015001", Array(0x50, [Ubyte(1)])),
    ("e0020340", Array(0x40, [None] * 3)),
    ("e00100", Array(0x40, [])),
]


@pytest.mark.parametrize(("encoded", "value"), ALTERNATIVES)
def test_every_encoding_of_a_type_is_read(encoded: str, value: Any) -> None:
    data = bytes.fromhex(encoded)
    assert same(decode(data), (value, len(data)))


MALFORMED = {
    "nothing": "",
    "no constructor": "01",
    "a reserved constructor": "ff",
    "a short fixed value": "8100",
    "a short string": "a10561",
    "text that is not UTF-8": "a101ff",
    "a boolean of 2": "5602",
    "a surrogate": "730000d800",
    "past the last character": "7300110000",
    "a list past the end": "c00a0140",
    "a list that counts more than it has": "c00205404040",
    "items past their list": "c00301a1036162630000",
    "a map of three": "c1040340404040",
    "a key that cannot be one": "c104024540",
    "an array of nothing known": "e003010200",
    "an array of four billion nulls": "f000000005ffffffff40",
    "a size of nothing": "c00000",
    "a description without a value": "005324",
}


@pytest.mark.parametrize("encoded", MALFORMED.values(), ids=MALFORMED)
def test_malformed_bytes_are_an_error_of_ours(encoded: str) -> None:
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(encoded))


def test_nesting_is_limited() -> None:
    value: Any = None
    for _ in range(MAX_DEPTH):
        value = [value]
    assert same(decode(encode(value))[0], value)
    with pytest.raises(DecodeError, match="nested"):
        decode(encode([value]))
    with pytest.raises(DecodeError, match="nested"):
        decode(b"\x00" * 100_000)
    with pytest.raises(DecodeError, match="nested"):
        skip(b"\x00" * 100_000, 0)


REFUSED = [
    Ubyte(256),
    Uint(-1),
    Ulong(2**64),
    2**63,
    Int(2**31),
    frozenset(),
    "\ud800",
    Decimal(b"123"),
    Array(0x99, []),
    Array(0x41, [False]),
]


@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_a_value_that_fits_no_encoding_is_refused(value: Any) -> None:
    with pytest.raises(EncodeError):
        encode(value)


@given(values)
def test_what_is_encoded_is_decoded(value: Any) -> None:
    encoded = encode(value)
    decoded, end = decode(encoded)
    assert same(decoded, value)
    assert end == len(encoded) == skip(encoded, 0)


@given(values, st.binary(max_size=3))
def test_a_value_is_followed_by_the_next(value: Any, rest: bytes) -> None:
    encoded = encode(value)
    assert decode(rest + encoded + rest, len(rest))[1] == len(rest) + len(encoded)


@given(values, st.data())
def test_a_value_cut_short_is_an_error(value: Any, data: st.DataObject) -> None:
    encoded = encode(value)
    with pytest.raises(DecodeError):
        decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_decode_error(data: bytes) -> None:
    try:
        value, end = decode(data)
    except DecodeError:
        return
    assert end <= len(data)
    assert same(decode(encode(value))[0], value) or value != value or "nan" in repr(value)


@given(values, st.data())
def test_a_mutated_value_is_a_value_or_a_decode_error(value: Any, data: st.DataObject) -> None:
    encoded = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        decode(bytes(encoded))


# --- Microsoft's codec as the oracle ----------------------------------------------------------------------------------


def as_microsoft_reads_it(value: Any) -> Any:
    """Its decoder tells neither text from bytes nor one integer type from another, and drops descriptors."""
    if isinstance(value, Described):
        return as_microsoft_reads_it(value.value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return {as_microsoft_reads_it(key): as_microsoft_reads_it(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_microsoft_reads_it(item) for item in value]
    if isinstance(value, Array):
        return [as_microsoft_reads_it(item) for item in value.items]
    return value


def microsoft_can_read(value: Any) -> bool:
    if isinstance(value, Char | Decimal):
        return False
    if isinstance(value, Array):
        # it does not expect the constructor of an empty array
        return value.code not in (0x73, 0x56) and len(value.items) > 0
    if isinstance(value, Described):
        # 0x23 to 0x28 and their like become its own objects
        return isinstance(value.descriptor, Symbol) and microsoft_can_read(value.value)
    if isinstance(value, dict):
        return all(microsoft_can_read(item) for item in value.values()) and len(as_microsoft_reads_it(value)) == len(
            value
        )
    if isinstance(value, list):
        return all(map(microsoft_can_read, value))
    return True


@given(values.filter(microsoft_can_read))
def test_microsofts_decoder_reads_what_we_encode(value: Any) -> None:
    encoded = memoryview(encode(value))
    rest, decoded = _DECODE_BY_CONSTRUCTOR[encoded[0]](encoded[1:])
    assert decoded == as_microsoft_reads_it(value)
    assert not rest


plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**31), 2**31 - 1), st.floats(allow_nan=False), st.uuids())
    | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=300)
    | st.binary(max_size=300),
    lambda children: (
        st.lists(children, max_size=300) | st.dictionaries(st.text("abc", max_size=3), children, max_size=4)
    ),
    max_leaves=10,
)


@given(plain)
def test_we_read_what_microsofts_encoder_writes(value: Any) -> None:
    output = bytearray()
    encode_value(output, value)
    decoded, end = decode(bytes(output))
    assert decoded == value
    assert end == len(output)


def test_floats_keep_their_bits() -> None:
    for bits in (0x7FF8000000000001, 0x8000000000000000, 0x7FF0000000000000):
        encoded = b"\x82" + struct.pack(">Q", bits)
        assert encode(decode(encoded)[0]) == encoded
