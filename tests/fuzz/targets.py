"""What bytes from outside go into. A target returns for whatever it is given, or it has found something."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from tests.amqp.pair import BEGIN, OPEN, SASL_START, attach, credit, transfer
from tests.amqp.test_conversation import Owner
from tests.fuzz import jobs, kafka
from tests.hub.support import NOW_S, open_namespace, token
from tests.log.support import append, open_log, stored
from tidegate.amqp import BATCH_FORMAT, Connection, ConnectionSettings, DecodeError
from tidegate.amqp.encoding.codec import decode, encode, skip
from tidegate.amqp.encoding.types import Described, Symbol
from tidegate.amqp.messages import (
    Message,
    Properties,
    annotate,
    annotate_run,
    encode_message,
    message_annotation,
    parse_message,
    split_batch,
    with_annotations,
)
from tidegate.azure.management.access.requests import ArmError, parse_json, read_payload
from tidegate.azure.management.event_hubs.payloads import EventHubPayload, KeyPayload, NamespacePayload, RulePayload
from tidegate.durable_files import FileDamaged
from tidegate.hub.addresses import path_of, publish_target, receive_source
from tidegate.hub.capture.journal import CaptureJournal, CaptureState, JournalDamaged
from tidegate.hub.config import ConfigError, parse_config
from tidegate.hub.errors import HubError
from tidegate.hub.positions import parse_selector
from tidegate.hub.snapshot import FILE_NAME, read_state
from tidegate.log import Appended, Document, LogDamaged, LogError, PartitionStore
from tidegate.log.entry import EntryView, encode_entry, walk_past_damage
from tidegate.log.partition_log import FolderDocument
from tidegate.log.segment import SegmentName, decode_index
from tidegate.server.http.routes.publishing import BATCH_CONTENT_TYPE, parse_publication

EVENT = encode_message(
    Message(
        message_annotations={Symbol("x-opt-partition-key"): "key", Symbol("n"): 7},
        properties=Properties(message_id="id", content_type=Symbol("text/plain")),
        application_properties={"a": 1, "b": "two", "c": 3.5, "d": None, "e": True},
        body_kind="data",
        body=[b"body"],
    )
)
PLAIN = encode_message(Message(body_kind="data", body=[b"x" * 40]))
BATCH = encode_message(Message(body_kind="data", body=[EVENT, PLAIN, EVENT]))
CONVERSATION = (
    SASL_START
    + OPEN
    + BEGIN
    + attach(0, name="publisher")
    + attach(1, name="reader", sender=False)
    + credit(5, handle=1)
    + transfer(0, PLAIN * 4, more=True)
    + transfer(0, PLAIN)
    + transfer(1, EVENT, settled=True)
)
RUN = b"".join(transfer(number, PLAIN) for number in range(300, 305))
CONFIG = {
    "UserConfig": {
        "NamespaceConfig": [
            {
                "Type": "EventHub",
                "Name": "emulatorNs1",
                "Entities": [{"Name": "eh1", "PartitionCount": "2", "ConsumerGroups": [{"Name": "cg1"}]}],
            }
        ],
        "LoggingConfig": {"Type": "File"},
    }
}


class Target(NamedTuple):
    """`run` takes any bytes; `seeds` are valid ones. A slow target is run fewer times."""

    run: Callable[[bytes], None]
    seeds: Sequence[bytes]
    slowness: int = 1


def codec(data: bytes) -> None:
    """What decodes encodes to something that decodes to the same, and is as long as skipping says."""
    try:
        value, end = decode(data)
    except DecodeError:
        return
    assert 0 < end <= len(data)
    assert skip(data, 0) == end
    again, _ = decode(encode(value))
    assert repr(again) == repr(value)


def _receive(connection: Connection, data: bytes) -> None:
    owner = Owner(connection)
    sent = 0
    for start in range(0, len(data), 700):
        sent += len(owner.receive(data[start : start + 700]))
    connection.tick(10**9)
    connection.data_to_send()
    owner.finish()
    assert sent <= (1 << 16) + 4096 * len(data), "a little input makes no flood of output"


def server(data: bytes) -> None:
    """A peer of the hub that has said hello, or has not."""
    _receive(Connection("server", "server", ConnectionSettings(idle_timeout_ms=1000, joined_transfers=True)), data)


def opened(data: bytes) -> None:
    """A peer with a publisher's link and a reader's."""
    _receive(Connection("server", "server", ConnectionSettings(joined_transfers=True)), CONVERSATION + data)


def client(data: bytes) -> None:
    """A hub that our client talks to."""
    connection = Connection("client", "client")
    connection.open()
    connection.begin().attach_sender("s", "hub")
    connection.data_to_send()
    connection.receive_data(data)
    connection.tick(10**9)
    connection.data_to_send()
    connection.receive_eof()


def message(data: bytes) -> None:
    """Reading a message, splitting a batch, and what is put into events on their way out."""
    for read in (parse_message, split_batch, lambda found: message_annotation(found, "x-opt-partition-key")):
        with contextlib.suppress(DecodeError):
            read(data)
    try:
        annotated = annotate(with_annotations(data, {"x-opt-partition-key": "k"}), 7, 123, 1_700_000_000_000)
    except DecodeError:
        return
    try:
        parse_message(data)
    except DecodeError:
        return
    found = parse_message(annotated).message_annotations or {}
    assert (found["x-opt-sequence-number"], found["x-opt-offset"], found["x-opt-partition-key"]) == (7, "123", "k")


class _Hub:
    """A namespace whose logs take everything and keep nothing."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.namespace = open_namespace(Path(self._folder.name))
        self.stored: list[bytes] = []
        for partition in self.namespace.event_hub("tolls").partitions:
            partition.log.append = self._append
        grants = [self.namespace.access.check_token(token(""), NOW_S)]
        targets = ("tolls", "tolls/Partitions/1", "tolls/Publishers/p1")
        self.publishers = [self.namespace.open_publisher(target, grants, NOW_S) for target in targets]

    def _append(
        self, events: Sequence[bytes | memoryview], on_durable: Callable[[Any], None], numbering: Any = None
    ) -> None:
        self.stored = [bytes(event) for event in events]
        on_durable(Appended(0, len(events), 0, 4 * (len(events) - 1), 0))


_HUB: list[_Hub] = []


def _hub() -> _Hub:
    if not _HUB:
        _HUB.append(_Hub())
    return _HUB[0]


def publication(data: bytes) -> None:
    """What a publisher sends: refused, or stored so that readers can be given it."""
    hub = _hub()
    for publisher in hub.publishers:
        for message_format in (0, BATCH_FORMAT):
            hub.stored = []
            try:
                publisher.publish(message_format, data, lambda error: None)
            except HubError:
                assert not hub.stored
                continue
            _deliver(hub.stored)
        answered: list[int] = []
        publisher.publish_singles([PLAIN, data, data], lambda indexes, _, answered=answered: answered.extend(indexes))
        assert sorted(answered) == [0, 1, 2]
        _deliver(hub.stored)


def _deliver(stored: list[bytes]) -> None:
    assert stored
    annotated = annotate_run(stored, 7, range(0, 4 * len(stored), 4), 1_700_000_000_000)
    assert len(annotated) == len(stored)


def selector(data: bytes) -> None:
    """A reader's filter."""
    with contextlib.suppress(HubError):
        parse_selector(data.decode("utf-8", "surrogateescape"))


def access(data: bytes) -> None:
    """Tokens and addresses."""
    text = data.decode("utf-8", "replace")
    namespace = _hub().namespace
    for read in (path_of, publish_target, receive_source, lambda text: namespace.access.check_token(text, NOW_S)):
        with contextlib.suppress(HubError):
            read(text)
    with contextlib.suppress(HubError):
        namespace.put_token(text, token("tolls"), NOW_S)


def http_single(data: bytes) -> None:
    """A request with one event; its headers are the first line."""
    line, _, body = data.partition(b"\n")
    headers = {name: line.decode("latin-1") for name in ("brokerproperties", "alert", "content-type")}
    for name in headers:
        try:
            events, _ = parse_publication({name: headers[name]}, body, {"alert": "Alert"})
        except HubError:
            continue
        assert [parse_message(event).body for event in events] == [[body]]


def http_batch(data: bytes) -> None:
    """A batch as JSON."""
    try:
        events, _ = parse_publication({"content-type": BATCH_CONTENT_TYPE}, data)
    except HubError:
        return
    assert [parse_message(event).body_kind for event in events] == ["data"] * len(events)


def management(data: bytes) -> None:
    """A request to the management API."""
    for model in (EventHubPayload, NamespacePayload, RulePayload, KeyPayload):
        try:
            found = read_payload(model, parse_json(data))
            if isinstance(found, EventHubPayload):
                found.properties.retention_ms()
                found.properties.retention_bytes()
        except ArmError:
            continue


def config(data: bytes) -> None:
    """Config.json."""
    with contextlib.suppress(ConfigError):
        parse_config(data.decode("utf-8", "replace"))


class _OneDocument:
    """Stands for a partition's store that keeps one document."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def document(self, name: str, *, advice: str) -> Document:
        return FolderDocument(self._path, advice)


def state(data: bytes) -> None:
    """The files in which the hub and capture remember themselves."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE_NAME).write_bytes(data)
        (Path(folder) / "journal.json").write_bytes(data)
        with contextlib.suppress(ConfigError, FileDamaged):
            read_state(Path(folder))
        with contextlib.suppress(JournalDamaged):
            CaptureJournal(cast("PartitionStore", _OneDocument(Path(folder) / "journal.json"))).read()


def entries(data: bytes) -> None:
    """The content of a segment: what is intact comes, in order, and nothing else."""
    data = data[: len(data) // 8 * 8]
    position = 0
    for found in walk_past_damage(lambda at, size: data[at : at + size], 0, len(data), 64):
        if isinstance(found, EntryView):
            assert found.first_offset >= position
            assert len(found.events()) == found.count
            position = found.end_position
    index = decode_index(data, SegmentName(0, 0), len(data))
    assert len(index.positions) == len(index.sequences) == len(index.times_ms)


def segment(data: bytes) -> None:
    """The last segment of a log, with or without a record of what was acknowledged: it opens, and takes new events."""
    with tempfile.TemporaryDirectory() as folder:
        name = SegmentName(0, 0)
        (Path(folder) / name.file_name).write_bytes(data)
        if data and data[-1] % 2:
            (Path(folder) / "acknowledged").write_bytes(data[:44])
        try:
            log = open_log(Path(folder))
        except (FileDamaged, LogError):
            return
        sequence = append(log, [b"goes on"]).first_sequence_number
        assert stored(log, sequence)[0][3] == b"goes on"
        first = log.begin_sequence_number
        while first < sequence:
            try:
                first = stored(log, first)[-1][0] + 1
            except LogDamaged as damage:
                first = max(damage.resume_sequence_number, first + 1)
        log.close()


def _segments() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(Path(folder))
        for number in range(4):
            append(log, [b"first of %d" % number, b"second", b""])
        log.close()
        (path,) = Path(folder).glob("*.log")
        return [path.read_bytes(), (Path(folder) / "acknowledged").read_bytes() + path.read_bytes()[48:]]


def _entries() -> list[bytes]:
    first = b"".join(encode_entry([b"a", b"", b"ccc"], 0, 5, 0, 0))
    return [first + b"".join(encode_entry([b"d" * 100], 3, 6, len(first), len(first)))]


def _batch(**properties: Any) -> bytes:
    event = {"Body": "b", "UserProperties": {"a": 1, "t": "x"}, "BrokerProperties": {"PartitionKey": "k"}}
    return json.dumps([event, {"Body": "c", **properties}]).encode()


_VALUES: list[Any] = [None, True, 7, -7, 2**40, 1.5, "text", b"bytes", Symbol("s"), [1, "two", [3]], {"k": {"n": 1}}]
_CAPTURE = {"destination": "x", "intervalInSeconds": 60, "skipEmptyArchives": True}
_JOURNAL = CaptureState(archive_id="a", next_sequence_number=3, window_start_ms=60_000).model_dump_json()

TARGETS: dict[str, Target] = {
    "codec": Target(codec, [*map(encode, _VALUES), encode(Described(Symbol("d"), _VALUES)), EVENT, BATCH]),
    "server": Target(server, [CONVERSATION, SASL_START + OPEN], 4),
    "opened": Target(opened, [transfer(2, BATCH), RUN, credit(100, handle=1), attach(2, name="refused"), BEGIN], 4),
    "client": Target(client, [CONVERSATION, SASL_START + OPEN + BEGIN], 2),
    "message": Target(message, [EVENT, PLAIN, BATCH]),
    "publication": Target(publication, [EVENT, PLAIN, BATCH], 2),
    "selector": Target(
        selector, [b"amqp.annotation.x-opt-offset > '12'", b"amqp.annotation.x-opt-enqueued-time >= '1700000000000'"]
    ),
    "access": Target(
        access,
        [
            token("tolls").encode(),
            b"sb://localhost:5672/tolls/ConsumerGroups/$Default/Partitions/0",
            b"tolls/Publishers/a%2Fb",
        ],
    ),
    "http_single": Target(http_single, [b'{"PartitionKey": "7"}\nbody', b"text/plain\n{}", b'"high"\nx']),
    "http_batch": Target(http_batch, [_batch(), _batch(UserProperties='{"x": 2.5}', BrokerProperties="{}")]),
    "management": Target(
        management,
        [
            json.dumps({"partitionCount": 3, "retentionTimeInHours": 1.5, "capture": _CAPTURE}).encode(),
            json.dumps({"throughputUnits": 3, "maximumThroughputUnits": 4}).encode(),
            json.dumps({"rights": ["Send", "Manage"]}).encode(),
        ],
    ),
    "config": Target(config, [json.dumps(CONFIG).encode()]),
    "state": Target(state, [_JOURNAL.encode(), b'{"version": 1, "name": "n", "rules": []}'], 4),
    "entries": Target(entries, _entries()),
    "segment": Target(segment, _segments(), 10),
    **{name: Target(*seeded) for name, seeded in kafka.TARGETS.items()},
    **{name: Target(*seeded) for name, seeded in jobs.SEEDED.items()},
}

LONGEST_S = 2.0
"""Of the processor, which is the same however much else it has to do."""


def run(target: Target, data: bytes) -> None:
    """Run a target, and see that it does not take its time."""
    began_s = time.thread_time()
    target.run(data)
    took_s = time.thread_time() - began_s
    assert took_s < LONGEST_S, f"took {took_s:.1f} s"
