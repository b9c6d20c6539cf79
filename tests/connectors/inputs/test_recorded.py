"""Recorded logs: bodies as they were written, order and arrival as given."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.test_event_json import SCALARS
from tests.connectors.inputs.kit import Origin, StreamContract
from tests.connectors.inputs.test_hub_log import _Hub
from tests.job.logs import TravellingTasks, prepared
from tests.log.support import append, stored
from tidegate.amqp.encoding.types import Symbol
from tidegate.amqp.messages import Message, Properties, encode_message
from tidegate.client import Delivery
from tidegate.client.event_json import event_json
from tidegate.connectors.inputs.kinds import LogOpening
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedInput, RecordedLog
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import InputLog, PartitionEnd
from tidegate.job.runtime.step import Stepper
from tidegate.ordering import END_OF_TIME, Policy, parse_time


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
        (
            '{"body": 1}\n{"arival": "2020-01-01T00:00:00Z", "body": 1}\n',
            "line 2: there is no key `arival`; did you mean `arrival`?",
        ),
        ('{"sequence_number": 1, "body": 1}\n', "did you mean `sequenceNumber`?"),
    ],
)
def test_a_line_that_is_no_event_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError, match=r"log\.jsonl") as caught:
        log_of(tmp_path, text)
    assert told in str(caught.value)


def test_a_key_that_is_like_no_other_is_a_note(tmp_path: Path) -> None:
    log = log_of(tmp_path, '{"body": 7, "comment": "the first"}\n')
    assert bodies_of(log, "0") == [b"7"]


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
    def __init__(self, path: Path) -> None:
        self._path = path

    def open_log(self) -> InputLog:
        return RecordedInput(type="recorded", path=self._path).open_log(LogOpening())


EVERYTHING = """
SELECT *, GetMetadataPropertyValue(i, 'EventHub') AS hub, GetMetadataPropertyValue(i, 'EventId') AS id,
  GetMetadataPropertyValue(i, 'User') AS every, GetMetadataPropertyValue(i, '[User].[p]') AS p,
  GetType(GetMetadataPropertyValue(i, '[User].[p]')) AS kind, GetMetadataPropertyValue(i, 'IoTHub') AS device,
  System.Timestamp() AS ts
INTO o FROM i
"""
NAMES = st.sampled_from(["p", "P q", "é", "colour"])
MESSAGES = st.builds(
    lambda body, properties, annotations, message_id: Message(
        body_kind="data",
        body=[body],
        application_properties=properties,
        message_annotations=annotations,
        properties=Properties(message_id=message_id),
    ),
    st.one_of(st.binary(max_size=20), st.sampled_from([b'{"v":1.0}', b'{"v": "\xc3\xa9"}', b'[{"v":1},{"v":2}]'])),
    st.dictionaries(NAMES, SCALARS, max_size=3),
    st.dictionaries(
        st.sampled_from(
            ["x-opt-partition-key", "x-opt-publisher", "iothub-connection-device-id", "iothub-enqueuedtime"]
        ).map(Symbol),
        st.sampled_from(["a", "2025-08-02T03:03:59.5Z", "1754103839000"]),
    ),
    st.one_of(st.none(), st.text(max_size=5), st.uuids()),
)


class Hub(_Hub):
    """A hub whose first events retention may have removed."""

    begin = 0

    def publish_message(self, message: Message) -> None:
        append(self._log, [encode_message(message)])

    def lines(self) -> str:
        """What `tidegate tail -o json` prints."""
        told = [event_json("0", Delivery(n, str(offset), *rest)) for n, offset, *rest in stored(self._log, self.begin)]
        return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in told)

    def ends(self) -> dict[str, PartitionEnd]:
        return {"0": PartitionEnd(self.begin, self._log.next_sequence_number, END_OF_TIME, complete=True)}


def results(log: InputLog) -> tuple[list[bytes], dict[str, int]]:
    program = prepared(EVERYTHING)
    stepper = Stepper(program, Policy.seconds(), {"i": log}, TravellingTasks(program, Policy.seconds()))
    step = stepper.step()
    return [rows.to_json_lines() for rows in step.rows], step.counters


@given(messages=st.lists(MESSAGES, min_size=1, max_size=4), of_devices=st.booleans(), begin=st.integers(0, 1))
def test_a_recorded_hub_gives_the_same_bytes_as_the_hub(messages: list[Message], of_devices: bool, begin: int) -> None:
    with TemporaryDirectory() as folder:
        hub = Hub(Path(folder) / "hub", of_devices=of_devices)
        for message in messages:
            hub.publish_message(message)
            hub.clock.time_ms += 250
        hub.begin = min(begin, len(messages) - 1)
        path = Path(folder) / "log.jsonl"
        path.write_text(hub.lines(), encoding="utf-8")
        section = {"type": "recorded", "path": str(path), "source": "iothub" if of_devices else "eventhub"}
        recorded = RecordedInput.model_validate(section).open_log(LogOpening("i"))
        assert recorded.ends() == hub.ends()
        assert results(recorded) == results(hub)
        hub.close()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"body": 1, "sequenceNumber": 7}\n{"body": 2, "sequenceNumber": 9}',
            "line 2: the sequence number is 9, and 8",
        ),
        ('{"partition": 1}', "line 1: the line has no body"),
        ('{"bodyBase64": "?"}', "line 1: "),
        ('{"body": 1, "properties": {"p": {"type": "uuid", "value": "x"}}}', "line 1: the property p: 'x' is no uuid"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_with_its_place(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        log_of(tmp_path, line)


def test_what_an_old_recording_lacks_is_null(tmp_path: Path) -> None:
    lines, counters = results(log_of(tmp_path, '{"body": {"v": 1}}'))
    (row,) = [json.loads(line) for each in lines for line in each.splitlines()]
    assert (row["every"], row["p"], row["device"], row["hub"]["Offset"]) == (None, None, None, None)
    assert (row["hub"]["SequenceNumber"], row["hub"]["PartitionId"]) == (0, 0)
    assert "EventEnqueuedUtcTime" not in row
    assert counters["Runtime Errors"] == 0
