"""The columns that the service adds to events: by name and by SELECT *, over every kind of input."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.connectors.inputs.test_hub_log import _Hub, device
from tests.job.logs import TravellingTasks, prepared
from tidegate.client.event import Details
from tidegate.connectors.inputs.files import FilesInput
from tidegate.connectors.inputs.kinds import LogOpening
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.model.events import InputLog
from tidegate.engine.decoding.metadata import ROUTED_PROPERTIES
from tidegate.job.runtime.step import Stepper
from tidegate.ordering import Policy

SECOND = 10_000_000
ARRIVAL = 1_700_000_000 * SECOND
ARRIVED = "2023-11-14T22:13:20.0000000Z"
NAMED = (
    "SELECT v, EventProcessedUtcTime AS processed, EventEnqueuedUtcTime AS enqueued, EventEnqueuedTime AS old, "
    "PartitionId AS partition, BlobName AS blob, BlobLastModifiedUtcTime AS modified, BlobLastModified AS was, "
    "IoTHub.ConnectionDeviceId AS device, IoTHub AS hub INTO o FROM i"
)


def rows_of(log: InputLog, sql: str) -> list[dict[str, Any]]:
    program = prepared(sql)
    with closing(log):
        step = Stepper(program, Policy.seconds(), {"i": log}, TravellingTasks(program, Policy.seconds())).step()
    return [json.loads(line) for rows in step.rows for line in rows.to_json_lines().splitlines()]


def recorded(*bodies: bytes) -> InputLog:
    return RecordedLog([RecordedEvent("0", ARRIVAL, body) for body in bodies])


def files(folder: Path, *bodies: bytes, **settings: Any) -> InputLog:
    path = folder / "day" / "one.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\n".join(bodies))
    os.utime(path, ns=(ARRIVAL * 100, ARRIVAL * 100))
    section = {"type": "files", "path": str(folder), "watch": False, **settings}
    return FilesInput.model_validate(section).open_log(LogOpening("i"))


def hub(folder: Path, *bodies: bytes, of_devices: bool = False) -> _Hub:
    log = _Hub(folder, of_devices=of_devices)
    for number, body in enumerate(bodies):
        log.publish(body, **(device(number, None) if of_devices else {}))
    log.clock.time_ms += 60_000
    return log


def test_star_over_a_live_hub_includes_what_the_service_adds(tmp_path: Path) -> None:
    (row,) = rows_of(hub(tmp_path, b'{"v":1,"nested":{"a":[1]}}'), "SELECT * INTO o FROM i")
    assert list(row) == ["v", "nested", "EventProcessedUtcTime", "PartitionId", "EventEnqueuedUtcTime"]
    assert row["PartitionId"] == 0
    assert row["EventProcessedUtcTime"] == row["EventEnqueuedUtcTime"]


def test_star_over_an_iot_hub_includes_its_record(tmp_path: Path) -> None:
    (row,) = rows_of(hub(tmp_path, b'{"v":1}', of_devices=True), "SELECT * INTO o FROM i")
    assert list(row) == ["v", "EventProcessedUtcTime", "PartitionId", "EventEnqueuedUtcTime", "IoTHub"]
    assert row["IoTHub"]["ConnectionDeviceId"] == "device0"


def test_star_over_files_includes_the_file(tmp_path: Path) -> None:
    (row,) = rows_of(files(tmp_path, b'{"v":1}'), "SELECT * INTO o FROM i")
    assert row == {
        "v": 1,
        "EventProcessedUtcTime": ARRIVED,
        "PartitionId": 0,
        "BlobName": "day/one.json",
        "BlobLastModifiedUtcTime": ARRIVED,
    }


def test_star_over_recorded_data_adds_nothing() -> None:
    assert rows_of(recorded(b'{"v":1}'), "SELECT * INTO o FROM i") == [{"v": 1}]


def test_named_columns_of_files(tmp_path: Path) -> None:
    (row,) = rows_of(files(tmp_path, b'{"v":1}'), NAMED)
    assert (row["blob"], row["modified"], row["was"]) == ("day/one.json", ARRIVED, ARRIVED)
    assert (row["processed"], row["partition"], row["device"], row["hub"]) == (ARRIVED, 0, None, None)


def test_named_columns_of_devices(tmp_path: Path) -> None:
    (row,) = rows_of(hub(tmp_path, b'{"v":1}', of_devices=True), NAMED)
    assert (row["device"], row["hub"]["ConnectionDeviceId"], row["blob"]) == ("device0", "device0", None)
    assert row["processed"] == row["enqueued"] == row["old"]


def test_named_columns_of_recorded_data() -> None:
    (row,) = rows_of(recorded(b'{"v":1}'), NAMED)
    assert (row["processed"], row["enqueued"], row["old"], row["partition"]) == (ARRIVED, ARRIVED, ARRIVED, 0)


def test_what_the_data_provide_is_kept(tmp_path: Path) -> None:
    body = b'{"v":1,"partitionid":7,"EventProcessedUtcTime":"mine","IoTHub":{"ConnectionDeviceId":"own"}}'
    (row,) = rows_of(hub(tmp_path, body, of_devices=True), "SELECT * INTO o FROM i")
    assert list(row) == ["v", "partitionid", "EventProcessedUtcTime", "IoTHub", "EventEnqueuedUtcTime"]
    (named,) = rows_of(recorded(body), NAMED)
    assert (named["partition"], named["processed"], named["device"]) == (7, "mine", "own")


def test_events_may_be_timed_by_a_system_column() -> None:
    sql = "SELECT v, System.Timestamp() AS t INTO o FROM i TIMESTAMP BY EventEnqueuedUtcTime"
    assert rows_of(recorded(b'{"v":1}'), sql) == [{"v": 1, "t": ARRIVED}]


def test_every_property_of_devices_is_there_and_of_messages_that_were_routed_on() -> None:
    annotations = {there: f"a {name}" for name, there in ROUTED_PROPERTIES.items()}
    annotations["iothub-enqueuedtime"] = "2023-11-14T22:13:19.5Z"
    details = Details(None, None, {}, annotations)
    sql = ", ".join(
        f"GetMetadataPropertyValue(i, '{prefix}{name}') AS {key}{name}"
        for name in ROUTED_PROPERTIES
        for key, prefix in [("a", "IoTHub."), ("b", "[EventHub].[IoT")]
    ).replace("') AS b", "]') AS b")
    log = RecordedLog([RecordedEvent("0", ARRIVAL, b"{}", details=details), RecordedEvent("0", ARRIVAL, b"{}")])
    row, other = rows_of(log, f"SELECT {sql}, IoTHub.MessageSource AS source INTO o FROM i")
    assert {row.pop(f"{key}EnqueueTime") for key in "ab"} == {"2023-11-14T22:13:19.5000000Z"}
    assert row.pop("source") == "a MessageSource"
    assert row == {f"{key}{name}": f"a {name}" for name in ROUTED_PROPERTIES if name != "EnqueueTime" for key in "ab"}
    assert set(other.values()) == {None}
