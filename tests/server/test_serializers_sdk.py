"""Serializers of Confluent's and Azure's, unmodified: they register, their producers send, and a job decodes."""

from __future__ import annotations

import decimal
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.eventhub import EventData, EventHubProducerClient
from azure.schemaregistry import SchemaRegistryClient as AzureRegistryClient
from azure.schemaregistry.encoder.avroencoder import AvroEncoder
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.patience import PATIENCE_S
from tests.server.conftest import KEY, RULE
from tidegate.connectors.inputs.event_hub import EventHubInput
from tidegate.connectors.inputs.kinds import LogOpening
from tidegate.engine import DEFAULT_LIMITS, Wanted, decoder_of
from tidegate.hub.access import sign
from tidegate.server import Server

IN_HEADER = {"schema.id.serializer": header_schema_id_serializer}
PLACES: list[dict[str, Any]] = [{}, IN_HEADER]

PROTOS = {
    "units.proto": """
syntax = "proto3";
package depot.v1;
message First { string name = 1; }
message Unit { string name = 1; enum Kind { METRIC = 0; IMPERIAL = 1; } Kind kind = 2; }
""",
    "rides.proto": """
syntax = "proto3";
package depot.v1;
import "units.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other { int32 number = 1; }
message Ride {
  message Before { int32 number = 1; }
  message Leg {
    message Stop { string place = 1; }
    string origin = 1;
    repeated Stop stops = 2;
  }
  string device = 1;
  Unit unit = 2;
  google.protobuf.Timestamp at = 3;
  repeated Leg legs = 4;
  map<string, int32> counts = 5;
  oneof fare { string token = 6; int32 cents = 7; }
  google.protobuf.Int64Value tip = 8;
  optional string note = 9;
}
""",
}


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The classes that protoc makes of a schema with an import of its own."""
    folder = tmp_path_factory.mktemp("protos")
    for name, text in PROTOS.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={folder}", *PROTOS]
    subprocess.run(command, check=True)
    sys.path.insert(0, str(folder))
    try:
        units, rides = (importlib.import_module(f"{name}_pb2") for name in ("units", "rides"))
    finally:
        sys.path.remove(str(folder))
    yield SimpleNamespace(Unit=units.Unit, Ride=rides.Ride, Other=rides.Other)
    for name in ("units_pb2", "rides_pb2"):
        del sys.modules[name]


def address_of(server: Server) -> str:
    return f"http://localhost:{server.http_port}/schema-registry"


@pytest.fixture
def registry(server: Server) -> Iterator[SchemaRegistryClient]:
    user = f"$ConnectionString:{server.connection_string()}"
    with SchemaRegistryClient({"url": address_of(server), "basic.auth.user.info": user}) as client:
        yield client


@pytest.fixture
def send(server: Server, hub: str) -> Callable[..., None]:
    """Send values with the serializers that are given, to partition 0."""
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{server.kafka_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": server.connection_string(),
            "compression.type": "lz4",
        }
    )

    def send_all(*pairs: tuple[Any, Any]) -> None:
        for serializer, value in pairs:
            headers: list[tuple[str, Any]] = [("colour", b"red")]
            data = serializer(value, SerializationContext(hub, MessageField.VALUE, headers))
            producer.produce(hub, data, partition=0, headers=headers)
        assert producer.flush(PATIENCE_S) == 0

    return send_all


def decoded(server: Server, hub: str, form: str, *names: str) -> tuple[list[list[Any]], list[int]]:
    """Return what a job finds in partition 0: the columns, and the numbers of the events that it rejects."""
    settings = EventHubInput.model_validate(
        {
            "type": "eventhub",
            "connection_string": server.connection_string(hub=hub),
            "format": form,
            "schema_registry": address_of(server),
        }
    )
    log = settings.open_log(LogOpening(limits=DEFAULT_LIMITS))
    try:
        end = log.ends()["0"].end
        found = list(log.range("0", 0, end).read_events(1000))
    finally:
        log.close()
    columns: list[list[Any]] = [[] for _ in names]
    rejected: list[int] = []
    for events in found:
        table = decoder_of(Wanted(tuple((name,) for name in names)), events.format).decode(events.bodies)
        for column, name in zip(columns, names, strict=True):
            column += table.fields[(name,)].to_list()
        rejected += events.sequence_numbers[table.rejected_events].tolist()
    return columns, rejected


AVRO = {
    "type": "record",
    "name": "Reading",
    "namespace": "depot",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "unit", "type": ["null", {"type": "enum", "name": "Unit", "symbols": ["KM", "MI"]}], "default": None},
    ],
}


def test_avro_of_confluent_s_serializer(
    server: Server, hub: str, registry: SchemaRegistryClient, send: Callable[..., None]
) -> None:
    later = {**AVRO, "fields": [*AVRO["fields"], {"name": "more", "type": "long", "default": 1}]}
    value = {"device": "a", "price": decimal.Decimal("1.25"), "unit": "KM"}
    send(
        (AvroSerializer(registry, json.dumps(AVRO)), value),
        (AvroSerializer(registry, json.dumps(AVRO), conf=IN_HEADER), {**value, "device": "b", "unit": None}),
        (AvroSerializer(registry, json.dumps(later)), {**value, "device": "c", "more": 7}),
        (lambda value, context: value, b"\0\0"),
    )
    columns, rejected = decoded(server, hub, "avro", "device", "price", "unit", "more")
    assert columns == [["a", "b", "c"], [1.25] * 3, ["KM", None, "KM"], [None, None, 7]]
    assert rejected == [3]


@pytest.mark.parametrize("options", PLACES, ids=["before", "header"])
def test_json_of_confluent_s_serializer(
    server: Server, hub: str, registry: SchemaRegistryClient, send: Callable[..., None], options: dict[str, Any]
) -> None:
    schema = {"title": "Reading", "type": "object", "properties": {"device": {"type": "string"}}}
    send((JSONSerializer(json.dumps(schema), registry, conf=options), {"device": "a"}))
    assert decoded(server, hub, "json", "device") == ([["a"]], [])


@pytest.mark.parametrize("options", PLACES, ids=["before", "header"])
def test_protobuf_of_confluent_s_serializer(
    server: Server,
    hub: str,
    registry: SchemaRegistryClient,
    send: Callable[..., None],
    messages: Any,
    options: dict[str, Any],
) -> None:
    """Messages of one file, at the top and inside others, with types of another file and of protobuf's own."""
    ride = messages.Ride(device="car", counts={"x": 1}, cents=250, unit=messages.Unit(name="km", kind=1))
    ride.at.seconds = 5
    ride.tip.value = 7
    ride.legs.add(origin="north").stops.add(place="gate")
    sent: Sequence[Any] = (
        ride,
        messages.Other(number=4),
        messages.Ride.Before(number=5),
        messages.Ride.Leg(origin="south"),
        messages.Ride.Leg.Stop(place="deep"),
    )
    send(*((ProtobufSerializer(type(one), registry, conf=options), one) for one in sent))
    columns, rejected = decoded(server, hub, "protobuf", "device", "number", "origin", "place")
    assert (columns[0], columns[1]) == (["car", None, None, None, None], [None, 4, 5, None, None])
    assert (columns[2], columns[3]) == ([None, None, None, "south", None], [None, None, None, None, "deep"])
    assert rejected == []
    names = ("unit", "at", "legs", "counts", "token", "cents", "tip", "note")
    columns, _ = decoded(server, hub, "protobuf", *names)
    assert [column[0] for column in columns] == [
        {"name": "km", "kind": "IMPERIAL"},
        "1970-01-01T00:00:05Z",
        [{"origin": "north", "stops": [{"place": "gate"}]}],
        {"x": 1},
        None,
        250,
        7,
        None,
    ]
    assert [one.name for one in registry.get_latest_version(f"{hub}-value").schema.references] == ["units.proto"]


class Stranger:
    """A credential: what it says is replaced by a signature, as no directory of Azure's is there."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken("replaced", 2**31)


def test_avro_of_azure_s_encoder(server: Server, hub: str) -> None:
    host = f"localhost:{server.https_port}"
    assert server.certificate is not None

    def signed(request: Any) -> None:
        request.http_request.headers["Authorization"] = sign(f"sb://{host}", RULE, KEY, 2**32)

    verify = str(server.certificate.authority_file)
    own = {**AVRO, "name": hub.title()}
    with (
        AzureRegistryClient(host, Stranger(), connection_verify=verify, raw_request_hook=signed) as client,
        AvroEncoder(client=client, group_name="default", auto_register=True) as encoder,
        EventHubProducerClient.from_connection_string(server.connection_string(), eventhub_name=hub) as producer,
    ):
        value = {"device": "a", "price": decimal.Decimal("1.25"), "unit": "MI"}
        event: Any = encoder.encode(value, schema=json.dumps(own), message_type=EventData)
        producer.send_batch([event, EventData(b"neither")], partition_id="0")
        assert encoder.decode(event)["device"] == "a"
    assert decoded(server, hub, "avro", "device", "price", "unit") == ([["a"], [1.25], ["MI"]], [1])
