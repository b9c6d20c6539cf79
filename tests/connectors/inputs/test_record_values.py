"""Messages are taken apart like by the decoder of single records, and whatever is not plain is left to it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.inputs.record_values import message_values
from tidegate.kafka.compression import Compression
from tidegate.kafka.records import decode, encode, parse_batches
from tidegate.store.kafka.records import MESSAGE, Marker, Stretch, encode_marker, encode_messages, read_records

ENDING = b"\x02\x08amqp\x01"
values = st.one_of(
    st.binary(max_size=300),
    st.sampled_from([b"", ENDING, b"x" + ENDING + b"y", b"\x00\x00\x00\x01", b"v" * 63, b"v" * 64, b"v" * 9000]),
)
batches = st.one_of(
    st.lists(values, min_size=1, max_size=80).map(lambda some: encode_messages(some, 5, (1, 0, 0))),
    st.just(encode_marker(Marker(3, 4, 5), 5, (1, 0, 0))),
    st.lists(values, min_size=1, max_size=5).map(lambda some: encode(some, timestamps_ms=[5] * len(some))),
    st.lists(values, min_size=1, max_size=5).map(
        lambda some: encode(some, timestamps_ms=range(len(some)), headers=[MESSAGE] * len(some))
    ),
    st.lists(values, min_size=1, max_size=5).map(
        lambda some: encode(some, timestamps_ms=[5] * len(some), keys=[b"k"] * len(some), headers=[MESSAGE] * len(some))
    ),
    st.lists(values, min_size=1, max_size=5).map(
        lambda some: encode(
            some, timestamps_ms=[5] * len(some), headers=[MESSAGE] * len(some), compression=Compression.GZIP
        )
    ),
)


def numbered(encoded: list[bytes]) -> bytes:
    """The batches at the offsets that follow each other."""
    whole, offset = b"", 0
    for one in encoded:
        whole += offset.to_bytes(8, "big") + one[8:]
        offset += next(parse_batches(one)).count
    return whole


@given(st.lists(batches, max_size=5))
def test_what_is_found_is_what_the_decoder_finds(encoded: list[bytes]) -> None:
    records = numbered(encoded)
    parsed = list(parse_batches(records))
    found = message_values(parsed)
    assert len(found) == len(parsed)
    for batch, some in zip(parsed, found, strict=True):
        columns = decode(batch)
        if some is not None:
            assert list(some) == columns.values
            assert set(columns.headers) == {MESSAGE}
            assert set(columns.keys) == {None}
    assert plain(read_records(records, 0, 0, take_apart=message_values)) == read_records(records, 0, 0)


def plain(stretch: Stretch) -> Stretch:
    """The same with an object for each event."""
    return replace(stretch, batches=[batch._replace(events=list(batch.events)) for batch in stretch.batches])


@given(st.data())
def test_damage_is_left_to_the_decoder(data: st.DataObject) -> None:
    whole = bytearray(encode_messages([b"first", b"second" * 20, b"third"], 5, (1, 0, 0)))
    at = data.draw(st.integers(61, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    (batch,) = parse_batches(bytes(whole))
    (found,) = message_values([batch])
    assert found is None or list(found) == decode(batch).values, "a value may differ, which the checksum shows"


def test_batches_of_messages_are_taken_apart_together() -> None:
    some = [[b"%d" % number * (number % 90) for number in range(first, first + 300)] for first in (0, 300, 600)]
    records = numbered([encode_messages(one, 5, (1, 0, 0)) for one in some])
    found = message_values(list(parse_batches(records)))
    assert [list(one or ()) for one in found] == some
    packed = found[1]
    assert packed is not None
    assert list(packed[5:9]) == some[1][5:9]
    assert list(packed[9:5]) == []
    assert packed[-1] == some[1][-1]
