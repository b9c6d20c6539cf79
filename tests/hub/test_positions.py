"""Where reading begins, and who may read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hub.support import NOW_S, grant, message, open_namespace, publish
from tests.log.support import SetClock, last_segment
from tidegate.hub.errors import ArgumentError, ArgumentOutOfRange, HubError, LinkStolen, NotFound, QuotaExceeded
from tidegate.hub.positions import Position, PositionKey, parse_selector

SOURCE = "tolls/ConsumerGroups/cg1/Partitions/0"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, Position(PositionKey.OFFSET, -1, False)),
        ("amqp.annotation.x-opt-offset > '-1'", Position(PositionKey.OFFSET, -1, False)),
        ("amqp.annotation.x-opt-offset > '@latest'", Position(PositionKey.OFFSET, None, False)),
        ("amqp.annotation.x-opt-offset >= '@latest'", Position(PositionKey.OFFSET, None, False)),
        ("amqp.annotation.x-opt-offset >= '4096'", Position(PositionKey.OFFSET, 4096, True)),
        ("amqp.annotation.x-opt-sequence-number > '7'", Position(PositionKey.SEQUENCE_NUMBER, 7, False)),
        ("amqp.annotation.x-opt-sequence-number >= 7", Position(PositionKey.SEQUENCE_NUMBER, 7, True)),
        (
            "  amqp.annotation.x-opt-enqueued-time>'1700000000000'  ",
            Position(PositionKey.ENQUEUED_TIME, 1700000000000, False),
        ),
        ("amqp.annotation.x-opt-enqueued-time-utc >= '5'", Position(PositionKey.ENQUEUED_TIME, 5, True)),
    ],
)
def test_selectors(selector: str | None, expected: Any) -> None:
    assert parse_selector(selector) == expected


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "x-opt-offset > '1'",
        "amqp.annotation.x-opt-offset < '1'",
        "amqp.annotation.x-opt-offset = '1'",
        "amqp.annotation.x-opt-offset > 'one'",
        "amqp.annotation.x-opt-offset > ''",
        "amqp.annotation.x-opt-offset > '1' OR 1=1",
        "amqp.annotation.x-opt-sequence-number > '@latest'",
        "amqp.annotation.x-opt-partition-key > '1'",
        "amqp.annotation.x-opt-offset > '" + "9" * 80 + "'",
        "amqp.annotation.x-opt-offset > '٣'",
        "x" * 100_000,
    ],
)
def test_what_is_no_selector(selector: Any) -> None:
    with pytest.raises(ArgumentError):
        parse_selector(selector)


@given(st.text(max_size=60) | st.text(alphabet="amqp.notix-fse'><= @0123456789", max_size=80))
def test_any_text_is_a_selector_or_refused(text: Any) -> None:
    for selector in (text, f"amqp.annotation.x-opt-offset > '{text}'", f"amqp.annotation.x-opt-{text}"):
        with suppress(ArgumentError):
            parse_selector(selector)


@pytest.fixture
def clock() -> Any:
    return SetClock(1000)


@pytest.fixture
def namespace(tmp_path: Path, clock: Any) -> Iterator[Any]:
    """Partition 0 of tolls holds b"0" to b"5", enqueued at 1000, 1000, 2000, 2000, 3000, 3000."""
    opened = open_namespace(tmp_path, clock=clock)
    publisher = opened.open_publisher("tolls/Partitions/0", [grant(opened)], NOW_S)
    for number in range(6):
        clock.time_ms = 1000 * (1 + number // 2)
        publish(publisher, message(b"%d" % number))
    yield opened
    opened.close()


def open_reader(
    namespace: Any, selector: Any = None, source: Any = SOURCE, on_stolen: Any = lambda _: None, **options: Any
) -> Any:
    return namespace.open_reader(source, [grant(namespace)], NOW_S, selector=selector, on_stolen=on_stolen, **options)


def numbers(reader: Any) -> list[int]:
    found: list[int] = []
    while batches := reader.read_batches(max_events=4, max_bytes=10_000):
        for one in batches:
            found += range(one.base_sequence_number, one.base_sequence_number + len(one.events))
    return found


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, [0, 1, 2, 3, 4, 5]),
        ("x-opt-offset > '-1'", [0, 1, 2, 3, 4, 5]),
        ("x-opt-offset >= '-1'", [0, 1, 2, 3, 4, 5]),
        ("x-opt-offset > '@latest'", []),
        ("x-opt-sequence-number > '-1'", [0, 1, 2, 3, 4, 5]),
        ("x-opt-sequence-number >= '0'", [0, 1, 2, 3, 4, 5]),
        ("x-opt-sequence-number > '0'", [1, 2, 3, 4, 5]),
        ("x-opt-sequence-number >= '5'", [5]),
        ("x-opt-sequence-number > '5'", []),
        ("x-opt-enqueued-time > '0'", [0, 1, 2, 3, 4, 5]),
        ("x-opt-enqueued-time > '1000'", [2, 3, 4, 5]),
        ("x-opt-enqueued-time >= '1000'", [0, 1, 2, 3, 4, 5]),
        ("x-opt-enqueued-time > '2999'", [4, 5]),
        ("x-opt-enqueued-time >= '3001'", []),
        ("x-opt-enqueued-time > '99999999999999'", []),
    ],
)
def test_positions(namespace: Any, selector: str | None, expected: list[int]) -> None:
    reader = open_reader(namespace, selector and f"amqp.annotation.{selector}")
    assert numbers(reader) == expected


def test_positions_by_offset(namespace: Any) -> None:
    log = namespace.event_hub("tolls").partition("0").log
    offsets = [offset for one in log.read_batches(0) for offset in one.offsets]
    for number, offset in enumerate(offsets):
        assert numbers(open_reader(namespace, f"amqp.annotation.x-opt-offset > '{offset}'")) == list(
            range(number + 1, 6)
        )
        reader = open_reader(namespace, f"amqp.annotation.x-opt-offset >= '{offset}'", epoch=1)
        assert numbers(reader) == list(range(number, 6))
        reader.close()


@pytest.mark.parametrize("selector", ["x-opt-offset > '99999999'", "x-opt-sequence-number > '7'"])
def test_a_position_that_was_never_given_out_is_refused(namespace: Any, selector: str) -> None:
    with pytest.raises(ArgumentError, match="the last one in the partition is"):
        open_reader(namespace, f"amqp.annotation.{selector}")


def test_an_empty_partition_is_read_from_any_way_a_client_begins(namespace: Any) -> None:
    source = "tolls/ConsumerGroups/cg1/Partitions/1"
    for selector in (
        "offset > '-1'",
        "offset > '@latest'",
        "sequence-number >= '0'",
        "sequence-number > '-1'",
        "enqueued-time > '5'",
    ):
        reader = open_reader(namespace, f"amqp.annotation.x-opt-{selector}", source)
        assert (reader.next_sequence_number, numbers(reader)) == (0, [])
        reader.close()


def test_a_reader_goes_on_where_it_stopped_and_sees_what_comes(namespace: Any, clock: Any) -> None:
    reader = open_reader(namespace, "amqp.annotation.x-opt-offset > '@latest'")
    assert numbers(reader) == []
    publisher = namespace.open_publisher("tolls/Partitions/0", [grant(namespace)], NOW_S)
    publish(publisher, message(b"6"))
    assert numbers(reader) == [6]


def test_a_reader_passes_over_damage_and_says_so(
    namespace: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = namespace.event_hub("tolls").partition("0").log
    third = next(log.entries(2))
    segment = last_segment(log.directory)
    content = bytearray(segment.read_bytes())
    content[third.first_offset + 60] ^= 1
    segment.write_bytes(content)
    assert numbers(open_reader(namespace)) == [0, 1, 3, 4, 5]
    assert "tolls/0: skipping damaged events" in caplog.text


@pytest.mark.parametrize(
    ("source", "refusal"),
    [
        ("nowhere/ConsumerGroups/cg1/Partitions/0", NotFound),
        ("tolls/ConsumerGroups/x/Partitions/0", NotFound),
        ("tolls/ConsumerGroups/cg1/Partitions/00", ArgumentOutOfRange),
        ("tolls", NotFound),
    ],
)
def test_sources_that_do_not_exist(namespace: Any, source: str, refusal: Any) -> None:
    with pytest.raises(refusal):
        open_reader(namespace, source=source)


# -- owner levels, as rules over time: who is let in, who is evicted


def test_five_without_a_level_and_no_sixth(namespace: Any) -> None:
    readers = [open_reader(namespace) for _ in range(5)]
    with pytest.raises(QuotaExceeded, match="at most 5"):
        open_reader(namespace)
    open_reader(namespace, source="tolls/ConsumerGroups/$Default/Partitions/0")
    open_reader(namespace, source="tolls/ConsumerGroups/cg1/Partitions/1")
    readers[0].close()
    readers[0].close()
    open_reader(namespace)
    with pytest.raises(QuotaExceeded):
        open_reader(namespace)


@pytest.mark.parametrize(
    ("there", "newcomer", "let_in"),
    [
        (None, 0, True),
        (None, 5, True),
        (5, 6, True),
        (5, 5, True),
        (5, 4, False),
        (5, 0, False),
        (0, None, False),
        (5, None, False),
    ],
)
def test_owner_levels(namespace: Any, there: int | None, newcomer: int | None, let_in: bool) -> None:
    stolen: list[HubError] = []
    open_reader(namespace, epoch=there, on_stolen=stolen.append)
    if not let_in:
        with pytest.raises(LinkStolen):
            open_reader(namespace, epoch=newcomer)
        assert stolen == []
        return
    open_reader(namespace, epoch=newcomer)
    (error,) = stolen
    assert error.condition == "amqp:link:stolen"
