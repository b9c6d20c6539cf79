"""Deserializers of one's own: a format of messages with a length before each, from a file and from a hub's bodies."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.job.logs import travelling
from tidegate.connectors.inputs.deserializer import deserializer_of
from tidegate.connectors.inputs.event_hub import EventHubInput
from tidegate.connectors.model.errors import InputError
from tidegate.engine import DEFAULT_LIMITS, TableBodies, Wanted, decoder_of
from tidegate.job import JobError, load_job, run_job

# Records of Protobuf, `message Ride { string zone = 1; uint32 fare = 2; }`, each after its length, read by hand.
CODE = '''
"""Reads rides."""


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def ride(data):
    fields, at = {}, 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        if tag & 7 == 2:
            value, at = data[at : at + value].decode(), at + value
        fields[{1: "zone", 2: "fare"}[tag >> 3]] = value
    return fields


def rides(body):
    at = 0
    while at < len(body):
        length, at = varint(body, at)
        yield ride(body[at : at + length])
        at += length


class Rides:
    def deserialize(self, body):
        return list(rides(body))


shared = 3
'''


def encoded(zone: str, fare: int) -> bytes:
    """A record with its length."""
    record = b"\x0a" + bytes([len(zone)]) + zone.encode() + b"\x10" + bytes([fare])
    return bytes([len(record)]) + record


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "rides.py"
    path.write_text(CODE)
    return path


@pytest.mark.parametrize("name", ["rides", "Rides"])
def test_a_body_may_hold_several_rows_and_a_bad_one_costs_itself_alone(code: Path, name: str) -> None:
    settings = EventHubInput(
        type="eventhub", connection_string="x", event_hub="h", format="custom", deserializer=f"{code}:{name}"
    )
    format_ = pickle.loads(pickle.dumps(settings.body_format(DEFAULT_LIMITS)))
    assert format_ == settings.body_format(DEFAULT_LIMITS)
    bodies = [encoded("a", 1) + encoded("b", 2), b"\x05??", encoded("c", 3), b""]
    decoded = decoder_of(Wanted((("zone",), ("fare",))), format_).decode(bodies)
    assert decoded.fields[("zone",)].to_list() == ["a", "b", "c"]
    assert decoded.fields[("fare",)].to_list() == [1, 2, 3]
    assert (decoded.events.tolist(), decoded.rejected_events.tolist()) == ([0, 0, 2], [1])


def test_a_job_reads_files_with_it(code: Path, tmp_path: Path) -> None:
    (tmp_path / "rides.bin").write_bytes(b"".join(encoded(zone, 5) for zone in "abc"))
    (tmp_path / "bad.bin").write_bytes(b"\x05??")
    (tmp_path / "job.toml").write_text(
        'name = "rides"\nquery = "SELECT zone, fare INTO out FROM i"\n'
        '[inputs.i]\ntype = "files"\npath = "*.bin"\nwatch = false\n'
        'format = "custom"\ndeserializer = "rides.py:rides"\n'
        '[outputs.out]\ntype = "file"\npath = "out.jsonl"\n'
    )
    job = load_job(tmp_path / "job.toml")
    summary = run_job(job, travelling(job))
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows == [{"zone": zone, "fare": 5} for zone in "abc"]
    assert summary.why == "complete"


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (CODE, "nothing", "cannot be imported: AttributeError"),
        (CODE, "shared", "is not a function"),
        ("import no_such_module", "rides", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        (None, "rides", "cannot read .*No such file"),
    ],
)
def test_one_that_cannot_be_used_is_said(code: Path, content: str | None, name: str, said: str) -> None:
    if content is None:
        code.unlink()
    else:
        code.write_text(content)
    deserializer_of.cache_clear()
    with pytest.raises(InputError, match=said):
        deserializer_of(f"{code}:{name}")


@pytest.mark.parametrize("more", [{"format": "custom"}, {"deserializer": "a.py:b"}])
def test_the_format_and_the_deserializer_go_together(more: dict[str, Any], tmp_path: Path) -> None:
    lines = "".join(f'{key} = "{value}"\n' for key, value in more.items())
    (tmp_path / "job.toml").write_text(
        f'name = "j"\nquery = "SELECT a INTO o FROM i"\n[inputs.i]\ntype = "files"\npath = "x"\n{lines}'
    )
    with pytest.raises(JobError, match=r"needs a 'deserializer'|'deserializer' is not for format"):
        load_job(tmp_path / "job.toml")


def test_rows_of_a_file_are_those_of_a_table(code: Path) -> None:
    from tidegate.engine import Format, rows_of

    format_ = Format("custom", deserializer=deserializer_of(f"{code}:rides"))
    rows = rows_of(encoded("a", 1) + encoded("b", 2), format_)
    assert isinstance(rows, TableBodies)
    assert [json.loads(row) for row in rows] == [{"zone": "a", "fare": 1}, {"zone": "b", "fare": 2}]
