"""Capture of a namespace: which partitions are captured, while hubs and settings change."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.archives import archive_of, files
from tests.hub.support import message, open_namespace
from tests.log.support import SetClock, append
from tidegate.hub import EventHubConfig, Namespace, NamespaceConfig, capture_scheduler
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.store import Folder, StoreError, open_store
from tidegate.hub.capture_scheduler import CaptureScheduler

START_MS = 1754103840_000
MINUTE_MS = 60_000


@pytest.fixture
def clock() -> SetClock:
    return SetClock(START_MS)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def description(archive: Path) -> CaptureDescription:
    return CaptureDescription(destination=str(archive), interval_in_seconds=60, skip_empty_archives=True)


@pytest.fixture
def namespace(tmp_path: Path, clock: SetClock, description: CaptureDescription) -> Iterator[Namespace]:
    hubs = (
        EventHubConfig(name="own", partition_count=2, capture=description, retention_ms=1),
        EventHubConfig(name="other", partition_count=1, retention_ms=1),
    )
    opened = open_namespace(tmp_path / "data", NamespaceConfig(name="ns1", event_hubs=hubs), clock=clock)
    yield opened
    opened.close()


def put(namespace: Namespace, hub: str, partition: int = 0) -> None:
    append(namespace.event_hub(hub).partitions[partition].log, [message()])


def run(scheduler: CaptureScheduler, clock: SetClock, at_ms: int) -> None:
    clock.time_ms = at_ms
    while scheduler.step(at_ms):
        pass


def test_hubs_with_a_description_are_captured(namespace: Namespace, clock: SetClock, archive: Path) -> None:
    scheduler = CaptureScheduler(namespace)
    scheduler.open()
    put(namespace, "own", 0)
    put(namespace, "own", 1)
    put(namespace, "other")
    run(scheduler, clock, START_MS + MINUTE_MS)
    assert files(archive) == [f"ns1/own/{partition}/2025/08/02/03/04/00.avro" for partition in (0, 1)]


def test_files_are_counted_once_they_are_in_their_place(namespace: Namespace, clock: SetClock, archive: Path) -> None:
    counted: list[tuple[str, int, int]] = []
    scheduler = CaptureScheduler(namespace, on_captured=lambda *file: counted.append(file))
    scheduler.open()
    for _ in range(3):
        put(namespace, "own")
    run(scheduler, clock, START_MS + 30_000)
    assert counted == []
    run(scheduler, clock, START_MS + MINUTE_MS)
    (name,) = files(archive)
    assert counted == [("own", 3, (archive / name).stat().st_size)]


def test_a_default_is_for_the_others(namespace: Namespace, clock: SetClock, archive: Path, tmp_path: Path) -> None:
    default = CaptureDescription(destination=str(tmp_path / "default"), interval_in_seconds=120)
    scheduler = CaptureScheduler(namespace, default)
    scheduler.open()
    put(namespace, "own")
    put(namespace, "other")
    run(scheduler, clock, START_MS + 2 * MINUTE_MS)
    assert files(archive) == ["ns1/own/0/2025/08/02/03/04/00.avro"]
    assert files(tmp_path / "default") == ["ns1/other/0/2025/08/02/03/04/00.avro"]


def test_retention_leaves_what_is_to_be_captured(namespace: Namespace, clock: SetClock, archive: Path) -> None:
    scheduler = CaptureScheduler(namespace)
    scheduler.open()
    put(namespace, "own")
    put(namespace, "other")
    clock.time_ms = START_MS + 30_000
    assert namespace.apply_retention() == 1
    assert namespace.event_hub("own").partitions[0].log.begin_sequence_number == 0
    run(scheduler, clock, START_MS + MINUTE_MS)
    assert namespace.apply_retention() == 1
    assert list(archive_of(archive).values()) == [[0]]


def test_hubs_and_settings_change_while_capture_runs(
    namespace: Namespace, clock: SetClock, archive: Path, tmp_path: Path, description: CaptureDescription
) -> None:
    scheduler = CaptureScheduler(namespace)
    scheduler.open()
    namespace.management.create_event_hub(EventHubConfig(name="new", partition_count=1, capture=description))
    run(scheduler, clock, START_MS + 1)
    put(namespace, "new")
    put(namespace, "own")
    elsewhere = description.model_copy(update={"destination": str(tmp_path / "elsewhere")})
    own = namespace.event_hub("own")
    namespace.management.update_event_hub(own.name, capture=elsewhere)
    run(scheduler, clock, START_MS + MINUTE_MS)
    assert files(archive) == ["ns1/new/0/2025/08/02/03/04/00.avro"]
    assert files(tmp_path / "elsewhere") == ["ns1/own/0/2025/08/02/03/04/00.avro"]

    namespace.management.update_event_hub(own.name, capture=None)
    namespace.management.delete_event_hub("new")
    run(scheduler, clock, START_MS + MINUTE_MS + 1)
    assert own.partitions[0].capture is None
    put(namespace, "own")
    run(scheduler, clock, START_MS + 5 * MINUTE_MS)
    assert len(files(tmp_path / "elsewhere")) == 1


def test_what_cannot_be_captured_is_said_at_the_start(namespace: Namespace) -> None:
    nowhere = CaptureDescription(destination="nowhere://archive")
    with pytest.raises(StoreError, match="nowhere://archive cannot be used"):
        CaptureScheduler(namespace, nowhere).open()


def test_what_cannot_be_captured_later_is_tried_again_and_holds_up_nobody(
    namespace: Namespace, clock: SetClock, archive: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = CaptureScheduler(namespace)
    scheduler.open()
    other = namespace.event_hub("other")
    nowhere = CaptureDescription(destination="nowhere://archive")
    namespace.management.update_event_hub(other.name, capture=nowhere)
    put(namespace, "own")
    run(scheduler, clock, START_MS + MINUTE_MS)
    assert len(files(archive)) == 1
    run(scheduler, clock, START_MS + MINUTE_MS + 1)
    assert caplog.text.count("other/0 is not captured") == 1
    run(scheduler, clock, START_MS + 3 * MINUTE_MS)
    assert caplog.text.count("other/0 is not captured") == 2


def test_a_destination_that_is_away_is_asked_by_one_partition_and_holds_up_no_other(
    namespace: Namespace, clock: SetClock, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Away(Folder):
        def head(self, name: str, size: int) -> bytes | None:
            asked.append(name)
            raise StoreError("no answer for a minute")

    away = CaptureDescription(destination="away", interval_in_seconds=60, skip_empty_archives=True)
    monkeypatch.setattr(
        capture_scheduler, "open_store", lambda place, _: Away(tmp_path) if place == "away" else open_store(place)
    )
    namespace.management.update_event_hub("own", capture=away)
    here = CaptureDescription(destination=str(archive), interval_in_seconds=60, skip_empty_archives=True)
    namespace.management.update_event_hub("other", capture=here)
    scheduler = CaptureScheduler(namespace)
    scheduler.open()
    for hub, partition in (("own", 0), ("own", 1), ("other", 0)):
        put(namespace, hub, partition)
    now_ms = START_MS + MINUTE_MS
    run(scheduler, clock, now_ms)
    assert (len(asked), len(files(archive))) == (1, 1)
    for _ in range(100):
        now_ms += 1_000
        run(scheduler, clock, now_ms)
    assert len(asked) == 7, "after 1, 2, 4, 8, 16, 32 and 60 seconds"
    monkeypatch.setattr(Away, "head", Folder.head)
    run(scheduler, clock, now_ms + 60_000)
    assert len(list(tmp_path.rglob("own/*/*/**/*.avro"))) == 2


def test_the_work_done_ahead_is_thrown_away_at_the_end(namespace: Namespace, clock: SetClock, tmp_path: Path) -> None:
    scheduler = CaptureScheduler(namespace)
    scheduler.open()
    put(namespace, "own")
    run(scheduler, clock, START_MS + 1)
    assert len(list((tmp_path / "data").rglob("spool.avro"))) == 1
    scheduler.close()
    assert not list((tmp_path / "data").rglob("spool.avro"))
    again = CaptureScheduler(namespace)
    again.open()
    run(again, clock, START_MS + MINUTE_MS)
    assert list(archive_of(tmp_path / "archive").values()) == [[0]]


def test_a_description_survives_a_restart(tmp_path: Path, clock: SetClock, description: CaptureDescription) -> None:
    hub = EventHubConfig(name="own", partition_count=1, capture=description)
    for hubs in ((hub,), ()):
        namespace = open_namespace(tmp_path / "data", NamespaceConfig(name="ns1", event_hubs=hubs), clock=clock)
        assert namespace.event_hub("own").config.capture == description
        namespace.close()
