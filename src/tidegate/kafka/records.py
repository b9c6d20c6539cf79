"""Record batches, version 2: the unit in which Kafka's clients send, store and receive records.

Layout, big-endian:

    position  size  field
           0     8  base offset: the offset of the first record
           8     4  length of everything after this field
          12     4  epoch of the partition's leader
          16     1  magic, 2
          17     4  CRC-32C of everything after this field
          21     2  attributes: compression (bits 0 to 2), time of append (3), transactional (4), control (5)
          23     4  offset of the last record, less the base offset
          27     8  base timestamp, ms since 1970
          35     8  largest timestamp; with the time of append, that of all records
          43     8  id of the producer, -1 for one that is not idempotent
          51     2  epoch of the producer
          53     4  number of the producer's first record
          57     4  count of records
          61     …  records, compressed as a whole

A record is its length, a byte of attributes, then its timestamp and offset less those of the batch, key, value and
headers. Numbers are variable-length zigzag integers, and a length of -1 means null. See
https://kafka.apache.org/documentation/#recordbatch.

A batch is stored and passed on as it came. A broker changes its base offset and its leader's epoch, which the checksum
leaves out, and the time of append, for which the checksum is computed anew: `rebase` does all of it without looking at
the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from struct import Struct

from google_crc32c import extend
from google_crc32c import value as crc32c

from tidegate.kafka.compression import Compression, Oversized, Undecodable, compress, decompress

MAGIC = 2
HEADER_BYTES = 61
NO_PRODUCER = -1
MAX_SEQUENCE = 2**31 - 1
_HEADER = Struct(">qiibIhiqqqhii")
_CHECKED = Struct(">hiqqqhii")
_UNCHECKED = Struct(">qiibI")
BATCH_LENGTH_END = 12
_MAGIC_AT = 16
_CHECKED_FROM = 21
_LEAST_RECORD_BYTES = 7
_COMPRESSION_BITS, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 7, 8, 16, 32
_KNOWN_COMPRESSIONS = frozenset(Compression)
DEFAULT_MAX_RECORDS_BYTES = 32 << 20
_KNOWN_HEADERS = 16

Header = tuple[str, bytes | None]


class BatchError(ValueError):
    """Bytes that are not a batch this module accepts; the message says what was expected."""


class BatchCorrupt(BatchError):
    """The bytes contradict themselves: a length, the checksum, the count, or a record."""


class RecordsTooLarge(BatchError):
    """The records would take more bytes than are allowed when decompressed."""


class OldMagic(BatchError):
    """A message set of version 0 or 1, as clients sent before Kafka 0.11."""


class UnknownCompression(BatchError):
    """A codec with a number that Kafka does not define."""


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch: the fields of its header, and the bytes it lies in.

    Attributes:
        data: All of its bytes, header and records.
    """

    data: memoryview
    base_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The number of the producer's last record; numbers begin at 0 again after 2**31 - 1."""
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def compression(self) -> Compression:
        """The codec of the records."""
        return Compression(self.attributes & _COMPRESSION_BITS)

    @property
    def has_append_time(self) -> bool:
        """Whether the timestamps are those of the append, not of the producer."""
        return bool(self.attributes & _APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds markers of transactions in place of records."""
        return bool(self.attributes & _CONTROL)

    def check(self) -> None:
        """Raise BatchCorrupt if the checksum is not that of the bytes."""
        if crc32c(bytes(self.data[_CHECKED_FROM:])) != self.crc:
            raise BatchCorrupt("the checksum of a record batch differs from its content")


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The records of a batch by field. All columns have the same length.

    Attributes:
        offsets: A range, unless compaction has removed records.
        headers: An empty tuple for records without any.
    """

    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[Header, ...]]


def parse_batch(data: bytes | memoryview, at: int = 0) -> RecordBatch:
    """Return the batch that begins at `at`. Its checksum is not verified; `RecordBatch.check` does.

    Raises BatchCorrupt, OldMagic, UnknownCompression.
    """
    view = memoryview(data)
    if len(view) - at < HEADER_BYTES:
        if len(view) - at > _MAGIC_AT:
            _check_magic(view[at + _MAGIC_AT])
        raise BatchCorrupt(f"a record batch has at least {HEADER_BYTES} bytes, and {len(view) - at} are left")
    fields = _HEADER.unpack_from(view, at)
    base_offset, length, leader_epoch, magic, crc, attributes, last_delta, base_ms, max_ms = fields[:9]
    _check_magic(magic)
    end = at + BATCH_LENGTH_END + length
    count = fields[12]
    if length < HEADER_BYTES - BATCH_LENGTH_END or end > len(view):
        raise BatchCorrupt(
            f"a record batch says that {length} bytes follow, and {len(view) - at - BATCH_LENGTH_END} do"
        )
    if last_delta < 0 or not 0 <= count <= last_delta + 1:
        raise BatchCorrupt(f"{count} records cannot have offsets from 0 to {last_delta}")
    if attributes & _COMPRESSION_BITS not in _KNOWN_COMPRESSIONS:
        raise UnknownCompression(f"no compression has the number {attributes & _COMPRESSION_BITS}")
    return RecordBatch(
        view[at:end], base_offset, leader_epoch, crc, attributes, last_delta, base_ms, max_ms, *fields[9:]
    )


def parse_batches(data: bytes | memoryview, *, partial_end: bool = False) -> Iterator[RecordBatch]:
    """Yield the batches that follow one another in `data`.

    Args:
        data: The record set of a request or a response.
        partial_end: Whether the last batch may be cut off, as in the answer to a fetch; such a batch is left out.

    Raises:
        BatchError: See parse_batch.
    """
    view = memoryview(data)
    at, size = 0, len(view)
    while at < size:
        if partial_end and (size - at < BATCH_LENGTH_END or at + BATCH_LENGTH_END + _length(view, at) > size):
            return
        batch = parse_batch(view, at)
        yield batch
        at += len(batch.data)


def rebase(batch: RecordBatch, base_offset: int, append_time_ms: int) -> bytes:
    """Return the batch at another place in a log, its records untouched.

    Args:
        batch: The batch.
        base_offset: The offset of its first record.
        append_time_ms: The timestamp of all records from now on.
    """
    records = bytes(batch.data[HEADER_BYTES:])
    checked = _CHECKED.pack(
        batch.attributes | _APPEND_TIME,
        batch.last_offset_delta,
        batch.base_timestamp_ms,
        append_time_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.count,
    )
    length = len(batch.data) - BATCH_LENGTH_END
    crc = extend(crc32c(checked), records)
    return b"".join((_UNCHECKED.pack(base_offset, length, 0, MAGIC, crc), checked, records))


def records_bytes(batch: RecordBatch, max_bytes: int = DEFAULT_MAX_RECORDS_BYTES) -> bytes:
    """Return the encoded records, decompressed. Raises RecordsTooLarge, BatchCorrupt."""
    if batch.count > max_bytes // _LEAST_RECORD_BYTES:
        raise RecordsTooLarge(f"{batch.count} records take more than the {max_bytes} bytes that a batch may have")
    try:
        return decompress(batch.compression, batch.data[HEADER_BYTES:], max_bytes)
    except Oversized as error:
        raise RecordsTooLarge(f"the records of a batch may have {max_bytes} bytes, these have {error}") from None
    except Undecodable as error:
        raise BatchCorrupt(f"the records of a batch cannot be decompressed: {error}") from None


def decode(batch: RecordBatch, max_bytes: int = DEFAULT_MAX_RECORDS_BYTES) -> RecordColumns:
    """Return the batch's records as columns, completely checked but for the checksum.

    Args:
        batch: The batch.
        max_bytes: The most bytes its records may have when decompressed.

    Raises:
        RecordsTooLarge: They have more.
        BatchCorrupt: They are not what the header says.
    """
    body = records_bytes(batch, max_bytes)
    if batch.count * _LEAST_RECORD_BYTES > len(body):
        raise BatchCorrupt(f"{batch.count} records do not fit into {len(body)} bytes")
    try:
        time_deltas, offset_deltas, keys, values, headers = _columns(body, batch.count)
    except IndexError:
        raise BatchCorrupt("a record is cut off") from None
    timestamps: Sequence[int]
    if batch.has_append_time:
        timestamps = [batch.max_timestamp_ms] * batch.count
    else:
        base_ms = batch.base_timestamp_ms
        timestamps = [base_ms + ((delta >> 1) ^ -(delta & 1)) for delta in time_deltas]
    return RecordColumns(_offsets(batch, offset_deltas), timestamps, keys, values, headers)


def _offsets(batch: RecordBatch, deltas: list[int]) -> Sequence[int]:
    if deltas == list(range(0, 2 * batch.count, 2)):
        return range(batch.base_offset, batch.base_offset + batch.count)
    before = -2
    for delta in deltas:
        if delta & 1 or delta <= before:
            raise BatchCorrupt("the offsets of the records do not increase")
        before = delta
    if before > 2 * batch.last_offset_delta:
        raise BatchCorrupt("a record lies behind the last offset of its batch")
    return [batch.base_offset + (delta >> 1) for delta in deltas]


def _columns(
    body: bytes, count: int
) -> tuple[list[int], list[int], list[bytes | None], list[bytes | None], list[tuple[Header, ...]]]:
    """Return the fields of the records, deltas still in zigzag form. Raises BatchCorrupt, IndexError.

    Nearly all numbers have one byte or two; these are read in place, as a call would take longer than the rest.
    """
    times: list[int] = []
    offsets: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[tuple[Header, ...]] = []
    known_headers: dict[bytes, tuple[Header, ...]] = {}
    add_time, add_offset, add_headers = times.append, offsets.append, headers.append
    key_and_value = (keys.append, values.append)
    at = 0
    for _ in repeat(None, count):
        number = body[at]
        at += 1
        if number >= 0x80:
            number, at = _varint(body, at, number)
        end = at + (number >> 1)  # a negative length ends before the record does
        number = body[at + 1]
        at += 2
        if number >= 0x80:
            number, at = _varint(body, at, number)
        add_time(number)
        number = body[at]
        at += 1
        if number >= 0x80:
            number, at = _varint(body, at, number)
        add_offset(number)
        for add in key_and_value:
            number = body[at]
            at += 1
            if number == 1:
                add(None)
                continue
            if number >= 0x80:
                number, at = _varint(body, at, number)
            start = at
            at += number >> 1
            add(body[start:at])
            if number & 1:
                raise BatchCorrupt("a key or a value has a negative length")
        number = body[at]
        at += 1
        if number:
            found, at = _headers(body, at, number, end, known_headers)
            add_headers(found)
        else:
            add_headers(())
        if at != end:
            raise BatchCorrupt("a record's length differs from its content")
    if at != len(body):
        raise BatchCorrupt(f"{len(body) - at} bytes follow the last record")
    return times, offsets, keys, values, headers


def _varint(body: bytes, at: int, first: int) -> tuple[int, int]:
    """Return a number whose first byte has been read, still in zigzag form, and where it ends."""
    number, shift = first & 0x7F, 7
    while True:
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise BatchCorrupt("a number has more than ten bytes")


def _headers(
    body: bytes, at: int, number: int, end: int, known: dict[bytes, tuple[Header, ...]]
) -> tuple[tuple[Header, ...], int]:
    """Return the headers of a record that ends at `end`, and where they end. Equal ones are parsed once."""
    encoded = body[at - 1 : end]
    if encoded in known:
        return known[encoded], end
    if number >= 0x80:
        number, at = _varint(body, at, number)
    if number & 1 or number > end - at:  # each header has two bytes at least
        raise BatchCorrupt("a record has an impossible count of headers")
    found: list[Header] = []
    for _ in repeat(None, number >> 1):
        name, at = _bytes(body, at)
        value, at = _bytes(body, at)
        if name is None:
            raise BatchCorrupt("a header has no name")
        found.append((name.decode("utf-8", "replace"), value))
    headers = tuple(found)
    if at == end and len(known) < _KNOWN_HEADERS:
        known[encoded] = headers
    return headers, at


def _bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    number = body[at]
    at += 1
    if number == 1:
        return None, at
    if number >= 0x80:
        number, at = _varint(body, at, number)
    end = at + (number >> 1)
    if number & 1 or end > len(body):
        raise BatchCorrupt("a header has an impossible length")
    return body[at:end], end


def _encoded(number: int) -> bytes:
    """Return a signed number as a variable-length zigzag integer."""
    number = (number << 1) ^ (number >> 63)
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_KNOWN = [_encoded(number) for number in range(1 << 14)]
_KNOWN_END = len(_KNOWN)


def encode(
    values: Sequence[bytes | None],
    *,
    timestamps_ms: Sequence[int],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[Header]] | None = None,
    base_offset: int = 0,
    producer: tuple[int, int, int] = (NO_PRODUCER, -1, -1),
    compression: Compression = Compression.NONE,
    has_append_time: bool = False,
) -> bytes:
    """Return records as one batch.

    Args:
        values: The values, at least one.
        timestamps_ms: As many timestamps, ms since 1970.
        keys: As many keys; None if no record has any.
        headers: As many sequences of headers; None if no record has any.
        base_offset: The offset of the first record.
        producer: Id and epoch of an idempotent producer, and the number of the first record.
        compression: The codec of the records.
        has_append_time: The timestamps, all the same, are that of the append.
    """
    if not values:
        raise ValueError("a record batch needs at least one record")
    base_ms = timestamps_ms[0]
    body = b"".join(_encode_records(values, timestamps_ms, keys, headers))
    last = len(values) - 1
    checked = b"".join(
        (
            _CHECKED.pack(
                compression | _APPEND_TIME * has_append_time, last, base_ms, max(timestamps_ms), *producer, last + 1
            ),
            compress(compression, body),
        )
    )
    length = _CHECKED_FROM - BATCH_LENGTH_END + len(checked)
    return _UNCHECKED.pack(base_offset, length, -1, MAGIC, crc32c(checked)) + checked


class _Lengths(dict[int, bytes]):
    """What is written in front of a value, between the record's offset and it: no key, and the value's length."""

    def __missing__(self, size: int) -> bytes:
        found = b"\x01" + _encoded(size)
        if size < _KNOWN_END:
            self[size] = found
        return found


class _Heads(dict[int, bytes]):
    """What is written between a value and the next record's offset, by the length of that record's value."""

    def __init__(self, ending: bytes, width: int) -> None:
        self._ending, self._width = ending, width

    def __missing__(self, size: int) -> bytes:
        # attributes, time, offset, no key, length of the value, value, headers
        length = 2 + self._width + len(_LENGTHS[size]) + size + len(self._ending)
        found = self._ending + _encoded(length) + b"\x00\x00"
        if size < _KNOWN_END:
            self[size] = found
        return found


_LENGTHS = _Lengths()
_OFFSETS_OF_WIDTH = (1 << 6, 1 << 13, 1 << 20, 1 << 27)
"""Up to where offsets in a batch take one byte, two, and so on."""
_heads = lru_cache(maxsize=16)(_Heads)


def encode_alike(
    values: Sequence[bytes], *, timestamp_ms: int, headers: Sequence[Header], producer: tuple[int, int, int]
) -> bytes:
    """Return records without keys that differ in their values alone as one batch, several times as fast as `encode`.

    Args:
        values: The values, at least one.
        timestamp_ms: The timestamp of all, ms since 1970.
        headers: The headers of all.
        producer: Id and epoch of an idempotent producer, and the number of the first record.
    """
    if not values:
        raise ValueError("a record batch needs at least one record")
    ending = _encoded_headers(headers) if headers else b"\x00"
    parts: list[bytes] = []
    count, first = len(values), 0
    for width, stop in enumerate(_OFFSETS_OF_WIDTH, 1):
        some = values if count <= stop and not first else values[first:stop]
        if not some:
            break
        # what is in front of a value is the same for all values of one length, but for the record's offset
        sizes = [*map(len, some)]
        heads, lengths = _heads(ending, width), _LENGTHS
        places = _KNOWN[first : first + len(some)] if stop <= _KNOWN_END else map(_encoded, range(first, count))
        parts += chain.from_iterable(
            zip(map(heads.__getitem__, sizes), places, map(lengths.__getitem__, sizes), some, strict=True)
        )
        first = stop
    parts[0] = parts[0][len(ending) :]
    parts.append(ending)
    body = b"".join(parts)
    checked = _CHECKED.pack(0, count - 1, timestamp_ms, timestamp_ms, *producer, count)
    length = _CHECKED_FROM - BATCH_LENGTH_END + len(checked) + len(body)
    return b"".join((_UNCHECKED.pack(0, length, -1, MAGIC, extend(crc32c(checked), body)), checked, body))


def values_alike(
    batch: RecordBatch, headers: Sequence[Header], max_bytes: int = DEFAULT_MAX_RECORDS_BYTES
) -> list[bytes] | None:
    """Return the values of a batch as `encode_alike` writes it, several times as fast as `decode`.

    The bytes of the headers separate the records, and the length of what lies between them gives the value's. All in
    front of a value is compared with what it must be.

    Args:
        batch: The batch.
        headers: The headers that its records must have.
        max_bytes: The most bytes its records may have when decompressed.

    Returns:
        The values; None if the batch differs anywhere, or a value holds the bytes of the headers.

    Raises:
        RecordsTooLarge, BatchCorrupt: See `records_bytes`.
    """
    count = batch.count
    if count != batch.last_offset_delta + 1:
        return None
    ending = _encoded_headers(headers)
    parts = records_bytes(batch, max_bytes).split(ending)
    if len(parts) != count + 1 or parts.pop():
        return None
    values: list[bytes] = []
    for width, stop in enumerate(_OFFSETS_OF_WIDTH, 1):
        fronts = _fronts(ending, width)
        first = len(values)
        places = _KNOWN[first:stop] if stop <= _KNOWN_END else map(_encoded, range(first, stop))
        for part, place in zip(parts[first:stop], places, strict=False):
            before, after, start = fronts[len(part)]
            if not part.startswith(before + place + after):
                return None
            values.append(part[start:])
    return values if len(values) == count else None


class _Fronts(dict[int, tuple[bytes, bytes, int]]):
    """What a record begins with, by its length without headers: before and after its offset; and where its value is."""

    def __init__(self, ending: bytes, width: int) -> None:
        self._ending, self._width = ending, width

    def __missing__(self, size: int) -> tuple[bytes, bytes, int]:
        found = self._front(size)
        if size < _KNOWN_END:
            self[size] = found
        return found

    def _front(self, size: int) -> tuple[bytes, bytes, int]:
        for number_bytes in range(2, 11):  # those of the record's length and the value's together
            value = size - number_bytes - 3 - self._width
            if value < 0:
                break
            after = b"\x01" + _encoded(value)
            # attributes, time, offset, no key, length of the value, value, headers
            before = _encoded(2 + self._width + len(after) + value + len(self._ending)) + b"\x00\x00"
            if len(before) + self._width + len(after) + value == size:
                return before, after, size - value
        return b"\x00" * (size + 1), b"", 0  # longer than any record of this length


_fronts = lru_cache(maxsize=16)(_Fronts)


def _encode_records(
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Sequence[Header]] | None,
) -> list[bytes]:
    """Return the encoded records one by one."""
    known, known_end = _KNOWN, _KNOWN_END
    base_ms = timestamps_ms[0]
    records: list[bytes] = []
    all_keys = repeat(None) if keys is None else keys
    all_headers = repeat(()) if headers is None else headers
    before: Sequence[Header] | None = None
    ending = b"\x00"
    for offset, (value, time_ms, key, some) in enumerate(
        zip(values, timestamps_ms, all_keys, all_headers, strict=False)
    ):
        delta = time_ms - base_ms
        time = known[delta] if 0 <= delta < known_end else _encoded(delta)
        place = known[offset] if offset < known_end else _encoded(offset)
        fields = _encoded_key(key) if key is not None else b"\x01"
        if some is not before:
            before, ending = some, _encoded_headers(some) if some else b"\x00"
        if value is None:
            body = b"\x00%b%b%b\x01%b" % (time, place, fields, ending)
        else:
            size = len(value)
            length = known[size] if size < known_end else _encoded(size)
            body = b"\x00%b%b%b%b%b%b" % (time, place, fields, length, value, ending)
        size = len(body)
        records.append(known[size] if size < known_end else _encoded(size))
        records.append(body)
    return records


def _encoded_key(key: bytes) -> bytes:
    return _encoded(len(key)) + key


def _encoded_headers(headers: Sequence[Header]) -> bytes:
    parts = [_encoded(len(headers))]
    for name, value in headers:
        encoded = name.encode("utf-8", "replace")
        parts += (_encoded(len(encoded)), encoded)
        parts += (b"\x01",) if value is None else (_encoded(len(value)), value)
    return b"".join(parts)


def _length(view: memoryview, at: int) -> int:
    return int.from_bytes(view[at + 8 : at + BATCH_LENGTH_END], "big", signed=True)


def _check_magic(magic: int) -> None:
    if magic in (0, 1):
        raise OldMagic(f"a message set of version {magic}: record batches of version {MAGIC} are expected")
    if magic != MAGIC:
        raise BatchCorrupt(f"a record batch has the magic {magic}, expected {MAGIC}")
