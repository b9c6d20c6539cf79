"""An event hub as a log: bodies in other formats, and the messages of devices."""

from __future__ import annotations

import gzip
import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.inputs.kit import Origin, StreamContract
from tests.job.logs import TravellingTasks, prepared
from tests.log.support import InlineCommitter, SetClock, append, stored
from tidegate.amqp.encoding.types import Symbol, Timestamp
from tidegate.amqp.messages import Message, Properties, encode_message
from tidegate.client import ConnectionString, HubClient, Publisher
from tidegate.connectors.inputs import hub_log
from tidegate.connectors.inputs.event_hub import EventHubInput, IotHubInput
from tidegate.connectors.inputs.hub_log import HubLog, HubRange, Segments
from tidegate.connectors.model.errors import InputError, InputUnavailableError
from tidegate.connectors.model.events import InputLog, PartitionEnd
from tidegate.engine import DEFAULT_LIMITS, JSON, Format
from tidegate.engine.decoding.metadata import enqueued_by_device
from tidegate.hub import EventHubConfig, NamespaceConfig
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.hub.partition import MAX_READERS
from tidegate.job.runtime.step import Stepper
from tidegate.log import PartitionLog
from tidegate.ordering import END_OF_TIME, TICKS_PER_MILLISECOND, Policy
from tidegate.server import BackgroundServer

START_MS = 1_754_103_840_000
CONNECTION = "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k;EntityPath=eh"


class _Hub:
    """One partition, read where it is."""

    def __init__(self, folder: Path, body_format: Format = JSON, *, of_devices: bool = False) -> None:
        self._folder = folder
        self.clock = SetClock(START_MS)
        self._log = PartitionLog.open(folder, clock=self.clock, committer=InlineCommitter())
        (folder / "log-id").write_text("here")
        self._settings = (body_format, of_devices)

    def publish(self, *bodies: bytes, **parts: Any) -> None:
        append(self._log, [encode_message(Message(body_kind="data", body=[body], **parts)) for body in bodies])

    def offsets(self) -> list[str]:
        """What clients are told."""
        return [str(offset) for _, offset, _, _ in stored(self._log)]

    def ends(self) -> dict[str, PartitionEnd]:
        return {"0": PartitionEnd(0, self._log.next_sequence_number, END_OF_TIME, complete=True)}

    def first_at(self, partition: str, arrival: int) -> int:
        return self._log.sequence_at_time(-(-arrival // TICKS_PER_MILLISECOND), inclusive=True)

    def range(self, partition: str, start: int, end: int) -> HubRange:
        segments = Segments(str(self._folder), "here")
        return HubRange(start, end, partition, "g", ConnectionString.parse(CONNECTION, None), segments, *self._settings)

    def close(self) -> None:
        self._log.close()


def rows_of(hub: _Hub, sql: str) -> tuple[list[dict[str, Any]], Any]:
    program = prepared(sql)
    stepper = Stepper(program, Policy.seconds(), {"i": hub}, TravellingTasks(program, Policy.seconds()))
    step = stepper.step()
    hub.close()
    return [json.loads(line) for rows in step.rows for line in rows.to_json_lines().splitlines()], step


def test_bodies_are_read_in_the_format_of_the_input(tmp_path: Path) -> None:
    hub = _Hub(tmp_path, Format("csv", ";", compression="gzip"))
    hub.publish(gzip.compress(b"k;v\na;1\nb;2\n"))
    hub.publish(b"k;v\na;3\n")
    hub.publish(gzip.compress(b"k;K\na;4\n"))
    rows, step = rows_of(
        hub, "SELECT k, CAST(v AS bigint) AS v, GetMetadataPropertyValue(i, 'EventId') AS id INTO o FROM i"
    )
    assert [(row["k"], row["v"]) for row in rows] == [("a", 1), ("b", 2)]
    assert len({row["id"] for row in rows}) == 2
    assert step.counters["Input Deserialization Errors"] == 2
    assert {kind for kind, _, _ in step.data_error_counts} == {
        "InputDeserializerError.InvalidCompressionType",
        "InputDeserializerError.InvalidHeader",
    }


def test_offsets_are_those_that_clients_are_told(tmp_path: Path) -> None:
    hub = _Hub(tmp_path)
    hub.publish(b'{"n":0}', b'{"n":1}', b'{"n":2}')
    hub.publish(b'{"n":3}')
    told = hub.offsets()
    (events,) = hub.range("0", 1, 4).read_events(100)
    assert events.offsets == told[1:]
    rows, _ = rows_of(hub, "SELECT n, GetMetadataPropertyValue(i, 'EventHub.Offset') AS told INTO o FROM i")
    assert [(row["n"], row["told"]) for row in rows] == list(enumerate(told))


def device(number: int, enqueued_ms: int | None) -> dict[str, Any]:
    annotations: dict[Any, Any] = {
        Symbol("iothub-connection-device-id"): f"device{number}",
        Symbol("iothub-connection-auth-generation-id"): "638",
    }
    if enqueued_ms is not None:
        annotations[Symbol("iothub-enqueuedtime")] = Timestamp(enqueued_ms)
    return {"message_annotations": annotations, "properties": Properties(message_id=f"m{number}", correlation_id="c")}


def test_a_message_of_a_device_has_arrived_when_the_iot_hub_took_it(tmp_path: Path) -> None:
    hub = _Hub(tmp_path, of_devices=True)
    for number, before_ms in enumerate((1_500, 1_000, None, 5_000)):
        hub.clock.time_ms += 1_000
        hub.publish(
            b'{"v":%d}' % number, **device(number, None if before_ms is None else hub.clock.time_ms - before_ms)
        )
    rows, _ = rows_of(
        hub,
        "SELECT v, System.Timestamp() AS ts, GetMetadataPropertyValue(i, 'IoTHub.ConnectionDeviceId') AS device, "
        "GetMetadataPropertyValue(i, 'IoTHub.EnqueuedTime') AS enqueued, GetMetadataPropertyValue(i, 'IoTHub') AS hub "
        "INTO o FROM i",
    )
    # The last one says that it arrived before those that came before it: the clock does not go back.
    assert [row["ts"][14:22] for row in rows] == ["03:59.50", "04:01.00", "04:03.00", "04:03.00"]
    # Of two events with the same time, the one that arrived first comes first.
    assert [row["device"] for row in rows] == ["device0", "device1", "device3", "device2"]
    assert rows[3]["enqueued"] is None
    assert rows[0]["hub"]["MessageId"] == "m0"
    assert rows[0]["hub"]["CorrelationId"] == "c"
    assert rows[0]["hub"]["ConnectionDeviceGenerationId"] == "638"
    assert rows[0]["hub"]["EnqueuedTime"] == rows[0]["enqueued"] == rows[0]["ts"]


def test_a_hub_without_devices_has_no_iot_metadata(tmp_path: Path) -> None:
    hub = _Hub(tmp_path)
    hub.publish(b"{}", application_properties={"Colour": "red"})
    rows, _ = rows_of(
        hub,
        "SELECT GetMetadataPropertyValue(i, 'IoTHub') AS hub, "
        "GetMetadataPropertyValue(i, '[User].[colour]') AS colour, GetMetadataPropertyValue(i, '[User]') AS every, "
        "GetMetadataPropertyValue(i, 'BlobName') AS blob INTO o FROM i",
    )
    assert rows == [{"hub": None, "colour": "red", "every": {"Colour": "red"}, "blob": None}]


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("1754103840000", START_MS * TICKS_PER_MILLISECOND),
        ("2025-08-02T03:04:00.0000001Z", START_MS * TICKS_PER_MILLISECOND + 1),
        ("9" * 40, None),
        ("soon", None),
        ("", None),
        ("²", None),
    ],
)
def test_the_time_of_an_iot_hub_is_milliseconds_or_text(text: str, ticks: int | None) -> None:
    assert enqueued_by_device({"iothub-enqueuedtime": text}) == ticks
    assert enqueued_by_device({}) is None


def test_settings_of_a_job_file() -> None:
    settings = {"connection_string": CONNECTION, "format": "csv", "delimiter": "|", "compression": "deflate"}
    assert EventHubInput.model_validate({"type": "eventhub", **settings}).body_format(DEFAULT_LIMITS) == Format(
        "csv", "|", compression="deflate"
    )
    assert (
        IotHubInput.model_validate({"type": "iothub", "connection_string": CONNECTION}).body_format(DEFAULT_LIMITS)
        == JSON
    )


class TestContract(StreamContract):
    @pytest.fixture(params=[False, True], ids=["eventhub", "iothub"])
    def origin(self, request: pytest.FixtureRequest, tmp_path: Path) -> Origin:
        with closing(_Hub(tmp_path)) as hub:
            for number in range(5):
                hub.publish(b"%d" % number, **device(number, hub.clock.time_ms))
                hub.clock.time_ms += 700 * (number % 2)
        return _Stored(tmp_path, of_devices=request.param)


class _Stored:
    def __init__(self, folder: Path, *, of_devices: bool) -> None:
        self._folder = folder
        self._of_devices = of_devices

    def open_log(self) -> InputLog:
        return _Hub(self._folder, of_devices=self._of_devices)


@pytest.mark.slow
def test_jobs_on_the_hub_s_machine_take_none_of_a_group_s_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of jobs can start, with all readers of their consumer group there; over AMQP a job has to wait."""
    hubs = (EventHubConfig(name="eh", partition_count=1),)
    with BackgroundServer(NamespaceConfig(name="ns", event_hubs=hubs), tmp_path) as server, ExitStack() as opened:
        connection = ConnectionString.parse(server.connection_string, "eh")
        publisher = opened.enter_context(closing(Publisher(connection)))
        publisher.publish([b"1"], partition="0")

        def reader() -> HubClient:
            client = opened.enter_context(closing(HubClient(connection)))
            opened.enter_context(client._receiver("$Default", "0", "amqp.annotation.x-opt-offset > '@latest'"))
            return client

        for _ in range(MAX_READERS):
            reader()
        for _ in range(11):
            log = opened.enter_context(closing(HubLog.connect(server.connection_string, "eh", "$Default")))
            end = log.ends()["0"]
            assert (log.first_at("0", 0), log.first_at("0", END_OF_TIME // 2)) == (0, 1)
            assert log.first_at_offset("0", "0", inclusive=True) == 0
            assert log.first_at_offset("0", "99999", inclusive=False) == 1
            assert [len(events.bodies) for events in log.range("0", end.begin, end.end).read_events(10)] == [1]
        with pytest.raises(InputError, match="nowhere"):
            HubLog.connect(server.connection_string, "eh", "nowhere").first_at("0", 0)
        with pytest.raises(InputError, match="nowhere"):
            HubLog.connect(server.connection_string, "eh", "nowhere").ends()
        afar = opened.enter_context(
            closing(HubLog.connect(server.connection_string, "eh", "$Default", use_segments=False, patient=False))
        )
        afar.ends()
        monkeypatch.setattr(hub_log, "_READ_AGAIN", 1)
        with pytest.raises(InputUnavailableError, match="at most 5 readers"):
            list(afar.range("0", 0, 1).read_events(10))


@pytest.mark.slow
def test_a_key_without_the_right_to_listen_reads_nothing_on_the_hub_s_machine_either(tmp_path: Path) -> None:
    hubs = (EventHubConfig(name="eh", partition_count=1),)
    with BackgroundServer(NamespaceConfig(name="ns", event_hubs=hubs), tmp_path) as server, ExitStack() as opened:
        for right in (Right.SEND, Right.LISTEN):
            server.server.namespace.management.set_access_rule(
                AccessRule(right.value, frozenset({right}), "a2V5", "b3RoZXI=")
            )

        def connection(right: Right) -> str:
            host = server.connection_string.partition(";")[0]
            named = f"SharedAccessKeyName={right.value};SharedAccessKey=a2V5"
            return f"{host};{named};UseDevelopmentEmulator=true;EntityPath=eh"

        publisher = opened.enter_context(closing(Publisher(ConnectionString.parse(connection(Right.SEND), None))))
        publisher.publish([b"1"], partition="0")
        found = {}
        for right in (Right.SEND, Right.LISTEN):
            log = opened.enter_context(closing(HubLog.connect(connection(right), None, "$Default")))
            end = log.ends()["0"]
            found[right] = log.range("0", end.begin, end.end)
        assert [len(events.bodies) for events in found[Right.LISTEN].read_events(10)] == [1]
        with pytest.raises(InputError, match=r"Listen on eh.* needs a token that covers it"):
            list(found[Right.SEND].read_events(10))


@pytest.mark.slow
@pytest.mark.parametrize("use_segments", [True, False])
def test_events_that_were_deleted_on_request_are_gone_also_from_within_a_segment(
    tmp_path: Path, use_segments: bool
) -> None:
    hubs = (EventHubConfig(name="eh", partition_count=1),)
    with BackgroundServer(NamespaceConfig(name="ns", event_hubs=hubs), tmp_path) as server, ExitStack() as opened:
        publisher = opened.enter_context(closing(Publisher(ConnectionString.parse(server.connection_string, "eh"))))
        publisher.publish([b"0", b"1", b"2"], partition="0")
        log = opened.enter_context(
            closing(HubLog.connect(server.connection_string, "eh", "$Default", use_segments=use_segments))
        )
        end = log.ends()["0"]
        server.server.namespace.event_hub("eh").partition("0").log.delete_before(2)
        for stop in (2, 3):
            with pytest.raises(InputError, match="event 0 no longer exists"):
                list(log.range("0", end.begin, stop).read_events(10))
        assert [events.bodies for events in log.range("0", 2, 3).read_events(10)] == [[b"2"]]
