"""Projects as the service's tools write them, made for a test: a folder with its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

JOB_CONFIG = {
    "ScriptType": "JobConfig",
    "DataLocale": "en-US",
    "OutputErrorPolicy": "Retry",
    "EventsLateArrivalMaxDelayInSeconds": 5,
    "EventsOutOfOrderMaxDelayInSeconds": 0,
    "EventsOutOfOrderPolicy": "Adjust",
    "Sku": {"Name": "StandardV2", "StreamingUnits": "1/3"},
    "CompatibilityLevel": "1.2",
    "UseSystemAssignedIdentity": False,
    "GlobalStorage": {"AccountName": None, "AccountKey": None, "AuthenticationMode": "ConnectionString"},
    "DataSourceCredentialDomain": None,
    "Tags": {},
}
QUERY = """
CREATE TABLE Rides (at datetime, zone nvarchar(max), fare float);

SELECT R.zone, System.Timestamp() AS window_end, SUM(R.fare) AS fares, Z.name
INTO Totals
FROM Rides R TIMESTAMP BY at
JOIN Zones Z ON Z.zone = R.zone
GROUP BY R.zone, Z.name, TumblingWindow(hour, 1)
"""
RIDES = [
    {"at": "2026-03-01T10:50:00Z", "zone": "b", "fare": 2},
    {"at": "2026-03-01T10:10:00Z", "zone": "a", "fare": 7.5},
    {"at": "2026-03-01T10:20:00Z", "zone": "a", "fare": "7.5"},
    {"at": "2026-03-01T11:00:00Z", "zone": "a", "fare": 1.0},
]
ZONES = [{"zone": "a", "name": "Airport"}, {"zone": "b", "name": "Bridge"}]
TOTALS = [
    {"zone": "b", "window_end": "2026-03-01T11:00:00.0000000Z", "fares": 2, "name": "Bridge"},
    {"zone": "a", "window_end": "2026-03-01T11:00:00.0000000Z", "fares": 8.5, "name": "Airport"},
]


def write_json(path: Path, content: Any) -> Path:
    """Write a file, and the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return path


def lines(rows: list[Any]) -> str:
    """Rows as the tools expect them: a line each."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def input_file(alias: str, path: str, *, reference: bool = False, file_format: str = "Json") -> dict[str, Any]:
    """An input of a test case."""
    kind = "Reference data" if reference else "Data Stream"
    return {"InputAlias": alias, "Type": kind, "Format": file_format, "FilePath": path, "ScriptType": "InputMock"}


def expected_output(alias: str, path: str, **more: Any) -> dict[str, Any]:
    """An expected output of a test case."""
    return {"OutputAlias": alias, "FilePath": path, "Required": True, **more}


def write_project(
    folder: Path,
    *,
    query: str = QUERY,
    config: Mapping[str, Any] | None = JOB_CONFIG,
    configurations: list[dict[str, str]] | None = None,
) -> Path:
    """A project without inputs, or with those named."""
    listed = list(configurations or [])
    if config is not None:
        write_json(folder / "JobConfig.json", config)
        listed.append({"filePath": "JobConfig.json", "subType": "JobConfig"})
    write_json(folder / "asaproj.json", {"name": "rides", "startFile": "rides.asaql", "configurations": listed})
    (folder / "rides.asaql").write_text(query, encoding="utf-8-sig")
    return folder


def rides_project(folder: Path) -> Path:
    """A project with one test case that passes."""
    write_project(folder)
    write_json(folder / "Test" / "Hourly" / "Rides.json", RIDES)
    write_json(folder / "Test" / "Hourly" / "Zones.json", ZONES)
    (folder / "Test" / "Hourly" / "Totals.json").write_text(lines(TOTALS))
    write_test_config(folder, [rides_case()])
    return folder


def rides_case(**more: Any) -> dict[str, Any]:
    """The test case of `rides_project`, with other settings where given."""
    return {
        "Name": "Hourly",
        "Inputs": [input_file("Rides", "Hourly/Rides.json"), input_file("Zones", "Hourly/Zones.json", reference=True)],
        "ExpectedOutputs": [expected_output("Totals", "Hourly/Totals.json")],
        "ExpectedErrors": {"InputDeserializerError.InvalidData": 1},
        **more,
    }


def write_test_config(folder: Path, cases: list[dict[str, Any]]) -> None:
    """testConfig.json in the folder where most projects have it."""
    write_json(folder / "Test" / "testConfig.json", {"Script": "C:\\somewhere\\else.asaql", "TestCases": cases})
