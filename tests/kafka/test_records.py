from collections.abc import Sequence
from itertools import islice
from struct import pack_into

import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from tidegate.kafka import records
from tidegate.kafka.compression import Compression
from tidegate.kafka.records import (
    BatchCorrupt,
    BatchError,
    Header,
    OldMagic,
    RecordColumns,
    RecordsTooLarge,
    UnknownCompression,
    decode,
    encode,
    encode_alike,
    parse_batch,
    parse_batches,
    rebase,
    values_alike,
)

times = st.integers(0, 2**45)
texts = st.text(max_size=20)
some_bytes = st.none() | st.binary(max_size=300)
record = st.tuples(times, some_bytes, some_bytes, st.lists(st.tuples(texts, some_bytes), max_size=3))
record_lists = st.lists(record, min_size=1, max_size=20)
compressions = st.sampled_from(list(Compression))
Record = tuple[int, bytes | None, bytes | None, list[Header]]


def encoded(some: Sequence[Record], **options: object) -> bytes:
    return encode(
        [value for _, _, value, _ in some],
        timestamps_ms=[time for time, *_ in some],
        keys=[key for _, key, _, _ in some],
        headers=[headers for *_, headers in some],
        **options,
    )


def rows(columns: RecordColumns) -> list[Record]:
    found = zip(columns.timestamps_ms, columns.keys, columns.values, columns.headers, strict=True)
    return [(time, key, value, list(headers)) for time, key, value, headers in found]


@given(record_lists, st.integers(0, 2**50), compressions)
def test_what_was_encoded_is_decoded(some: list[Record], offset: int, compression: Compression) -> None:
    batch = parse_batch(encoded(some, base_offset=offset, compression=compression, producer=(7, 3, 11)))
    batch.check()
    assert rows(decode(batch)) == some
    assert list(decode(batch).offsets) == list(range(offset, offset + len(some)))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)
    assert batch.compression is compression
    assert batch.next_offset == offset + len(some)
    assert batch.max_timestamp_ms == max(time for time, *_ in some)


@given(record_lists, st.integers(0, 2**50))
def test_kafka_python_reads_what_is_encoded(some: list[Record], offset: int) -> None:
    theirs = DefaultRecordBatch(bytearray(encoded(some, base_offset=offset)))
    assert theirs.validate_crc()
    read = [(one.timestamp, one.key, one.value, list(one.headers)) for one in theirs]
    assert read == some
    assert theirs.base_offset == offset


@given(record_lists)
def test_what_kafka_python_encodes_is_decoded(some: list[Record]) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, True, 5, 2, 9, 1 << 20)
    for offset, (time, key, value, headers) in enumerate(some):
        builder.append(offset, time, key, value, headers)
    batch = parse_batch(bytes(builder.build()))
    batch.check()
    assert rows(decode(batch)) == some
    assert batch.is_transactional
    assert not batch.is_control
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count) == (5, 2, 9, len(some))


@given(record_lists, st.integers(0, 2**50), times, compressions)
def test_a_batch_moves_without_its_records_being_touched(
    some: list[Record], offset: int, time_ms: int, compression: Compression
) -> None:
    sent = parse_batch(encoded(some, compression=compression))
    moved = parse_batch(rebase(sent, offset, time_ms))
    moved.check()
    assert moved.base_offset == offset
    assert moved.has_append_time
    assert rows(decode(moved)) == [(time_ms, *rest) for _, *rest in some]
    assert moved.data[61:] == sent.data[61:]


@given(st.lists(record_lists, max_size=4), st.integers(0, 10**6))
def test_batches_follow_one_another_and_the_last_may_be_cut_off(batches: list[list[Record]], cut: int) -> None:
    encoded_batches = [encoded(some) for some in batches]
    whole = b"".join(encoded_batches)
    assert [rows(decode(batch)) for batch in parse_batches(whole)] == batches
    cut %= len(whole) + 1
    ends = [sum(map(len, encoded_batches[:n])) for n in range(len(batches) + 1)]
    complete = sum(end <= cut for end in ends) - 1
    found = [rows(decode(batch)) for batch in parse_batches(whole[:cut], partial_end=True)]
    assert found == batches[:complete]
    if cut not in ends:
        with pytest.raises(BatchCorrupt):
            list(parse_batches(whole[:cut]))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_refused_by_their_magic(magic: int) -> None:
    data = bytearray(encode([b"x"], timestamps_ms=[0]))
    data[16] = magic
    with pytest.raises(OldMagic, match=f"version {magic}"):
        parse_batch(bytes(data))
    with pytest.raises(OldMagic):  # a message of version 0 may be shorter than the header of a batch
        parse_batch(bytes(data[:34]))


def test_an_unknown_magic_is_corrupt() -> None:
    data = bytearray(encode([b"x"], timestamps_ms=[0]))
    data[16] = 3
    with pytest.raises(BatchCorrupt, match="magic 3"):
        parse_batch(bytes(data))


def test_unknown_compression_is_refused() -> None:
    data = bytearray(encode([b"x"], timestamps_ms=[0]))
    data[22] = 5
    with pytest.raises(UnknownCompression, match="number 5"):
        parse_batch(bytes(data))


@given(record_lists, st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_fails_the_check(some: list[Record], at: int, change: int) -> None:
    data = bytearray(encoded(some))
    at = 17 + at % (len(data) - 17)
    data[at] ^= change
    with pytest.raises(BatchError):
        parse_batch(bytes(data)).check()


def with_crc(data: bytearray) -> bytes:
    pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


@given(record_lists, st.integers(0, 10**6), st.integers(1, 255), compressions)
def test_a_well_signed_lie_gives_columns_or_an_error_of_this_module(
    some: list[Record], at: int, change: int, compression: Compression
) -> None:
    data = bytearray(encoded(some, compression=compression))
    at = 21 + at % (len(data) - 21)
    data[at] ^= change
    try:
        batch = parse_batch(with_crc(data))
        columns = decode(batch, 1 << 16)
    except BatchError:
        return
    lengths = {len(columns.offsets), len(columns.timestamps_ms), len(columns.keys), len(columns.values)}
    assert lengths == {batch.count} == {len(columns.headers)}


@given(st.binary(max_size=200))
def test_garbage_gives_an_error_of_this_module(data: bytes) -> None:
    try:
        for batch in islice(parse_batches(data), 10):
            decode(batch, 1 << 16)
    except BatchError:
        pass


@pytest.mark.parametrize("compression", Compression)
def test_records_that_decompress_to_too_much_are_refused(compression: Compression) -> None:
    batch = parse_batch(encode([bytes(1 << 20)], timestamps_ms=[0], compression=compression))
    with pytest.raises(RecordsTooLarge, match="may have 65536 bytes"):
        decode(batch, 1 << 16)
    assert decode(batch, 2 << 20).values == [bytes(1 << 20)]


def test_an_impossible_count_is_refused_before_memory_is_spent() -> None:
    data = bytearray(encode([b"x"], timestamps_ms=[0]))
    pack_into(">i", data, 23, 2**31 - 2)
    pack_into(">i", data, 57, 2**31 - 1)
    with pytest.raises(RecordsTooLarge):
        decode(parse_batch(with_crc(data)))
    pack_into(">i", data, 57, 1000)
    with pytest.raises(BatchCorrupt, match="1000 records do not fit"):
        decode(parse_batch(with_crc(data)))


def test_offsets_may_have_gaps_and_must_increase() -> None:
    data = bytearray(encode([b"x", b"y"], timestamps_ms=[0, 0], base_offset=10))
    place = data.index(b"\x02\x01\x02y")
    data[place] = 8  # the second record's offset delta, from 1 to 4
    pack_into(">i", data, 23, 5)
    assert list(decode(parse_batch(with_crc(data))).offsets) == [10, 14]
    data[place] = 0
    with pytest.raises(BatchCorrupt, match="do not increase"):
        decode(parse_batch(with_crc(data)))
    data[place] = 12
    with pytest.raises(BatchCorrupt, match="behind the last offset"):
        decode(parse_batch(with_crc(data)))


def test_the_numbers_of_a_producer_begin_again() -> None:
    batch = parse_batch(encode([b"x"] * 3, timestamps_ms=[0] * 3, producer=(1, 0, records.MAX_SEQUENCE - 1)))
    assert batch.last_sequence == 0


def test_a_batch_has_a_record() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_alike([], timestamp_ms=0, headers=(), producer=(-1, -1, -1))
    with pytest.raises(ValueError, match="at least one record"):
        encode([], timestamps_ms=[])


@pytest.mark.parametrize("count", [1, 64, 65, 8192, 8193, 17_000])
@pytest.mark.parametrize("headers", [(), (("amqp", None),), (("a", b"v" * 90), ("b", None))])
def test_records_that_are_alike_are_encoded_to_the_same_bytes(count: int, headers: Sequence[records.Header]) -> None:
    sizes = (0, 200, 63, 64, 5) if count > 65 else (20_000, 0, 8191, 8192, 63, 64, 127, 128)
    values = [b"x" * sizes[number % len(sizes)] for number in range(count)]
    expected = encode(values, timestamps_ms=[7] * count, headers=[headers] * count, producer=(5, 1, 9))
    assert encode_alike(values, timestamp_ms=7, headers=headers, producer=(5, 1, 9)) == expected
    if headers:
        assert values_alike(parse_batch(expected), headers) == values


AMQP = (("amqp", None),)


@given(st.lists(st.binary(max_size=300) | st.integers(0, 70_000).map(bytes), min_size=1, max_size=100))
def test_values_of_records_that_are_alike_are_those_of_decoded_ones(values: list[bytes]) -> None:
    batch = parse_batch(encode_alike(values, timestamp_ms=7, headers=AMQP, producer=(5, 1, 9)))
    found = values_alike(batch, AMQP)
    assert found == (None if any(b"\x02\x08amqp\x01" in value for value in values) else decode(batch).values)


@given(record_lists | st.lists(st.tuples(st.just(7), st.none(), some_bytes, st.just(list(AMQP))), min_size=1))
def test_values_of_other_records_are_decoded_ones_or_not_known(some: list[Record]) -> None:
    batch = parse_batch(encoded(some))
    found = values_alike(batch, AMQP)
    columns = decode(batch)
    if found is not None:
        assert found == columns.values
        assert all(headers == AMQP for headers in columns.headers)
        assert all(key is None for key in columns.keys)


def test_a_value_that_holds_the_bytes_of_the_headers_is_left_to_the_decoder() -> None:
    values = [b"a", b"\x02\x08amqp\x01", b"b"]
    assert (
        values_alike(parse_batch(encode_alike(values, timestamp_ms=7, headers=AMQP, producer=(5, 1, 9))), AMQP) is None
    )
