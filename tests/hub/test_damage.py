"""What decides which events were acknowledged is damaged, missing or exchanged: it is noticed, with advice."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hub.support import NOW_S, batch, grant, message, open_namespace, publish
from tests.hub.test_producers import attach, send
from tidegate.durable_files import FileDamaged
from tidegate.hub import ConfigError, Namespace
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.journal import JournalDamaged
from tidegate.hub.capture_scheduler import CaptureScheduler
from tidegate.log import LogError, PartitionFolderWrong

EVENTS = 5


def write(data: Path, captured: Path | None = None) -> None:
    """A namespace whose first partition has events, an idempotent producer's state and a capture journal."""
    namespace = open_namespace(data)
    publisher = namespace.open_publisher("tolls/Partitions/0", [grant(namespace)], NOW_S)
    publish(publisher, batch([message(b"%d" % number) for number in range(EVENTS)]), 0x80013700)
    send(attach(namespace), 1)
    if captured is not None:
        scheduler = CaptureScheduler(namespace, CaptureDescription(destination=str(captured)))
        scheduler.open()
        scheduler.close()
    namespace.close()


def open_all(data: Path, captured: Path) -> None:
    namespace = open_namespace(data)
    try:
        CaptureScheduler(namespace, CaptureDescription(destination=str(captured))).open()
    finally:
        namespace.close()


@pytest.mark.parametrize(
    "pattern",
    [
        "namespace.json",
        "hubs/tolls-*/0/acknowledged",
        "hubs/tolls-*/0/partition.json",
        "hubs/tolls-*/0/producers.json",
        "hubs/tolls-*/0/capture/journal.json",
    ],
)
def test_a_changed_byte_is_refused_with_advice(tmp_path: Path, pattern: str) -> None:
    write(tmp_path / "data", tmp_path / "captured")
    (path,) = (tmp_path / "data").glob(pattern)
    content = path.read_bytes()
    places = range(0, len(content), max(1, len(content) // 25))
    for place in places:
        damaged = bytes((content[place] ^ 1,))
        path.write_bytes(content[:place] + damaged + content[place + 1 :])
        with pytest.raises(
            (FileDamaged, JournalDamaged, ConfigError), match=rf"{re.escape(path.name)} .*restore it from a backup"
        ):
            open_all(tmp_path / "data", tmp_path / "captured")
    path.write_bytes(content)
    open_all(tmp_path / "data", tmp_path / "captured")


def read_through(namespace: Namespace, partition: int = 0) -> list[int]:
    """Return the sequence numbers that a consumer from the beginning gets."""
    reader = namespace.open_reader(
        f"tolls/ConsumerGroups/$Default/Partitions/{partition}",
        [grant(namespace)],
        NOW_S,
        on_stolen=lambda error: None,
    )
    found: list[int] = []
    while batches := reader.read_batches(max_events=100, max_bytes=1 << 20):
        for one in batches:
            found += range(one.base_sequence_number, one.base_sequence_number + len(one.events))
    reader.close()
    return found


def test_consumers_pass_over_a_missing_segment_and_see_the_gap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A hub whose only segment of a partition had been deleted started without a word."""
    write(tmp_path)
    (segment,) = tmp_path.glob("hubs/tolls-*/0/*.log")
    segment.unlink()
    namespace = open_namespace(tmp_path)
    assert f"events 0 to {EVENTS} cannot be read" in caplog.text
    partition = namespace.event_hub("tolls").partition("0")
    assert partition.damaged_events == EVENTS + 1
    properties = partition.properties()
    assert (properties.begin_sequence_number, properties.last_enqueued_sequence_number) == (0, EVENTS)
    publisher = namespace.open_publisher("tolls/Partitions/0", [grant(namespace)], NOW_S)
    publish(publisher, message(b"later"))
    caplog.clear()
    assert read_through(namespace) == [EVENTS + 1]
    assert "skipping" in caplog.text
    namespace.close()


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    "lose",
    [shutil.rmtree, empty, lambda folder: [path.unlink() for path in (*folder.glob("*.log"), folder / "acknowledged")]],
    ids=["the folder", "its files", "its log"],
)
def test_a_partition_that_is_gone_is_refused_until_its_loss_is_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], object]
) -> None:
    write(tmp_path)
    (folder,) = tmp_path.glob("hubs/tolls-*/0")
    lose(folder)
    for _ in range(2):
        with pytest.raises(PartitionFolderWrong, match=r"is missing or empty.*restore it from a backup"):
            open_namespace(tmp_path)
    folder.mkdir(exist_ok=True)
    (folder / "accept-loss").touch()
    namespace = open_namespace(tmp_path)
    assert "are lost, as accept-loss accepts" in caplog.text
    assert namespace.event_hub("tolls").partition("0").log.next_sequence_number == 0
    publish(namespace.open_publisher("tolls/Partitions/0", [grant(namespace)], NOW_S), message(b"anew"))
    namespace.close()
    again = open_namespace(tmp_path)
    assert read_through(again) == [0]
    again.close()


def test_exchanged_folders_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (folder,) = tmp_path.glob("hubs/tolls-*/0")
    other = folder.with_name("1")
    folder.rename(tmp_path / "aside")
    other.rename(folder)
    (tmp_path / "aside").rename(other)
    with pytest.raises(LogError, match=r"/0 holds partition 1 of tolls-\w+: folders were swapped"):
        open_namespace(tmp_path)


def test_a_data_directory_that_lost_its_state_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "namespace.json").unlink()
    with pytest.raises(FileDamaged, match=r"namespace\.json is damaged: it is missing, though there are event hubs"):
        open_namespace(tmp_path)
    (tmp_path / "hubs").rename(tmp_path / "aside")
    open_namespace(tmp_path).close()


@pytest.mark.parametrize("name", ["groups", "schemas"])
def test_a_data_directory_that_lost_the_positions_of_groups_or_its_schemas_is_refused(
    tmp_path: Path, name: str
) -> None:
    """Either was begun anew without a word."""
    write(tmp_path)
    shutil.rmtree(tmp_path / name)
    for _ in range(2):
        with pytest.raises(FileDamaged, match=rf"{name} is damaged: the folder is missing; .* create an empty folder"):
            open_namespace(tmp_path)
    (tmp_path / name).mkdir()
    open_namespace(tmp_path).close()
