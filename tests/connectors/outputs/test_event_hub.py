"""An event hub as an output: where rows go, what they carry, and that each is there once, on ours and on others."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pydantic import ValidationError

from tests.connectors.outputs.kit import Destination, OutputContract
from tests.job.rows import result_columns, result_rows
from tests.job.test_kills import events_of
from tidegate.client import ConnectionString, Details, HubClient
from tidegate.client.event import decode
from tidegate.client.producer import Producer
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import Identity, Mark, Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.messaging.event_hub import EventHubOutput, HubOutput
from tidegate.connectors.outputs.shape import OutputColumn
from tidegate.engine.values.vectors import Datetime
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.hub.placement import partition_for_key
from tidegate.ordering import parse_time
from tidegate.server import BackgroundServer
from tidegate.sql.plan.nodes import Type

HUBS = 26


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundServer]:
    hubs = tuple(EventHubConfig(name=f"h{number}", partition_count=3) for number in range(HUBS))
    with BackgroundServer(NamespaceConfig(name="out", event_hubs=hubs), tmp_path_factory.mktemp("hub")) as running:
        yield running


class Hub:
    def __init__(self, server: BackgroundServer, name: str) -> None:
        self.server = server
        self.name = name

    def opened(self, mark: Mark | None = None, *, drop: bool = False, **settings: Any) -> Output:
        definition = EventHubOutput(
            type="eventhub", connection_string=self.server.connection_string, event_hub=self.name, **settings
        )
        return open_output(definition, OutputOpening(Identity("job", "out", "journal"), mark, drop=drop))

    def events(self) -> list[list[tuple[bytes, dict[str, str], str | None]]]:
        return [events_of(self.server.connection_string, self.name, partition) for partition in "012"]

    def numbers(self) -> list[list[int]]:
        return [[json.loads(body)["n"] for body, _, _ in partition] for partition in self.events()]


@pytest.fixture(params=["ours", "another's"])
def hub(
    request: pytest.FixtureRequest, server: BackgroundServer, names: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> Hub:
    if request.param == "another's":
        properties = Producer.partitions_properties

        def without_lower_bound(self: Producer, partitions: Any) -> Any:
            return {
                name: replace(one, arrival_lower_bound_ms=None) for name, one in properties(self, partitions).items()
            }

        monkeypatch.setattr(Producer, "partitions_properties", without_lower_bound)
    return Hub(server, next(names))


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"h{number}" for number in range(HUBS))


def rows(first: int, count: int) -> Any:
    return result_columns({"n": list(range(first, first + count))})


def test_rows_go_round_and_are_there_once(hub: Hub) -> None:
    output = hub.opened()
    marks = [output.commit()]
    for first in (0, 5, 12):
        output.write(rows(first, 7 if first == 5 else 5))
        marks.append(output.commit())
    output.close()
    whole = [list(range(partition, 17, 3)) for partition in range(3)]
    assert hub.numbers() == whole
    for mark in marks:
        # The journal is behind the hub, as after a kill between the two.
        again = hub.opened(mark)
        again.write(rows(mark["rows"], 17 - mark["rows"]))
        assert again.commit()["sent"] == {"0": 6, "1": 6, "2": 5}
        again.close()
        assert hub.numbers() == whole
    again = hub.opened(marks[1])
    again.write(rows(5, 15))
    again.commit()
    assert hub.numbers() == [list(range(partition, 20, 3)) for partition in range(3)]


def test_columns_become_key_and_properties(hub: Hub) -> None:
    noon = Datetime(parse_time("2026-01-01T12:00:00.1234567Z"))
    output = hub.opened(partition_key="K", property_columns=("p", "t"))
    output.write(
        result_rows([{"n": 1, "k": "a", "p": 1.5, "t": noon}, {"n": 2, "k": None}, {"n": 3, "k": 7, "p": True}])
    )
    output.commit()
    found = [(partition, event) for partition, events in enumerate(hub.events()) for event in events]
    by_number = {json.loads(event[0])["n"]: (partition, event) for partition, event in found}
    own = {"tidegate-output", "tidegate-number"}
    partition, (body, properties, key) = by_number[1]
    assert json.loads(body) == {"n": 1, "k": "a"}
    assert {name: value for name, value in properties.items() if name not in own} == {
        "p": "1.5",
        "t": "2026-01-01T12:00:00.1234567Z",
    }
    assert (partition, key) == (partition_for_key("a", 3), "a")
    assert (by_number[2][0], by_number[2][1][2]) == (1, None)
    assert (by_number[3][0], by_number[3][1][2]) == (partition_for_key("7", 3), "7")


def test_what_an_event_cannot_hold(hub: Hub) -> None:
    output = hub.opened(property_columns=("p",), drop=True)
    output.write(result_rows([{"n": "x" * 1_100_000}, {"n": 1, "p": {"a": 1}}, {"n": 2, "p": 1}]))
    assert output.commit()["dropped"] == 2
    kinds = [refusal.kind.partition(".")[2] for refusal in output.drain_rejected_rows()]
    assert kinds == ["RecordExceededSizeLimit", "TypeConversionError"]
    assert [number for partition in hub.numbers() for number in partition] == [2]
    with pytest.raises(OutputError, match="larger than the"):
        hub.opened({**output.commit()}).write(result_rows([{"n": "x" * 1_100_000}]))


def test_a_connection_that_breaks_leaves_no_gap_and_no_repetition(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    output = hub.opened()
    output.write(rows(0, 5))
    output.commit()
    publish = Producer.publish_to_partitions

    def publish_and_break(self: Producer, events: Any) -> None:
        publish(self, {"1": events["1"]})
        self._socket.close()
        publish(self, {"0": events["0"]})

    monkeypatch.setattr(Producer, "publish_to_partitions", publish_and_break)
    output.write(rows(5, 6))
    with pytest.raises(OutputUnavailableError):
        output.commit()
    monkeypatch.setattr(Producer, "publish_to_partitions", publish)
    output.commit()
    output.write(rows(11, 1))
    output.commit()
    assert hub.numbers() == [list(range(partition, 12, 3)) for partition in range(3)]


def test_a_connection_that_the_hub_has_closed_while_it_was_idle_is_replaced(hub: Hub) -> None:
    output = hub.opened()
    assert isinstance(output, HubOutput)
    for first in (0, 3):
        output.write(rows(first, 3))
        output.commit()
        assert output._producer is not None
        output._producer._socket.shutdown(socket.SHUT_RDWR)
    assert hub.numbers() == [[0, 3], [1, 4], [2, 5]]


def test_an_earlier_run_is_shut_out_of_a_hub_of_ours(server: BackgroundServer, names: Iterator[str]) -> None:
    hub = Hub(server, next(names))
    earlier = hub.opened()
    mark = earlier.commit()
    later = hub.opened(mark)
    earlier.write(rows(0, 3))
    with pytest.raises(OutputError, match="another run of this job, on a copy of its state folder"):
        earlier.commit()
    later.write(rows(0, 3))
    later.commit()
    assert hub.numbers() == [[0], [1], [2]]


def test_a_hub_that_was_made_anew_has_lost_results(server: BackgroundServer, names: Iterator[str]) -> None:
    hub = Hub(server, next(names))
    mark = {"type": "eventhub", "rows": 9, "dropped": 0, "sent": {"0": 3, "1": 3, "2": 3}, "ends": {}}
    with pytest.raises(OutputError, match=r"partition 0 of .* has 0 events of output 'out', but the journal"):
        hub.opened(mark)


def test_a_column_that_the_query_does_not_have(server: BackgroundServer) -> None:
    definition = EventHubOutput(
        type="eventhub", connection_string=server.connection_string, event_hub="h0", partition_key="device"
    )
    shape = (OutputColumn("n", Type.ANY),)
    with pytest.raises(OutputError, match="the query has no column 'device'"):
        open_output(definition, OutputOpening(Identity("job", "out", "journal"), shape=shape))


def test_a_hub_that_is_not_there_is_told_without_the_key(tmp_path: Path) -> None:
    text = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=sEcReT;UseDevelopmentEmulator=true"
    definition = EventHubOutput(type="eventhub", connection_string=text, event_hub="h")
    with pytest.raises(OutputUnavailableError, match=r"127\.0\.0\.1:1") as caught:
        open_output(definition, OutputOpening(Identity("job", "out", "journal")))
    assert "sEcReT" not in str(caught.value)


def test_formats_and_system_properties(server: BackgroundServer, names: Iterator[str]) -> None:
    hub = Hub(server, next(names))
    mark: Mark | None = None
    expected = {
        "json": ({"json_format": "array"}, b'[{"n":1,"t":[1]}]'),
        "csv": ({"csv_delimiter": "tab"}, b"n\tt\r\n1\t[1]\r\n"),
        "avro": ({}, None),
    }
    for number, (format_, (settings, _)) in enumerate(expected.items()):
        output = hub.opened(mark, format=format_, system_property_columns={"messageid": "id", "Label": "l"}, **settings)
        output.write(result_columns({"n": [1], "t": [[1]], "id": [number], "l": ["x"]}))
        mark = output.commit()
        output.close()
    found = [(body, details) for partition in "012" for body, details in _decoded(server, hub.name, partition)]
    assert [details.system_properties["message-id"] for _, details in found] == ["0", "1", "2"]
    assert {details.system_properties["subject"] for _, details in found} == {"x"}
    assert [body for body, _ in found[:2]] == [body for _, body in list(expected.values())[:2]]
    assert list(fastavro.reader(io.BytesIO(found[2][0]))) == [{"n": 1, "t": [1]}]


def _decoded(server: BackgroundServer, hub: str, partition: str) -> list[tuple[bytes, Details]]:
    client = HubClient(ConnectionString.parse(server.connection_string, hub))
    end = client.partition_properties(partition).end
    found = [decode(one.payload) for some in client.read("$Default", partition, 0, end, 100) for one in some]
    client.close()
    return found


def test_a_system_property_that_does_not_exist() -> None:
    with pytest.raises(ValidationError, match="there is no system property 'Colour'; expected one of MessageId"):
        EventHubOutput(type="eventhub", connection_string="x", system_property_columns={"Colour": "c"})


class _Destination:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def open_at(self, mark: Mark | None) -> Output:
        return self._hub.opened(mark)

    def numbers(self) -> list[int]:
        return sorted(number for partition in self._hub.numbers() for number in partition)


class TestContract(OutputContract):
    knows_its_rows = False  # a hub holds events of many publishers

    @pytest.fixture
    def destination(self, hub: Hub) -> Destination:
        return _Destination(hub)
