"""Recorded logs: bodies as they were written, order and arrival as given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job.inputs.kit import Origin, StreamContract
from tidegate.job.inputs.kinds import LogOpening
from tidegate.job.inputs.recorded import RecordedEvent, RecordedInput, RecordedLog
from tidegate.job.model.errors import InputError
from tidegate.job.model.events import InputLog
from tidegate.ordering import parse_time


def log_of(folder: Path, text: str) -> RecordedLog:
    path = folder / "log.jsonl"
    path.write_text(text, encoding="utf-8")
    return RecordedLog.from_file(path)


def bodies_of(log: RecordedLog, partition: str) -> list[bytes]:
    end = log.ends()[partition].end
    return [body for events in log.range(partition, 0, end).read_events(2) for body in events.bodies]


def test_a_body_is_kept_to_the_byte(tmp_path: Path) -> None:
    log = log_of(
        tmp_path, '{"partition": 3, "body": {"a": 1.50, "a": 2,  "é": 1e2}}\n\n{"partition": 3, "body": "{broken"}\n'
    )
    assert bodies_of(log, "3") == ['{"a": 1.50, "a": 2,  "é": 1e2}'.encode(), b"{broken"]


def test_without_arrival_an_event_arrives_with_the_one_before(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        '{"body": 1}\n{"arrival": "2020-01-01T00:00:00.0000001Z", "body": 2}\n{"body": 3}\n',
    )
    (events,) = log.range("0", 0, 3).read_events(10)
    second = parse_time("2020-01-01T00:00:00.0000001Z")
    assert events.arrivals.tolist() == [0, second, second]
    assert events.sequence_numbers.tolist() == [0, 1, 2]


@given(
    arrivals=st.lists(st.integers(0, 30), max_size=20),
    asked=st.integers(-1, 31),
    cut=st.integers(1, 5),
)
def test_arrivals_never_decrease_and_first_at_finds_the_first(arrivals: list[int], asked: int, cut: int) -> None:
    log = RecordedLog(RecordedEvent("0", arrival, b"{}") for arrival in [*arrivals, 40])
    count = log.ends()["0"].end
    read = np.concatenate([events.arrivals for events in log.range("0", 0, count).read_events(cut)]).tolist()
    assert read == sorted(read)
    first = log.first_at("0", asked)
    assert all(arrival < asked for arrival in read[:first])
    assert read[first] >= asked


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"body": 1}\nnot json\n', "line 2"),
        ('{"partition": 1}\n', "body"),
        ('{"arrival": "yesterday", "body": 1}\n', "arrival is a time such as"),
        ("[1]\n", "line 1"),
    ],
)
def test_a_line_that_is_no_event_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError, match=r"log\.jsonl") as caught:
        log_of(tmp_path, text)
    assert told in str(caught.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the recorded log"):
        RecordedLog.from_file(tmp_path / "none.jsonl")


class TestContract(StreamContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> Origin:
        path = tmp_path / "log.jsonl"
        seconds = (1, 1, 2, 5, 5)
        path.write_text(
            "".join(f'{{"arrival":"2026-01-01T00:00:0{second}Z","body":{{"v":1}}}}\n' for second in seconds)
        )
        return _Recording(path)


class _Recording:
    """See `kit.Origin`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open_log(self) -> InputLog:
        return RecordedInput(type="recorded", path=self._path).open_log(LogOpening())
