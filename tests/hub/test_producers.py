"""Publications of idempotent producers: stored once, whatever is sent again, and over restarts and crashes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hub.support import NOW_S, batch, events, grant, message, open_namespace, publish
from tests.log.support import FaultyFiles, HeldCommitter, use_files
from tests.profiles import example_count
from tidegate.amqp.encoding.types import Int, Short
from tidegate.amqp.messages import BATCH_FORMAT, parse_message, split_batch
from tidegate.hub import HubError
from tidegate.hub.errors import ArgumentError, NotAllowed, OutOfOrderSequence, ProducerFenced, ServerBusy
from tidegate.hub.producers import PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQUENCE_NUMBER

TARGET = "tolls/Partitions/0"
LARGEST = 2**31 - 1


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Any]:
    opened = open_namespace(tmp_path)
    yield opened
    opened.close()


def attach(namespace: Any, **properties: int) -> Any:
    names = {"id": PRODUCER_ID, "epoch": PRODUCER_EPOCH, "number": PRODUCER_SEQUENCE_NUMBER}
    given = {names[name]: value for name, value in properties.items()}
    return namespace.open_publisher(TARGET, [grant(namespace)], NOW_S, idempotent=True, properties=given)


def numbered(link: Any, first: int, count: int = 1, epoch: int | None = None) -> bytes:
    """A batch of events that carry the producer's numbers from `first` on; each body is its number."""
    epoch = link.producer_epoch if epoch is None else epoch
    return batch(
        [
            message(
                b"%d" % (first + i & LARGEST),
                **{
                    PRODUCER_ID: link.producer_id,
                    PRODUCER_EPOCH: Short(epoch),
                    PRODUCER_SEQUENCE_NUMBER: Int(first + i & LARGEST),
                },
            )
            for i in range(count)
        ]
    )


def send(link: Any, first: int, count: int = 1, **options: int) -> None:
    publish(link, numbered(link, first, count, **options), BATCH_FORMAT)


def bodies(namespace: Any) -> list[int]:
    return [int(parse_message(event).body[0]) for event in events(namespace).get("0", [])]


def test_a_new_producer_gets_an_id_and_begins_after_zero(namespace: Any) -> None:
    one, other = attach(namespace), attach(namespace)
    assert one.producer_id != other.producer_id
    assert (one.producer_epoch, one.producer_sequence_number) == (0, 0)
    assert 0 < one.producer_id < 2**53, "JavaScript must hold it exactly"


def test_what_is_sent_again_is_acknowledged_and_not_stored(namespace: Any) -> None:
    link = attach(namespace)
    send(link, 1, 3)
    send(link, 1, 3)
    send(link, 4, 2)
    send(link, 1, 3)
    send(link, 5)
    assert bodies(namespace) == [1, 2, 3, 4, 5]


def test_a_gap_is_refused_and_the_producer_goes_on(namespace: Any) -> None:
    link = attach(namespace)
    send(link, 1)
    with pytest.raises(OutOfOrderSequence, match="must continue with number 2, not 3"):
        send(link, 3)
    with pytest.raises(OutOfOrderSequence):
        send(link, 1, 2)
    send(link, 2)
    assert bodies(namespace) == [1, 2]


def test_numbers_wrap(namespace: Any) -> None:
    link = attach(namespace, id=5, number=LARGEST - 1)
    assert link.producer_sequence_number == LARGEST - 1
    send(link, LARGEST, 3)
    send(link, LARGEST, 3)
    send(link, 2)
    assert bodies(namespace) == [LARGEST, 0, 1, 2]


def test_a_higher_epoch_fences_the_former_instance(namespace: Any) -> None:
    old = attach(namespace)
    send(old, 1)
    new = attach(namespace, id=old.producer_id, epoch=1)
    assert (new.producer_epoch, new.producer_sequence_number) == (1, 1)
    send(new, 2)
    with pytest.raises(ProducerFenced):
        send(old, 3)
    with pytest.raises(ProducerFenced):
        attach(namespace, id=old.producer_id, epoch=0)
    assert bodies(namespace) == [1, 2]


def test_an_idempotent_producer_needs_a_partition(namespace: Any) -> None:
    with pytest.raises(NotAllowed):
        namespace.open_publisher("tolls", [grant(namespace)], NOW_S, idempotent=True)


@pytest.mark.parametrize("properties", [{"id": "five"}, {"epoch": True}, {"number": 1.5}])
def test_properties_that_are_no_numbers(namespace: Any, properties: dict[Any, Any]) -> None:
    with pytest.raises(ArgumentError):
        attach(namespace, **properties)


def test_events_that_contradict_each_other(namespace: Any) -> None:
    link = attach(namespace)
    one, two = numbered(link, 1), numbered(link, 3)
    with pytest.raises(ArgumentError, match="numbers without a gap"):
        publish(link, batch(split_batch(one) + split_batch(two)), BATCH_FORMAT)
    with pytest.raises(ArgumentError):
        publish(link, batch([*split_batch(one), message(b"0")]), BATCH_FORMAT)
    assert bodies(namespace) == []


def test_a_failed_append_may_be_sent_again(namespace: Any) -> None:
    link = attach(namespace)
    send(link, 1)
    log = namespace.event_hub("tolls").partition("0").log
    files = FaultyFiles()
    use_files(log, files)
    files.fail("write", 28)
    with pytest.raises(ServerBusy):
        send(link, 2, 2)
    files.heal()
    send(link, 2, 2)
    assert bodies(namespace) == [1, 2, 3]


def test_what_is_sent_while_the_disk_fails_waits_for_what_failed(namespace: Any) -> None:
    link = attach(namespace)
    send(link, 1)
    log = namespace.event_hub("tolls").partition("0").log
    files = FaultyFiles()
    later: list[Any] = []

    def fail(*_: object) -> None:
        use_files(log, files)
        link.publish(BATCH_FORMAT, numbered(link, 4, 2), later.append)
        raise OSError(28, "No space left on device")

    use_files(log, SimpleNamespace(write_at=fail))
    with pytest.raises(ServerBusy):
        send(link, 2, 2)
    assert [type(answer) for answer in later] == [ServerBusy]
    send(link, 2, 2)
    send(link, 4, 2)
    send(link, 6)
    assert bodies(namespace) == [1, 2, 3, 4, 5, 6]


def refuse_once(namespace: Any) -> None:
    """Have the disk refuse what is written next."""
    log = namespace.event_hub("tolls").partition("0").log

    def fail(*_: object) -> None:
        use_files(log, FaultyFiles())
        raise OSError(28, "No space left on device")

    use_files(log, SimpleNamespace(write_at=fail))


def test_what_is_sent_while_a_refusal_is_reported_waits_for_what_was_refused(tmp_path: Path) -> None:
    committer = HeldCommitter()
    namespace = open_namespace(tmp_path, committer=committer)
    link = attach(namespace)
    later: list[Any] = []

    def send_on(error: HubError | None) -> None:
        """Before the producer's own publication is reported as refused."""
        assert error is not None
        link.publish(BATCH_FORMAT, numbered(link, 3, 2), later.append)

    namespace.open_publisher(TARGET, [grant(namespace)], NOW_S).publish(0, message(b"0"), send_on)
    link.publish(BATCH_FORMAT, numbered(link, 1, 2), later.append)
    refuse_once(namespace)
    committer.run()
    assert [type(answer) for answer in later] == [ServerBusy] * 2
    assert bodies(namespace) == []
    for first in (1, 3, 5):
        link.publish(BATCH_FORMAT, numbered(link, first, 2), later.append)
        committer.run()
    assert bodies(namespace) == [1, 2, 3, 4, 5, 6]
    namespace.close()


def test_a_refusal_says_nothing_of_what_was_sent_again_since(tmp_path: Path) -> None:
    committer = HeldCommitter()
    namespace = open_namespace(tmp_path, committer=committer)
    link = attach(namespace)
    again: list[Any] = []
    for first in (1, 3):

        def resend(error: HubError | None, first: int = first) -> None:
            assert isinstance(error, ServerBusy)
            link.publish(BATCH_FORMAT, numbered(link, first, 2), again.append)

        link.publish(BATCH_FORMAT, numbered(link, first, 2), resend)
    refuse_once(namespace)
    committer.run()
    # Refused too, as they came before all callers knew, and not for a gap.
    assert [type(answer) for answer in again] == [ServerBusy] * 2
    for first in (1, 3, 5):
        link.publish(BATCH_FORMAT, numbered(link, first, 2), again.append)
    committer.run()
    assert bodies(namespace) == [1, 2, 3, 4, 5, 6]
    namespace.close()


def test_what_is_still_on_its_way_is_not_acknowledged(tmp_path: Path) -> None:
    committer = HeldCommitter()
    namespace = open_namespace(tmp_path, committer=committer)
    link = attach(namespace)
    answers: list[HubError | None] = []
    link.publish(BATCH_FORMAT, numbered(link, 1, 2), answers.append)
    with pytest.raises(ServerBusy, match="being stored"):
        link.publish(BATCH_FORMAT, numbered(link, 1, 2), answers.append)
    link.publish(BATCH_FORMAT, numbered(link, 3, 1), answers.append)
    committer.run()
    link.publish(BATCH_FORMAT, numbered(link, 1, 2), answers.append)
    assert answers == [None] * 3
    assert bodies(namespace) == [1, 2, 3]
    namespace.close()


@pytest.mark.parametrize("end", ["clean", "crash", "crash without the file"])
def test_producers_are_known_after_a_restart(tmp_path: Path, end: str) -> None:
    namespace = open_namespace(tmp_path / "data")
    link = attach(namespace)
    send(link, 1, 3)
    publish(link, message(b"0"))
    send(link, 4)
    if end == "clean":
        namespace.close()
        data = tmp_path / "data"
    else:
        data = tmp_path / "copy"
        shutil.copytree(tmp_path / "data", data)
        if end == "crash without the file":
            (state,) = data.glob("hubs/tolls-*/0/producers.json")
            state.write_bytes(b"")  # as the advice for a damaged one says
    again = open_namespace(data)
    same = attach(again, id=link.producer_id, epoch=0)
    assert same.producer_sequence_number == 4
    send(same, 4)
    send(same, 5)
    assert bodies(again) == [1, 2, 3, 0, 4, 5]
    again.close()


@pytest.mark.parametrize("kept", [0, 1], ids=["all of them", "all but the last"])
def test_producers_go_on_after_a_crash_that_follows_the_deletion_of_their_events(tmp_path: Path, kept: int) -> None:
    namespace = open_namespace(tmp_path / "data")
    old, link = attach(namespace), attach(namespace)
    for number in range(1, 4):
        send(old, number)
    for number in range(1, 4):
        send(link, number)
    log = namespace.event_hub("tolls").partition("0").log
    log.delete_before(log.next_sequence_number - kept)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    again = open_namespace(tmp_path / "copy")
    for one in (old, link):
        same = attach(again, id=one.producer_id, epoch=0, number=3)
        assert same.producer_sequence_number == 3
        send(same, 4)
    assert bodies(again) == [3] * kept + [4, 4]
    again.close()


def test_a_partition_without_such_producers_keeps_no_state(tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path)
    publish(namespace.open_publisher(TARGET, [grant(namespace)], NOW_S), message(b"x"))
    namespace.close()
    assert not list(tmp_path.glob("**/producers.json"))


@settings(max_examples=example_count(60), deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(["send", "again", "lost", "restart"]), st.integers(1, 4)),
        max_size=25,
    )
)
def test_each_number_is_stored_once_and_in_order_whatever_is_retried(
    steps: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = tmp_path_factory.mktemp("data")
    namespace = open_namespace(data)
    links = [attach(namespace, id=1), attach(namespace, id=2)]
    last, sent = [0, 0], [(1, 0), (1, 0)]
    for who, action, count in steps:
        if action == "restart":
            namespace.close()
            namespace = open_namespace(data)
            links = [attach(namespace, id=1), attach(namespace, id=2)]
            assert [link.producer_sequence_number for link in links] == last
        elif action == "again":
            if sent[who][1]:
                send(links[who], *sent[who])
        else:
            sent[who] = (last[who] + 1, count)
            send(links[who], *sent[who])
            last[who] += count
            if action == "lost":  # the answer did not arrive, so the client sends again
                send(links[who], *sent[who])
    stored = bodies(namespace)
    assert sorted(stored) == sorted([*range(1, last[0] + 1), *range(1, last[1] + 1)])
    namespace.close()


def test_numbered_singles_that_come_together(namespace: Any) -> None:
    link = attach(namespace)
    singles = [split_batch(numbered(link, number))[0] for number in (1, 2, 2, 5, 3)]
    answers = []
    plain = message(b"0")
    link.publish_singles([plain, *singles, plain], lambda *answer: answers.append(answer))
    refused = {index: type(error) for indexes, error in answers for index in indexes if error is not None}
    assert refused == {4: OutOfOrderSequence}
    assert sorted(index for indexes, _ in answers for index in indexes) == list(range(7))
    assert bodies(namespace) == [0, 1, 2, 3, 0]


def test_a_body_may_speak_of_producers(namespace: Any) -> None:
    event, answers = message(b"of com.microsoft:producer-id"), []
    link = attach(namespace)
    publish(link, event)
    publish(link, batch([event, event]), BATCH_FORMAT)
    link.publish_singles([event], lambda *answer: answers.append(answer))
    assert [(list(indexes), error) for indexes, error in answers] == [([0], None)]
    assert events(namespace)["0"] == [event] * 4
