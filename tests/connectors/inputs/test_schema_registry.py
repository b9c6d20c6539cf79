"""Bodies with the number of their schema: read with it, one by one where a body is damaged."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any, ClassVar

import fastavro
import pytest

from tidegate.connectors.inputs import schema_registry
from tidegate.connectors.inputs.schema_registry import ASK_AGAIN_S, RemoteRegistry
from tidegate.connectors.model.errors import InputError, InputUnavailableError
from tidegate.engine import Format, Problem, TableBodies, Wanted, decoder_of

FIRST = {
    "type": "record",
    "name": "Ride",
    "fields": [{"name": "zone", "type": "string"}, {"name": "fare", "type": "double"}],
}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "tip", "type": ["null", "double"]}]}
NESTED = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
ENDLESS = {"type": "record", "name": "Many", "fields": [{"name": "all", "type": {"type": "array", "items": "null"}}]}
NO_AVRO = {"type": "object"}
SCHEMAS = {1: FIRST, 2: SECOND, 3: NESTED, 4: ENDLESS, 5: NO_AVRO, 6: NO_AVRO}
AVRO = Format("avro")


class Handler(BaseHTTPRequestHandler):
    """Answers as a registry does; it lets in those that say who they are."""

    asked: ClassVar[list[str]] = []
    later: ClassVar[dict[int, Any]] = {}
    """Answers of schemas that a test registers itself, by their numbers."""
    is_cut: ClassVar[bool] = False

    def do_GET(self) -> None:
        self.asked.append(self.path)
        number = int(self.path.partition("?")[0].rpartition("/")[2])
        if self.is_cut:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"schema":')
            return
        if number in self.later:
            self._answer(200, self.later[number])
            return
        if self.headers.get("Authorization") != "Basic YTpi":
            self._answer(401, {})
        elif number not in SCHEMAS:
            self._answer(404, {"error_code": 40403})
        else:
            kind = {"schemaType": "JSON"} if number == 6 else {}
            self._answer(200, {"schema": json.dumps(SCHEMAS[number]), **kind})

    def _answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.asked, Handler.later, Handler.is_cut = [], {}, False
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def framed(number: int, record: dict[str, Any]) -> bytes:
    """A value as producers with a registry write it."""
    content = BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(SCHEMAS[number]), record)
    return b"\0" + number.to_bytes(4) + content.getvalue()


def test_each_value_is_read_with_its_own_schema_which_is_fetched_once(address: str) -> None:
    registry = RemoteRegistry(address, "a:b")
    values = [
        framed(1, {"zone": "a", "fare": 1.5}),
        framed(2, {"zone": "b", "fare": 2.0, "tip": 0.5}),
        framed(1, {"zone": "c", "fare": 3.0}),
    ]
    bodies = registry.bodies(values, AVRO)
    assert isinstance(bodies, TableBodies)
    decoded = decoder_of(Wanted((("zone",), ("tip",))), AVRO).decode(bodies)
    assert decoded.fields[("zone",)].to_list() == ["a", "b", "c"]
    assert decoded.fields[("tip",)].to_list() == [None, 0.5, None]
    registry.bodies(values, AVRO)
    assert Handler.asked == ["/schemas/ids/1", "/schemas/ids/2"]


def test_a_value_that_cannot_be_read_costs_itself_alone(address: str) -> None:
    good = framed(1, {"zone": "a", "fare": 1.5})
    bodies = RemoteRegistry(address, "a:b").bodies(
        [b"{}", good, good[:7], framed(1, {"zone": "b", "fare": 1})[:5], b"\0\0\0\0\x09x", good], AVRO
    )
    decoded = decoder_of(Wanted((("zone",),)), AVRO).decode(bodies)
    assert decoded.fields[("zone",)].to_list() == ["a", "a"]
    assert decoded.rejected_events.tolist() == [0, 2, 3, 4]


def test_a_body_that_would_end_the_process_or_fill_its_memory_costs_itself_alone(address: str) -> None:
    deep = b"\0" + (3).to_bytes(4) + b"\x02" * 20_000 + b"\0"
    endless = b"\0" + (4).to_bytes(4) + b"\x80" * 5 + b"\x01\0"
    values = [framed(3, {"next": {"next": None}}), deep, endless, framed(1, {"zone": "a", "fare": 1.5})]
    decoded = decoder_of(Wanted(record=True), AVRO).decode(RemoteRegistry(address, "a:b").bodies(values, AVRO))
    assert decoded.rejected_events.tolist() == [1, 2]
    assert [Problem(one) for one in decoded.rejected_problems.tolist()] == [Problem.LIMIT_EXCEEDED] * 2


def test_a_body_of_a_schema_that_is_not_one_of_avro_costs_itself_alone(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    values = [b"\0" + (5).to_bytes(4) + b"a", b"\0" + (6).to_bytes(4) + b"a", framed(1, {"zone": "a", "fare": 1.5})]
    decoded = decoder_of(Wanted(record=True), AVRO).decode(RemoteRegistry(address, "a:b").bodies(values, AVRO))
    assert decoded.rejected_events.tolist() == [0, 1]
    assert f"schema 5 of {address} cannot be used, nor bodies with it" in caplog.text


def test_a_schema_that_comes_later_is_found(
    address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was missing until the job's end, so that one body with a number to come lost all those with its schema."""
    now_s = [0.0]
    monkeypatch.setattr(schema_registry, "_clock", lambda: now_s[0])
    registry = RemoteRegistry(address, "a:b")
    value = b"\0" + (7).to_bytes(4) + framed(1, {"zone": "a", "fare": 1.5})[5:]

    def rejected() -> list[int]:
        decoded = decoder_of(Wanted((("zone",),)), AVRO).decode(registry.bodies([value], AVRO))
        return list(decoded.rejected_events.tolist())

    assert [rejected(), rejected()] == [[0], [0]]
    assert Handler.asked == ["/schemas/ids/7"]
    assert caplog.text.count(f"{address} has no schema 7") == 1
    Handler.later = {7: {"schema": json.dumps(FIRST)}}
    now_s[0] += ASK_AGAIN_S
    assert rejected() == []


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_a_schema_that_is_wrong_or_lacks_a_reference_stops_no_job(
    address: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who publishes chooses it."""
    of_kind = {"schemaType": kind.upper()}
    lacking = {"references": [{"name": "other", "subject": "other", "version": 9}]}
    Handler.later = {
        7: {"schema": json.dumps(FIRST), **lacking, **of_kind},
        8: {"schema": "no such thing", **of_kind},
        10: {"schema": json.dumps(FIRST), "references": [{}], **of_kind},
    }
    values = [b"\0" + number.to_bytes(4) + b"\0x" for number in Handler.later]
    body_format = Format(kind)
    decoded = decoder_of(Wanted(record=True), body_format).decode(
        RemoteRegistry(address, "a:b").bodies(values, body_format)
    )
    assert decoded.rejected_events.tolist() == [0, 1, 2]
    assert f"{address} has no schema 7, or not all that it refers to" in caplog.text
    assert f"schema 8 of {address} cannot be used" in caplog.text


def test_a_registry_that_ends_while_it_answers_is_waited_for(address: str) -> None:
    Handler.is_cut = True
    with pytest.raises(InputUnavailableError, match="cannot be reached"):
        RemoteRegistry(address, "a:b").bodies([framed(1, {"zone": "a", "fare": 1.5})], AVRO)


def test_json_loses_its_prefix() -> None:
    registry = RemoteRegistry("http://127.0.0.1:1")
    assert registry.bodies([b"\0\0\0\0\1{}", b'{"plain": 1}'], Format("json")) == [b"{}", b'{"plain": 1}']


def test_a_registry_that_refuses_or_is_away_is_no_bad_data(address: str) -> None:
    with pytest.raises(InputError, match="answers 401"):
        RemoteRegistry(address).bodies([framed(1, {"zone": "a", "fare": 1})], AVRO)
    with pytest.raises(InputUnavailableError, match="cannot be reached"):
        RemoteRegistry("http://127.0.0.1:1").bodies([framed(1, {"zone": "a", "fare": 1})], AVRO)
    assert "a:b" not in repr(RemoteRegistry(address, "a:b"))
