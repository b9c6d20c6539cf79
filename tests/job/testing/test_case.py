"""Case files with functions of their own; what else a case may hold is tried by the corpus (tests/spark)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.job.logs import TravellingTasks
from tidegate.job import JobError, case_result, read_case

CASES = Path(__file__).parents[2] / "cases"


def write_case(folder: Path, **more: Any) -> Path:
    """A case whose query calls udf.twice."""
    path = folder / "case.json"
    content = {
        "name": "twice",
        "query": "SELECT udf.Twice(n) AS m INTO output FROM input",
        "inputs": [{"body": {"n": 21}}],
        "expected": [{"row": {"m": 42}}],
        **more,
    }
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "functions.py").write_text("def twice(n):\n    return 2 * n\n\ndef thrice(n):\n    return 3 * n\n")
    return tmp_path


def test_a_case_registers_functions_beside_it(folder: Path) -> None:
    case = read_case(write_case(folder, functions={"twice": {"module": "functions.py"}}))
    assert case_result(case, TravellingTasks).differences == []


def test_functions_of_all_cases_of_a_folder_stand_in_one_file(folder: Path) -> None:
    (folder / "tidegate.toml").write_text('[functions.twice]\nmodule = "functions.py"\n')
    assert case_result(read_case(write_case(folder)), TravellingTasks).differences == []
    own = {"TWICE": {"module": "functions.py", "function": "thrice"}}
    (difference, _) = case_result(read_case(write_case(folder, functions=own)), TravellingTasks).differences
    assert '{"m": 42}' in difference


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ({}, "udf.twice is not registered"),
        ({"twice": {"module": "none.py"}}, "[functions.twice]: cannot read"),
        ({"twice": {"module": "functions.py", "function": "a", "aggregate": "b"}}, "the functions of twice: "),
    ],
)
def test_what_cannot_be_called_fails_the_case_with_its_reason(
    folder: Path, functions: dict[str, Any], said: str
) -> None:
    (difference,) = case_result(read_case(write_case(folder, functions=functions)), TravellingTasks).differences
    assert said in difference


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            {"inputs": [{"arival": "2026-01-01T00:00:00Z"}]},
            r"no key `arival`; did you mean `arrival`\? - at .*inputs\[0\]",
        ),
        ({"polcy": None}, "no key `polcy`; did you mean `policy`"),
        ({"expected": [{"rows": {"m": 42}}]}, "no key `rows`; did you mean `row`"),
        ({"trace": [{"event": 1, "fates": "ok"}]}, "no key `fates`; did you mean `fate`"),
        ({"trace": [{"fate": "ok"}]}, "missing required field `event`"),
        (
            {"expected_metrics": {"Late Input Event": 0}},
            "no metric 'Late Input Event'; did you mean 'Late Input Events'",
        ),
    ],
)
def test_what_a_case_cannot_say_is_refused_with_the_nearest_name(
    tmp_path: Path, content: dict[str, Any], said: str
) -> None:
    """A misspelled arrival was 1970, and a misspelled metric had never happened."""
    with pytest.raises(JobError, match=rf"case\.json is not a case: .*{said}"):
        read_case(write_case(tmp_path, **content))


def test_a_key_that_is_like_no_other_is_a_note(folder: Path) -> None:
    functions = {"twice": {"module": "functions.py"}}
    noted = write_case(folder, functions=functions, source="a page", ticket=7, trace=[{"event": 1, "why": "in time"}])
    assert case_result(read_case(noted), TravellingTasks).differences == []


def test_the_corpus_has_the_functions_that_its_cases_call() -> None:
    assert case_result(read_case(CASES / "qp23-udf-hex.json"), TravellingTasks).differences == []


def test_events_of_a_case_have_the_metadata_of_those_they_were_recorded_from(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    event = {
        "arrival": "2026-01-01T00:00:10Z",
        "sequenceNumber": 41,
        "offset": "64",
        "properties": {"flag": True},
        "systemProperties": {"iothub-connection-device-id": "d1", "iothub-enqueuedtime": "2026-01-01T00:00:09Z"},
        "body": {"v": 1},
    }
    expected = {
        "v": 1,
        "EventProcessedUtcTime": "2026-01-01T00:00:09Z",
        "PartitionId": 0,
        "EventEnqueuedUtcTime": "2026-01-01T00:00:09Z",
        "IoTHub": {
            "MessageId": None,
            "CorrelationId": None,
            "ConnectionDeviceId": "d1",
            "ConnectionDeviceGenerationId": None,
            "EnqueuedTime": "2026-01-01T00:00:09Z",
        },
        "n": 41,
        "flag": True,
    }
    content = {
        "name": "of a device",
        "query": "SELECT *, GetMetadataPropertyValue(input, 'EventHub.SequenceNumber') AS n, "
        "GetMetadataPropertyValue(input, '[User].[flag]') AS flag INTO output FROM input",
        "inputs": [event],
        "sources": {"Input": "iothub"},
        "expected": [{"row": expected}],
        "trace": [{"event": 1, "fate": "ok"}],
    }
    path.write_text(json.dumps(content))
    assert case_result(read_case(path), TravellingTasks).differences == []
