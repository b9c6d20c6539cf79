"""The compression codecs of record batches. Output is bounded before memory is spent on it.

Every codec's decompressor takes the most bytes the result may have. Snappy comes in two forms: bare, as librdkafka
sends it, and in the frames of the Java library snappy-java (a header, then chunks that each have their length).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct

import cramjam

_SNAPPY_JAVA = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEADER = _SNAPPY_JAVA + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable since version 1
_SNAPPY_CHUNK_BYTES = 32 << 10
_LENGTH = Struct(">i")
# magic; version 1, independent blocks, no checksums, blocks of 64 KiB; the header's checksum.
# Kafka's Java clients refuse blocks that depend on each other.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_STORED = 1 << 31
_LEAST_GUESS_BYTES = 64 << 10
_GUESSED_RATIO = 8


class Compression(IntEnum):
    """A codec, by its number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Undecodable(ValueError):
    """The bytes are not what the codec writes."""


class Oversized(ValueError):
    """The decompressed bytes would exceed the limit."""


def compress(compression: Compression, data: bytes) -> bytes:
    """Return the data as a batch of this compression holds it, in the form that every client reads."""
    return _COMPRESS[compression](data)


def decompress(compression: Compression, data: bytes | memoryview, max_bytes: int) -> bytes:
    """Return the decompressed data.

    Raises:
        Undecodable: The data is not of this codec.
        Oversized: The result would have more than max_bytes.
    """
    return _DECOMPRESS[compression](bytes(data), max_bytes)


def _gzip(data: bytes) -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes
    while data or not parts:  # a stream may have several members
        decompressor = zlib.decompressobj(31)
        try:
            part = decompressor.decompress(data, room + 1)
        except zlib.error as error:
            raise Undecodable(f"gzip: {error}") from None
        room -= len(part)
        if room < 0:
            raise Oversized(f"more than {max_bytes} bytes")
        if not decompressor.eof:
            raise Undecodable("gzip: the data is cut off")
        parts.append(part)
        data = decompressor.unused_data
    return b"".join(parts)


def _snap(data: bytes) -> bytes:
    parts = [_SNAPPY_JAVA_HEADER]
    for start in range(0, len(data), _SNAPPY_CHUNK_BYTES):
        chunk = bytes(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_CHUNK_BYTES]))
        parts += (_LENGTH.pack(len(chunk)), chunk)
    return b"".join(parts)


def _unsnap(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_SNAPPY_JAVA):
        return _unsnap_chunk(data, max_bytes)
    parts: list[bytes] = []
    at, room = len(_SNAPPY_JAVA_HEADER), max_bytes
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise Undecodable("snappy: the data is cut off")
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 < size <= len(data) - at:
            raise Undecodable("snappy: a chunk has an impossible length")
        part = _unsnap_chunk(data[at : at + size], room)
        parts.append(part)
        room -= len(part)
        at += size
    return b"".join(parts)


def _unsnap_chunk(data: bytes, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_bytes:
            raise Oversized(f"{size} bytes")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise Undecodable(str(error)) from None


def _lz4(data: bytes) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += (len(packed).to_bytes(4, "little"), packed)
        else:
            parts += ((len(block) | _LZ4_STORED).to_bytes(4, "little"), block)
    parts.append(bytes(4))
    return b"".join(parts)


def _bounded(name: str, decompress_into: Callable[[bytes, bytearray], int]) -> Callable[[bytes, int], bytes]:
    """Return a decompressor that tries growing buffers, as neither codec has to say how long its result is."""

    def bounded(data: bytes, max_bytes: int) -> bytes:
        if not data:
            raise Undecodable(f"{name}: there is no data")
        size = min(max_bytes, max(_LEAST_GUESS_BYTES, _GUESSED_RATIO * len(data)))
        while True:
            buffer = bytearray(size)
            try:
                length = decompress_into(data, buffer)
                return bytes(memoryview(buffer)[:length])
            except cramjam.DecompressionError as error:
                if "whole buffer" not in str(error):
                    raise Undecodable(f"{name}: {error}") from None
            if size >= max_bytes:
                raise Oversized(f"more than {max_bytes} bytes")
            size = min(max_bytes, _GUESSED_RATIO * size)

    return bounded


def _check_size(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise Oversized(f"{len(data)} bytes")
    return data


_COMPRESS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snap,
    Compression.LZ4: _lz4,
    Compression.ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}
_DECOMPRESS: dict[Compression, Callable[[bytes, int], bytes]] = {
    Compression.NONE: _check_size,
    Compression.GZIP: _gunzip,
    Compression.SNAPPY: _unsnap,
    Compression.LZ4: _bounded("lz4", cramjam.lz4.decompress_into),
    Compression.ZSTD: _bounded("zstd", cramjam.zstd.decompress_into),
}
