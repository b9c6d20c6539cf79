"""Schemas of Protobuf: as text and as descriptors, and what a reader of one can read of another."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2

from tidegate.schemas import SchemaError
from tidegate.schemas.protobuf import as_descriptor, as_text, differences, identity

BASE = "a = 1; int32 b = 2; repeated string c = 3; Inner d = 4; map<string, int32> e = 5;"


def proto(fields: str, rest: str = "message Inner { int32 x = 1; }", syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}";\npackage p;\nmessage M {{ {fields} }}\n{rest}\n'


OLD = proto(f"string {BASE}")

READS = {
    "the same": OLD,
    "a field is added": proto(f"string {BASE} bool f = 9;"),
    "fields are removed": proto("string a = 1;"),
    "a field is renamed": proto("string other = 1;"),
    "string becomes bytes": proto(f"bytes {BASE}"),
    "a message is added": proto(f"string {BASE}", "message Inner { int32 x = 1; } message New { }"),
    "the package changes": OLD.replace("package p", "package q"),
    "an integer of another width": OLD.replace("int32 b", "uint64 b"),
    "an enum in place of an integer": OLD.replace("int32 b", "E b") + "enum E { ZERO = 0; }",
}
BREAKS = {
    "another encoding": (
        OLD.replace("int32 b", "sint32 b"),
        "FIELD_SCALAR_KIND_CHANGED at M.b (2): int32 became sint32",
    ),
    "a scalar becomes a message": (OLD.replace("int32 b", "Inner b"), "FIELD_KIND_CHANGED at M.b"),
    "another message": (
        proto(f"string {BASE}".replace("Inner d", "Other d"), "message Inner { int32 x = 1; } message Other { }"),
        "FIELD_NAMED_TYPE_CHANGED at M.d",
    ),
    "a number is repeated": (OLD.replace("int32 b", "repeated int32 b"), "FIELD_NUMERIC_LABEL_CHANGED at M.b"),
    "a message is repeated": (OLD.replace("Inner d", "repeated Inner d"), "FIELD_MESSAGE_LABEL_CHANGED at M.d"),
    "a message is removed": (
        proto("string a = 1;", ""),
        "MESSAGE_REMOVED at Inner",
    ),
    "the values of a map": (OLD.replace("map<string, int32>", "map<string, double>"), "FIELD_SCALAR_KIND_CHANGED"),
    "fields move into a oneof": (
        proto("oneof o { string a = 1; int32 b = 2; }"),
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF at M.o",
    ),
}


@pytest.mark.parametrize("case", READS)
def test_what_can_be_read(case: str) -> None:
    assert differences(READS[case], {}, OLD, {}) == []


@pytest.mark.parametrize("case", BREAKS)
def test_what_cannot(case: str) -> None:
    text, expected = BREAKS[case]
    found = differences(text, {}, OLD, {})
    assert any(expected in one for one in found), found


def test_required_fields_neither_come_nor_go() -> None:
    without, with_it = (proto(f"optional int32 a = 1; {more}", "", "proto2") for more in ("", "required int32 b = 2;"))
    assert differences(with_it, {}, without, {}) == ["REQUIRED_FIELD_ADDED at M.b"]
    assert differences(without, {}, with_it, {}) == ["REQUIRED_FIELD_REMOVED at M.b"]


def test_a_oneof_keeps_its_fields() -> None:
    both = proto("oneof o { string a = 1; int32 b = 2; }", "")
    one = proto("oneof o { string a = 1; }", "")
    assert differences(one, {}, both, {}) == ["ONEOF_FIELD_REMOVED at M.o"]
    assert differences(both, {}, one, {}) == []


RICH = """syntax = "proto2";
package p.q;
import "google/protobuf/timestamp.proto";
option java_package = "x.\\"y\\"";
enum Color { RED = 0; BLUE = 2; }
message Outer {
  message Inner { optional .google.protobuf.Timestamp at = 1; }
  enum Kind { SMALL = 1; }
  required int64 id = 1;
  optional string name = 2 [default = "a\\"b"];
  repeated Inner inner = 3;
  map<string, Inner> by_name = 4;
  oneof choice { double number = 5; bytes data = 6; }
  optional Color color = 7 [default = BLUE, deprecated = true];
  reserved 20 to 22;
  reserved "old";
}
service Things { rpc Get (Outer) returns (stream Outer); }
"""


@pytest.mark.parametrize("text", [OLD, RICH, proto("optional string a = 1;", "")])
def test_a_descriptor_and_the_text_that_it_is_printed_as_are_the_same_schema(text: str) -> None:
    descriptor = as_descriptor(text, {})
    printed = as_text(descriptor, {})
    assert printed.startswith("syntax")
    assert identity(printed, {}) == identity(descriptor, {}) == identity(text, {})
    assert as_text(text, {}) == text
    assert descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(descriptor)).message_type


def test_a_schema_may_import_others_whichever_form_they_have() -> None:
    other = 'syntax = "proto3"; package o; message Other { int32 x = 1; }'
    text = 'syntax = "proto3"; import "dir/other.proto"; message M { o.Other other = 1; }'
    for imported in (other, as_descriptor(other, {})):
        imports = {"dir/other.proto": imported}
        assert identity(as_descriptor(text, imports), imports) == identity(text, imports)
    with pytest.raises(SchemaError, match="not among the references"):
        identity(as_descriptor(text, {"dir/other.proto": other}), {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("message M {", r"schema\.proto:1"),
        ('syntax = "proto3"; message M { Unknown a = 1; }', '"Unknown" is not defined'),
        ('syntax = "proto3"; import "/etc/passwd"; message M { }', r"schema\.proto"),
    ],
)
def test_what_is_no_schema(text: str, expected: str) -> None:
    with pytest.raises(SchemaError, match=expected):
        identity(text, {})


def test_an_import_cannot_leave_the_folder() -> None:
    with pytest.raises(SchemaError, match="leaves the folder"):
        identity(OLD, {"../outside.proto": OLD})
