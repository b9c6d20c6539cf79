"""Messages of Protocol Buffers as events: by a .proto file or a descriptor set, alone or with a length before each."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from grpc_tools import protoc
from pydantic import ValidationError

from tests.job.logs import travelling
from tidegate.connectors.inputs.deserializer import deserializer_of
from tidegate.connectors.inputs.event_hub import EventHubInput
from tidegate.connectors.inputs.protobuf import ProtobufDeserializer
from tidegate.connectors.model.errors import InputError
from tidegate.engine import DEFAULT_LIMITS, Problem, Wanted, decoder_of
from tidegate.engine.decoding.formats import Unreadable
from tidegate.job import load_job, run_job

PLACES = """
syntax = "proto3";
package fleet.places;
message Place { double latitude = 1; double longitude = 2; }
"""
RIDES = """
syntax = "proto3";
package fleet;
import "places.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
enum Kind { UNKNOWN = 0; SHARED = 1; }
message Ride {
  string zone = 1;
  int64 fare = 2;
  uint64 odometer = 3;
  bytes photo = 4;
  Kind kind = 5;
  optional int32 seats = 6;
  repeated places.Place way = 7;
  map<string, Kind> doors = 8;
  google.protobuf.Timestamp began = 9;
  google.protobuf.Duration took = 10;
  google.protobuf.Int64Value tip = 11;
  google.protobuf.Struct notes = 12;
  oneof payment { string card = 13; float cash = 14; }
  places.Place end = 15;
  map<int32, fixed64> meters = 16;
}
"""


def varint(value: int) -> Iterator[int]:
    """The bytes of a whole number."""
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


@pytest.fixture
def proto(tmp_path: Path) -> Path:
    (tmp_path / "places.proto").write_text(PLACES)
    path = tmp_path / "rides.proto"
    path.write_text(RIDES)
    return path


def deserializer(path: Path, name: str = "fleet.Ride", prefix: str = "none") -> ProtobufDeserializer:
    found = deserializer_of(f"{path}:{name}", prefix)
    assert isinstance(found, ProtobufDeserializer)
    return found


def ride(path: Path) -> Any:
    """An empty message, by Google's own library."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(deserializer(path).descriptors).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("fleet.Ride"))()


def test_each_type_is_one_of_the_query_language(proto: Path) -> None:
    message = ride(proto)
    message.zone, message.fare, message.odometer, message.photo, message.kind = "é", -5, (1 << 64) - 1, b"\x00\xff", 1
    message.way.add(latitude=52.5, longitude=13.25)
    message.doors["left"] = 1
    message.began.FromJsonString("2026-01-01T12:00:00.123456700Z")
    message.took.FromMilliseconds(1_500)
    message.tip.value = 1 << 60
    message.notes.update({"clean": True, "stars": [4, None]})
    message.cash = 2.5
    message.meters[7] = 9
    (row,) = deserializer(proto)(message.SerializeToString())
    assert row == {
        "zone": "é",
        "fare": -5,
        "odometer": float((1 << 64) - 1),
        "photo": "AP8=",
        "kind": "SHARED",
        "seats": None,
        "way": [{"latitude": 52.5, "longitude": 13.25}],
        "doors": {"left": "SHARED"},
        "began": "2026-01-01T12:00:00.123456700Z",
        "took": 1.5,
        "tip": 1 << 60,
        "notes": {"clean": True, "stars": [4.0, None]},
        "card": None,
        "cash": 2.5,
        "end": None,
        "meters": {"7": 9},
    }


def test_a_field_that_cannot_be_absent_has_its_default(proto: Path) -> None:
    (row,) = deserializer(proto)(b"")
    assert (row["zone"], row["fare"], row["kind"], row["way"], row["doors"]) == ("", 0, "UNKNOWN", [], {})
    assert (row["seats"], row["began"], row["tip"]) == (None, None, None)


@pytest.mark.parametrize(
    ("prefix", "lengths"), [("base128", (b"\x03", b"\x83\x00")), ("fixed32", (b"\x03\0\0\0", b"\x03\0\0\0"))]
)
def test_messages_with_their_lengths_are_a_row_each(proto: Path, prefix: str, lengths: tuple[bytes, bytes]) -> None:
    body = lengths[0] + b"\x0a\x01a" + lengths[1] + b"\x0a\x01b"
    assert [row["zone"] for row in deserializer(proto, prefix=prefix)(body)] == ["a", "b"]
    for cut in (len(body) - 1, len(body) - 4):
        with pytest.raises(ValueError, match="is cut off"):
            list(deserializer(proto, prefix=prefix)(body[:cut]))


def test_a_descriptor_set_needs_no_compiler(proto: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = proto.with_suffix(".desc")
    options = [f"--proto_path={proto.parent}", "--include_imports", f"--descriptor_set_out={target}"]
    subprocess.run([sys.executable, protoc.__file__, *options, proto.name], check=True)
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    assert [row["zone"] for row in deserializer(target)(b"\x0a\x01a")] == ["a"]
    proto.touch()
    with pytest.raises(InputError, match="or give a descriptor set"):
        deserializer_of(f"{proto}:fleet.places.Place")


def test_a_bad_body_costs_itself_alone_in_any_process(proto: Path) -> None:
    settings = EventHubInput(
        type="eventhub", connection_string="x", event_hub="h", format="protobuf", deserializer=f"{proto}:fleet.Ride"
    )
    format_ = pickle.loads(pickle.dumps(settings.body_format(DEFAULT_LIMITS)))
    decoder = decoder_of(Wanted((("zone",), ("fare",))), format_)
    decoded = decoder.decode([b"\x0a\x01a\x10\x05", b"\xff", b"\x0a\x01b"])
    assert decoded.fields[("zone",)].to_list() == ["a", "b"]
    assert decoded.fields[("fare",)].to_list() == [5, 0]
    assert (decoded.events.tolist(), decoded.rejected_events.tolist()) == ([0, 2], [1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"\x3a\x00" * 500_000 + b"\x3a\x7f",
        b"\x62" + bytes([*varint(3_000_000)]) + b"\x0a\x04\x12\x02\x08\x00" * 500_000 + b"\x3a\x7f",
        b"\x42\x00" * 500_000 + b"\x3a\x7f",
    ],
)
def test_a_message_of_too_many_values_is_refused_before_it_is_parsed(proto: Path, body: bytes) -> None:
    """A parsed message takes some hundred times the two bytes that it has in a body; these end cut off."""
    with pytest.raises(Unreadable) as refused:
        list(deserializer(proto)(body))
    assert refused.value.problem is Problem.LIMIT_EXCEEDED
    with pytest.raises(DecodeError):
        list(deserializer(proto)(body[-6:]))


def test_a_job_reads_files_of_messages(proto: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rides.bin").write_bytes(b"".join(b"\x05\x0a\x01%c\x10\x07" % zone for zone in b"aab"))
    path = tmp_path / "job.toml"
    path.write_text(
        'name = "rides"\nquery = "SELECT zone, fare INTO out FROM rides"\n[inputs.rides]\ntype = "files"\n'
        'path = "in/*.bin"\nformat = "protobuf"\ndeserializer = "rides.proto:fleet.Ride"\nmessage_prefix = "base128"\n'
        'watch = false\n[outputs.out]\ntype = "file"\npath = "out.jsonl"\n'
    )
    job = load_job(path)
    run_job(job, travelling(job))
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert lines == ['{"zone":"a","fare":7}', '{"zone":"a","fare":7}', '{"zone":"b","fare":7}']


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.proto", "message {", "it cannot be compiled: .*x.proto:1:9: Expected message name"),
        ("x.proto", None, "cannot read .*No such file"),
        ("x.desc", "no set", "is not a descriptor set; write one with protoc"),
        ("x.proto", 'syntax = "proto3"; package a; message B {}', "there is no message C; there are a.B"),
    ],
)
def test_a_description_that_cannot_be_used(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        deserializer_of(f"{tmp_path / name}:C")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"format": "protobuf"}, "needs a 'deserializer'"),
        ({"format": "protobuf", "deserializer": "rides.py:read"}, "FILE:MESSAGE"),
        ({"format": "custom", "deserializer": "rides.proto:Ride"}, 'need format = "protobuf"'),
        ({"message_prefix": "base128"}, "'message_prefix' is not for format = \"json\""),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        EventHubInput(type="eventhub", connection_string="x", event_hub="h", **settings)
