"""The numbers of a gateway's appends: a broker knows repetitions by them, so none may stand for two batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.kafka.records import parse_batch
from tidegate.log import Appended, LogError
from tidegate.store.client.cluster import TopicPartition
from tidegate.store.client.connection import Unreachable
from tidegate.store.kafka import writer as writer_module
from tidegate.store.kafka.records import Marker
from tidegate.store.kafka.writer import QueuedAppend, Writer

Numbers = tuple[int, int, int]


def made(producer: tuple[int, int] = (7, 0)) -> tuple[Writer, list[Appended | LogError]]:
    return Writer(TopicPartition("topic", 0), lambda: producer), []


def sent(writer: Writer) -> Numbers:
    """Return the numbers of the batch that is to be sent now."""
    found = writer.next_batch(lambda: Marker(-1, 0, 0))
    assert found is not None
    batch = parse_batch(found.encoded)
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


def test_no_number_is_used_again_after_a_batch_whose_fate_is_unknown() -> None:
    writer, results = made()
    writer.submit(QueuedAppend([b"stored"], results.append))
    assert sent(writer) == (7, 0, 0)
    writer.take_acknowledged()
    writer.submit(QueuedAppend([b"perhaps"], results.append))
    assert sent(writer) == sent(writer) == (7, 0, 1)  # the same when it is sent again
    writer.submit(QueuedAppend([b"next"], results.append))
    writer.failed(Unreachable("no broker answers"))
    assert [type(result) for result in results] == [LogError]
    # a broker would take (7, 0, 0) for the first batch, and answer that it is stored
    assert sent(writer) == (7, 1, 0)


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=30))
def test_every_batch_has_numbers_of_its_own(batches: list[tuple[int, bool]]) -> None:
    writer, results = made()
    used: set[Numbers] = set()
    for count, is_stored in batches:
        writer.submit(QueuedAppend([b"x"] * count, results.append))
        producer_id, epoch, first = sent(writer)
        numbers = {(producer_id, epoch, first + index) for index in range(count)}
        assert not numbers & used
        used |= numbers
        if is_stored:
            writer.take_acknowledged()
        else:
            writer.failed(Unreachable("no broker answers"))


def test_another_producer_is_asked_for_after_the_last_epoch() -> None:
    producers = iter([(7, writer_module._MAX_EPOCH), (8, 0)])
    writer = Writer(TopicPartition("topic", 0), lambda: next(producers))
    for expected in ((7, writer_module._MAX_EPOCH, 0), (8, 0, 0), (8, 1, 0)):
        writer.submit(QueuedAppend([b"x"], lambda result: None))
        assert sent(writer) == expected
        writer.failed(Unreachable("no broker answers"))


def test_a_marker_is_sent_on_trial_only_where_nothing_else_tells_whether_events_are_taken() -> None:
    writer, results = made()
    assert not writer.ask_for_trial()  # nothing has failed
    writer.submit(QueuedAppend([b"x"], results.append))
    sent(writer)
    writer.note_failure(Unreachable("no broker answers"))
    assert not writer.ask_for_trial()  # an append is being sent
    writer.failed(Unreachable("no broker answers"))
    assert writer.ask_for_trial()
    assert not writer.ask_for_trial()  # it is under way
    sent(writer)
    writer.take_acknowledged()
    assert writer.failure is None
    writer.note_gone("the topic was deleted")
    assert not writer.ask_for_trial()  # another topic may have its name
