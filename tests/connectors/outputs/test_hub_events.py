"""Hubs whose events executors make and publish: each once and in order, whatever happens to an attempt or the job."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.outputs.encoding import run_with_deaths
from tests.job.rows import result_columns
from tests.job.run.test_run import run_here, write_job
from tests.job.test_kills import events_of
from tidegate.client.producer import Producer
from tidegate.connectors.model.encoded_rows import Elsewhere, EncodedPiece, EncodedRows
from tidegate.connectors.model.errors import OutputError, UnavailableError
from tidegate.connectors.outputs import Identity, Mark, OutputOpening
from tidegate.connectors.outputs.messaging.event_hub import EventHubOutput, HubOutput
from tidegate.connectors.outputs.messaging.hub_events import HubPublication, PublicationFailure
from tidegate.engine import ResultRows
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer

HUBS = 24
SETTINGS: dict[str, dict[str, Any]] = {
    "in turn": {},
    "by key": {"partition_key": "k"},
    "with properties": {
        "partition_key": "k",
        "property_columns": ["v"],
        "system_property_columns": {"MessageId": "n"},
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundServer]:
    hubs = tuple(EventHubConfig(name=f"h{number}", partition_count=3) for number in range(HUBS))
    with BackgroundServer(NamespaceConfig(name="out", event_hubs=hubs), tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"h{number}" for number in range(HUBS))


class Hub:
    def __init__(self, server: BackgroundServer, name: str) -> None:
        self.server = server
        self.name = name

    def opened(self, mark: Mark | None = None, *, drop: bool = False, **settings: Any) -> HubOutput:
        definition = EventHubOutput(
            type="eventhub", connection_string=self.server.connection_string, event_hub=self.name, **settings
        )
        return HubOutput(definition, OutputOpening(Identity("job", "out", "journal"), mark, drop=drop))

    def events(self) -> list[list[Any]]:
        return [events_of(self.server.connection_string, self.name, partition) for partition in "012"]

    def numbers(self) -> list[list[int]]:
        return [[json.loads(body)["n"] for body, _, _ in partition] for partition in self.events()]


@pytest.fixture
def hub(server: BackgroundServer, names: Iterator[str]) -> Hub:
    return Hub(server, next(names))


def rows(*numbers: int, large: Sequence[int] = ()) -> ResultRows:
    keys = [None if number % 7 == 0 else f"k{number % 5}" for number in numbers]
    values = ["x" * 2_000_000 if number in large else number / 2 for number in numbers]
    return result_columns({"n": list(numbers), "k": keys, "v": values})


Works = Sequence[Callable[[], Any]]


def on_executors(works: Works) -> list[Any]:
    return [pickle.loads(pickle.dumps(work))() for work in works]


def encoded(
    output: HubOutput, folder: Path, *runs: ResultRows, run: Callable[[Works], list[Any]] = on_executors
) -> EncodedRows:
    pieces = []
    for number, some in enumerate(runs):
        encoder = pickle.loads(pickle.dumps(output.encoder()))
        content = encoder(some)
        path = folder / f"{number}.part"
        path.write_bytes(b"before" + content)
        pieces.append(
            EncodedPiece(len(content), path, 6) if number % 2 else EncodedPiece(len(content), content=content)
        )
    return EncodedRows("out", sum(map(len, runs)), 0, tuple(pieces), Elsewhere(2, run))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SETTINGS)
def test_steps_of_the_driver_and_of_executors_follow_each_other(
    server: BackgroundServer, names: Iterator[str], tmp_path: Path, kind: str
) -> None:
    runs = [rows(*range(10)), rows(10, 11), rows(*range(12, 30), large=[15, 20, 21]), rows(*range(30, 40))]
    whole, mixed = Hub(server, next(names)), Hub(server, next(names))
    output = whole.opened(drop=True, **SETTINGS[kind])
    for run in runs * 3:
        output.write(run)
    expected = output.commit()
    output.close()
    other = mixed.opened(drop=True, **SETTINGS[kind])
    other.write(runs[0])
    other.write_encoded(encoded(other, tmp_path, *runs[1:], runs[0]))
    other.write(runs[1])
    other.commit()
    other.write_encoded(encoded(other, tmp_path, *runs[2:]))
    assert {row.row for row in other.drain_rejected_rows()} == {15, 20, 21, 55, 60, 61}
    mark = other.commit()
    other.close()
    other = mixed.opened(mark, drop=True, **SETTINGS[kind])
    other.write_encoded(encoded(other, tmp_path, *runs))
    assert other.commit() == expected
    other.close()
    assert mixed.events() == whole.events()
    assert (expected["rows"], expected["dropped"]) == (120, 9)


def test_a_row_that_is_no_event_ends_a_job_that_keeps_every_row(hub: Hub, tmp_path: Path) -> None:
    output = hub.opened()
    with pytest.raises(OutputError, match=r"is larger than .* \(.*RecordExceededSizeLimit\)"):
        output.write_encoded(encoded(output, tmp_path, rows(1, 2), rows(3, large=[3])))
    output.close()


def test_two_attempts_at_the_same_time_publish_each_event_once(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a copy of a slow task does, or what remains of an executor that is taken for lost."""
    monkeypatch.setattr("tidegate.connectors.outputs.messaging.hub_events._BUFFER_BYTES", 500)

    def twice(works: Works) -> list[Any]:
        found: list[Any] = []
        threads = [threading.Thread(target=lambda: found.extend(on_executors(works))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [None] * 6
        return found[:2]

    output = hub.opened()
    output.write_encoded(encoded(output, tmp_path, rows(*range(150)), rows(*range(150, 300)), run=twice))
    output.commit()
    output.write_encoded(encoded(output, tmp_path, rows(*range(300, 330))))
    output.commit()
    output.close()
    assert hub.numbers() == [list(range(partition, 330, 3)) for partition in range(3)]


def test_a_publication_that_dies_is_continued(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.connectors.outputs.messaging.hub_events._BUFFER_BYTES", 500)
    publish = Producer.publish_to_partitions
    sent = 0

    def die_once(self: Producer, events: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == 4:
            raise KeyboardInterrupt
        publish(self, events)

    def again(works: Works) -> list[Any]:
        with pytest.raises(KeyboardInterrupt):
            on_executors(works)
        return on_executors(works)

    monkeypatch.setattr(Producer, "publish_to_partitions", die_once)
    output = hub.opened()
    output.write_encoded(encoded(output, tmp_path, rows(*range(90)), run=again))
    output.commit()
    output.close()
    assert sent > 4
    assert hub.numbers() == [list(range(partition, 90, 3)) for partition in range(3)]


def test_executors_of_a_run_that_has_been_replaced_publish_nothing(hub: Hub, tmp_path: Path) -> None:
    late: list[HubPublication] = []

    def killed(works: Works) -> list[Any]:
        late.extend(pickle.loads(pickle.dumps(list(works))))
        raise KeyboardInterrupt

    output = hub.opened()
    mark = output.commit()
    output.write_encoded(encoded(output, tmp_path, rows(1, 2, 3), run=killed))
    with pytest.raises(KeyboardInterrupt):
        output.commit()
    again = hub.opened(mark)
    answers = on_executors(late)
    assert all(
        isinstance(answer, PublicationFailure) and "has the newer epoch 2" in answer.message for answer in answers
    )
    assert hub.numbers() == [[], [], []]
    again.write_encoded(encoded(again, tmp_path, rows(1, 2, 3)))
    again.commit()
    assert hub.numbers() == [[1], [2], [3]]
    output._elsewhere = Elsewhere(1, on_executors)
    with pytest.raises(OutputError, match="has the newer epoch 2"):
        output.commit()
    again.close()
    output.close()


def test_the_driver_publishes_where_executors_cannot(hub: Hub, tmp_path: Path) -> None:
    def lost(works: Works) -> list[Any]:
        on_executors(works[:1])
        raise UnavailableError("an executor was lost")

    output = hub.opened()
    output.write_encoded(encoded(output, tmp_path, rows(*range(9)), run=lost))
    assert output.commit()["rows"] == 9
    output.close()
    assert hub.numbers() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_rows_that_the_hub_has_come_through_the_driver(hub: Hub, tmp_path: Path) -> None:
    output = hub.opened()
    before = output.commit()
    output.write_encoded(encoded(output, tmp_path, rows(*range(6))))
    output.commit()
    output.close()
    again = hub.opened(before)
    assert again.encoder() is None
    again.write(rows(*range(7)))
    again.write_encoded(encoded(again, tmp_path, rows(7, 8)))
    assert again.commit()["rows"] == 9
    again.close()
    assert hub.numbers() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_a_hub_that_does_not_number_events_gets_them_from_the_driver(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = Producer.partitions_properties

    def without_lower_bound(self: Producer, partitions: Any) -> Any:
        return {name: replace(one, arrival_lower_bound_ms=None) for name, one in properties(self, partitions).items()}

    monkeypatch.setattr(Producer, "partitions_properties", without_lower_bound)
    output = hub.opened()
    assert output.encoder() is None
    output.close()


def test_what_travels_shows_no_key(hub: Hub, tmp_path: Path) -> None:
    secret = hub.server.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    shown: list[str] = []

    def look(works: Works) -> list[Any]:
        shown.extend(map(repr, works))
        return on_executors(works)

    output = hub.opened()
    shown.append(repr(output.encoder()))
    output.write_encoded(encoded(output, tmp_path, rows(1), run=look))
    output.commit()
    output.close()
    assert secret
    assert not [text for text in shown if secret in text]


SECTIONS = """
[outputs.counted]
type = "eventhub"
connection_string = "{address}"
event_hub = "{counted}"
[outputs.large]
type = "eventhub"
connection_string = "{address}"
event_hub = "{large}"
partition_key = "k"
property_columns = ["v"]
"""


@pytest.mark.slow
def test_a_job_that_dies_before_it_notes_its_commits_has_the_same_events(
    server: BackgroundServer, names: Iterator[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hubs = {folder: (next(names), next(names)) for folder in ("whole", "killed")}
    paths = {}
    for folder, (counted, large) in hubs.items():
        sections = SECTIONS.replace("{address}", server.connection_string).replace("{counted}", counted)
        paths[folder] = write_job(tmp_path / folder, 600, outputs=sections.replace("{large}", large))
    run_here(paths["whole"], 90)
    run_with_deaths(paths["killed"], monkeypatch, "eventhub")
    for whole, killed in zip(hubs["whole"], hubs["killed"], strict=True):
        assert any(Hub(server, whole).events())
        assert Hub(server, killed).events() == Hub(server, whole).events()
