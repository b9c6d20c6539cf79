"""A job over the files of Capture gives what it gives over the log they were written from."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.job.logs import TravellingTasks, prepared
from tests.log.support import InlineCommitter, SetClock, append
from tests.profiles import example_count
from tidegate.amqp.encoding.types import Byte, Char, Decimal, Float, Int, Symbol, Timestamp, Ulong
from tidegate.amqp.messages import Message, Properties, encode_message
from tidegate.client import ConnectionString
from tidegate.connectors.inputs.files import FilesInput, FilesLog
from tidegate.connectors.inputs.hub_log import HubRange, Segments
from tidegate.connectors.inputs.kinds import LogOpening
from tidegate.connectors.model.captured import captured_file
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import PartitionEnd
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.partition_capture import CaptureWriter
from tidegate.hub.capture.store import Folder
from tidegate.job.runtime.step import Progress, Stepper, StepSettings
from tidegate.log import PartitionLog
from tidegate.ordering import END_OF_TIME, TICKS_PER_MILLISECOND, Policy, format_time

# Each example writes files and waits for the disk.
FEWER = example_count(20)
START_MS = 1_754_103_840_000
QUERY = """
SELECT k, COUNT(*) AS n, SUM(v) AS total, System.Timestamp() AS ts INTO counted FROM i TIMESTAMP BY t
GROUP BY k, TumblingWindow(second, 20)
SELECT v, EventEnqueuedUtcTime AS arrived, PartitionId AS p, GetMetadataPropertyValue(i, 'EventHub') AS hub,
  GetMetadataPropertyValue(i, '[User].[colour]') AS colour, GetMetadataPropertyValue(i, 'EventId') AS id,
  GetMetadataPropertyValue(i, 'User') AS every, GetType(GetMetadataPropertyValue(i, '[User].[colour]')) AS kind
INTO rows FROM i
"""


SENT: list[dict[str, Any]] = [
    {"colour": "red", "n": Int(1), "flag": True, "none": None},
    {"colour": Timestamp(START_MS), "id": UUID(int=5), "real": Float(0.5), "large": Ulong(2**64 - 1)},
    {"colour": False, "raw": b"\xff", "text": b"plain", "sign": Symbol("s"), "character": Char("c")},
    {"colour": 2**53 + 1, "decimal": Decimal(bytes(16)), "double": 1e300, "é": Byte(-1)},
]


class _Hub:
    """Partitions written by hand, read where they are, and captured."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.folder = folder
        self.clock = SetClock(START_MS)
        self.logs = {
            str(number): PartitionLog.open(
                folder / str(number), clock=self.clock, committer=InlineCommitter(), segment_bytes=4096
            )
            for number in range(partitions)
        }
        for number in self.logs:
            (folder / number / "log-id").write_text(number)
        self.writers = {
            number: CaptureWriter(
                log,
                {"Namespace": "ns", "EventHub": "eh", "PartitionId": number},
                CaptureDescription(destination="unused").model_copy(
                    update={"interval_in_seconds": 60, "size_limit_in_bytes": 3000}
                ),
                Folder(folder / "archive"),
            )
            for number, log in self.logs.items()
        }

    def publish(self, partition: str, message: Message) -> None:
        append(self.logs[partition], [encode_message(message)])

    def capture(self) -> None:
        self.clock.time_ms += 120_000
        for writer in self.writers.values():
            while writer.step(self.clock.time_ms):
                pass
            writer.close()

    # as an InputLog

    def ends(self) -> dict[str, PartitionEnd]:
        return {
            number: PartitionEnd(log.begin_sequence_number, log.next_sequence_number, END_OF_TIME, complete=True)
            for number, log in self.logs.items()
        }

    def first_at(self, partition: str, arrival: int) -> int:
        return self.logs[partition].sequence_at_time(-(-arrival // TICKS_PER_MILLISECOND), inclusive=True)

    def range(self, partition: str, start: int, end: int) -> HubRange:
        connection = ConnectionString.parse(
            "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k;EntityPath=eh", None
        )
        return HubRange(start, end, partition, "g", connection, Segments(str(self.folder / partition), partition))

    def close(self) -> None:
        for log in self.logs.values():
            log.close()


def captured_log(archive: Path, **settings: Any) -> FilesLog:
    definition = {"type": "files", "path": str(archive), "format": "capture", "watch": False, **settings}
    return FilesLog(FilesInput.model_validate(definition), LogOpening())


def lines_of(log: Any, start: int | None = None) -> dict[str, bytes]:
    program, policy = prepared(QUERY), Policy.seconds(late=20, out_of_order=2)
    resume = None if start is None else Progress(start)
    stepper = Stepper(program, policy, {"i": log}, TravellingTasks(program, policy), resume, StepSettings(7))
    out: dict[str, bytes] = {}
    complete = False
    while not complete:
        step = stepper.step()
        complete = step.complete
        for rows in step.rows:
            out[rows.output] = out.get(rows.output, b"") + rows.to_json_lines()
    return out


def body(arrival_ms: int, lateness_ms: int, number: int) -> bytes:
    ticks = (arrival_ms - lateness_ms) * TICKS_PER_MILLISECOND
    return json.dumps({"t": format_time(ticks), "k": "ab"[number % 2], "v": number}).encode()


events = st.lists(
    st.tuples(
        st.sampled_from(["0", "1", "2"]),
        st.sampled_from([0, 1, 400, 9_000, 61_000]),
        st.sampled_from([0, 500, 3_000, 25_000, -1000]),
        st.sampled_from(["plain", "key", "properties", "text", "broken"]),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=FEWER)
@given(events)
def test_a_job_over_captured_files_gives_the_bytes_it_gave_over_the_hub(
    tmp_path_factory: pytest.TempPathFactory, published: list[tuple[str, int, int, str]]
) -> None:
    hub = _Hub(tmp_path_factory.mktemp("hub"), 3)
    for number, (partition, pause_ms, lateness_ms, kind) in enumerate(published):
        hub.clock.time_ms += pause_ms
        message = Message(body_kind="data", body=[body(hub.clock.time_ms, lateness_ms, number)])
        if kind == "key":
            message.message_annotations = {Symbol("x-opt-partition-key"): "k", Symbol("x-opt-publisher"): "p"}
        elif kind == "properties":
            message.application_properties = SENT[number % len(SENT)]
            message.properties = Properties(message_id="m", content_type="application/json")
        elif kind == "text":
            message = Message(body_kind="value", body=body(hub.clock.time_ms, lateness_ms, number).decode())
        elif kind == "broken":
            message = Message(body_kind="data", body=[b"{"])
        hub.publish(partition, message)
    hub.capture()
    archive = hub.folder / "archive" / "ns" / "eh"
    live = lines_of(hub)
    captured = captured_log(archive)
    assert {name: end.end for name, end in captured.ends().items()} == {
        name: end.end for name, end in hub.ends().items()
    }
    assert lines_of(captured) == live
    middle = (START_MS + 30_000) * TICKS_PER_MILLISECOND
    assert lines_of(captured_log(archive), middle) == lines_of(hub, middle)
    hub.close()


def test_events_that_are_in_no_file_or_in_two_are_said(tmp_path: Path) -> None:
    hub = _Hub(tmp_path, 1)
    for number in range(240):
        hub.clock.time_ms += 1_000
        hub.publish("0", Message(body_kind="data", body=[body(hub.clock.time_ms, 0, number) * 4]))
    hub.capture()
    every = sorted((tmp_path / "archive").rglob("*.avro"))
    one, two, _ = [path for path in every if captured_file(path.read_bytes(), "x").bodies][:3]
    content = one.read_bytes()
    two.unlink()
    with pytest.raises(InputError, match=r"events \d+ to \d+ of partition 0 are in no file"):
        captured_log(tmp_path / "archive" / "ns" / "eh")
    two.write_bytes(content)
    with pytest.raises(InputError, match=r"events 0 to \d+ of partition 0 are in two files"):
        captured_log(tmp_path / "archive" / "ns" / "eh")
    with pytest.raises(InputError, match="does not say which partition it belongs to"):
        captured_log(tmp_path / "archive")
    two.write_bytes(content[:-7])
    with pytest.raises(InputError, match="is not a file of Capture, or is damaged"):
        captured_log(tmp_path / "archive" / "ns" / "eh")
    hub.close()


SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "EventData",
    "namespace": "Microsoft.ServiceBus.Messaging",
    "fields": [
        {"name": "SequenceNumber", "type": "long"},
        {"name": "Offset", "type": "string"},
        {"name": "EnqueuedTimeUtc", "type": "string"},
        {"name": "SystemProperties", "type": {"type": "map", "values": ["long", "double", "string", "bytes"]}},
        {"name": "Properties", "type": {"type": "map", "values": ["long", "double", "string", "bytes", "null"]}},
        {"name": "Body", "type": ["null", "bytes"]},
    ],
}


@pytest.mark.parametrize("text", ["8/2/2025 3:04:05 PM", "08/02/2025 15:04:05", "2025-08-02T15:04:05"])
def test_a_file_without_milliseconds_has_its_times_to_the_second(text: str) -> None:
    record = {
        "SequenceNumber": 5,
        "Offset": "9",
        "EnqueuedTimeUtc": text,
        "SystemProperties": {},
        "Properties": {"a": b"x", "b": 1, "c": None},
        "Body": None,
    }
    buffer = io.BytesIO()
    fastavro.writer(buffer, SCHEMA, [record], codec="deflate")
    captured = captured_file(buffer.getvalue(), "x.avro")
    assert captured.arrivals.tolist() == [1_754_147_045 * 10**7]
    assert (captured.sequence_numbers.tolist(), captured.bodies) == ([5], [b""])
    assert captured.messages.details()[0].properties == {"a": "x", "b": "1"}


@given(st.binary(max_size=300))
def test_no_bytes_are_taken_for_a_file(content: bytes) -> None:
    try:
        captured = captured_file(content, "x.avro")
    except InputError:
        return
    assert isinstance(captured.sequence_numbers, np.ndarray)


def test_the_bodies_of_captured_files_may_be_csv(tmp_path: Path) -> None:
    hub = _Hub(tmp_path, 1)
    hub.clock.time_ms += 61_000
    hub.publish("0", Message(body_kind="data", body=[b"t,k,v\n,x,5\n,x,6\n"]))
    hub.capture()
    log = captured_log(tmp_path / "archive" / "ns" / "eh", body="csv")
    program = prepared("SELECT v INTO o FROM i")
    stepper = Stepper(program, Policy.seconds(), {"i": log}, TravellingTasks(program, Policy.seconds()))
    assert [row["v"] for rows in _all(stepper) for row in rows.to_dicts()] == ["5", "6"]
    hub.close()


def _all(stepper: Stepper) -> Iterator[Any]:
    step = stepper.step()
    assert step.complete
    yield from step.rows


def test_captured_messages_of_devices_are_those_of_the_iot_hub(tmp_path: Path) -> None:
    hub = _Hub(tmp_path, 1)
    for number, accepted_ms in enumerate([START_MS - 30_000, START_MS - 45_000, None]):
        annotations: dict[Any, Any] = {Symbol("iothub-connection-device-id"): f"device{number}"}
        if accepted_ms is not None:
            annotations[Symbol("iothub-enqueuedtime")] = Timestamp(accepted_ms)
        hub.publish("0", Message(message_annotations=annotations, body_kind="data", body=[b'{"v":%d}' % number]))
    ranges, archive = {"0": hub.range("0", 0, 3)}, tmp_path / "archive" / "ns" / "eh"
    hub.capture()
    sql = "SELECT *, System.Timestamp() AS ts, GetMetadataPropertyValue(i, 'IoTHub') AS record INTO o FROM i"
    program, policy = prepared(sql), Policy.seconds(late=60)

    def rows(log: Any) -> list[dict[str, Any]]:
        step = Stepper(program, policy, {"i": log}, TravellingTasks(program, policy)).step()
        return [json.loads(line) for rows in step.rows for line in rows.to_json_lines().splitlines()]

    class Live(_Hub):
        def __init__(self) -> None:
            self.logs = hub.logs

        def range(self, partition: str, start: int, end: int) -> HubRange:
            return replace(ranges[partition], of_devices=True)

    live, captured = rows(Live()), rows(captured_log(archive, source="iothub"))
    assert captured == live
    assert [row["IoTHub"]["ConnectionDeviceId"] for row in captured] == ["device1", "device0", "device2"]
    assert captured[1]["ts"] == format_time((START_MS - 30_000) * TICKS_PER_MILLISECOND)
    assert captured_log(archive, source="iothub").first_at("0", START_MS * TICKS_PER_MILLISECOND) == 0
    assert "IoTHub" not in rows(captured_log(archive))[0]
    hub.close()
