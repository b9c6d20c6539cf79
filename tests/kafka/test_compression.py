import contextlib
import gzip

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kafka.compression import Compression, Oversized, Undecodable, compress, decompress

PACKED = [codec for codec in Compression if codec is not Compression.NONE]


@pytest.mark.parametrize("codec", Compression)
@given(data=st.binary(max_size=200) | st.binary(max_size=20).map(lambda piece: piece * 10_000))
def test_what_was_compressed_is_found_again(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", Compression)
def test_a_result_that_exceeds_the_limit_is_refused(codec: Compression) -> None:
    data = b"abcdefgh" * 50_000
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    for limit in (0, 1, 70_000, len(data) - 1):
        with pytest.raises(Oversized):
            decompress(codec, packed, limit)


@pytest.mark.parametrize("codec", PACKED)
@given(data=st.binary(max_size=60), at=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.booleans())
def test_damaged_data_gives_a_result_or_an_error_of_this_module(
    codec: Compression, data: bytes, at: int, byte: int, cut: bool
) -> None:
    packed = bytearray(compress(codec, data * 20))
    at %= max(1, len(packed))
    packed[at : at + 1] = bytes((byte,))
    with contextlib.suppress(Undecodable, Oversized):
        assert len(decompress(codec, bytes(packed[:at] if cut else packed), 5000)) <= 5000


@pytest.mark.parametrize("codec", PACKED)
@given(st.binary(max_size=60))
def test_garbage_gives_an_error_of_this_module(codec: Compression, data: bytes) -> None:
    with contextlib.suppress(Undecodable, Oversized):
        assert len(decompress(codec, data, 5000)) <= 5000


def test_snappy_is_read_bare_and_in_the_frames_of_java() -> None:
    data = b"tide" * 20_000
    framed = compress(Compression.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00")
    assert decompress(Compression.SNAPPY, framed, len(data)) == data
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data


def test_members_of_gzip_are_read_one_after_the_other() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"ab") + gzip.compress(b"c"), 3) == b"abc"
    with pytest.raises(Oversized):
        decompress(Compression.GZIP, gzip.compress(b"ab") + gzip.compress(b"c"), 2)


def test_blocks_of_lz4_do_not_depend_on_each_other() -> None:
    """As Kafka's Java clients refuse those that do."""
    packed = compress(Compression.LZ4, b"ab" * 100_000)
    assert packed[4] & 0x20
    assert bytes(cramjam.lz4.decompress(packed)) == b"ab" * 100_000


def test_what_does_not_shrink_is_stored_by_lz4() -> None:
    data = bytes((n * n * 31 + n // 7) & 255 for n in range(300))
    assert decompress(Compression.LZ4, compress(Compression.LZ4, data), 300) == data
