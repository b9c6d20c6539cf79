"""The hub's own registry as the registry of jobs: bodies of Kafka's serializers and of Azure's encoders, in one hub."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from azure.eventhub import EventData, EventHubProducerClient
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.patience import PATIENCE_S
from tidegate.connectors.inputs import schema_registry
from tidegate.connectors.inputs.event_hub import EventHubInput
from tidegate.connectors.inputs.kinds import LogOpening
from tidegate.connectors.inputs.schema_registry import RemoteRegistry
from tidegate.connectors.model.errors import InputError
from tidegate.engine import DEFAULT_LIMITS, Format, Wanted, decoder_of
from tidegate.hub import EventHubConfig, NamespaceConfig
from tidegate.schemas import Reference, SchemaFormat
from tidegate.server import BackgroundServer, Server

INNER = {"type": "record", "name": "Unit", "fields": [{"name": "name", "type": "string"}]}
SCHEMA = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "device", "type": "string"}, {"name": "unit", "type": "Unit"}],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = NamespaceConfig(name="ns", event_hubs=(EventHubConfig(name="eh", partition_count=1),))
    with BackgroundServer(config, tmp_path_factory.mktemp("data"), http_port=0, kafka_port=0) as running:
        yield running.server


def settings(server: Server, **more: Any) -> EventHubInput:
    return EventHubInput.model_validate(
        {
            "type": "eventhub",
            "connection_string": server.connection_string(hub="eh"),
            "format": "avro",
            "schema_registry": f"http://localhost:{server.http_port}/schema-registry",
            **more,
        }
    )


def publish(server: Server) -> None:
    """A body of Kafka's serializer, one of Azure's encoder with a schema that refers to another, and one of neither."""
    text = server.connection_string()
    user = f"$ConnectionString:{text}"
    registry = SchemaRegistryClient(
        {"url": f"http://localhost:{server.http_port}/schema-registry", "basic.auth.user.info": user}
    )
    whole = {**SCHEMA, "fields": [SCHEMA["fields"][0], {"name": "unit", "type": INNER}]}
    serializer = AvroSerializer(registry, json.dumps(whole))
    value = serializer({"device": "kafka", "unit": {"name": "m"}}, SerializationContext("eh", MessageField.VALUE))
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{server.kafka_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": text,
            "compression.type": "zstd",
        }
    )
    producer.produce("eh", value)
    assert producer.flush(PATIENCE_S) == 0
    own = server.namespace.schema_registry
    own.register("default", "unit", own.schema(SchemaFormat.AVRO, json.dumps(INNER)))
    references = [{"name": "Unit", "subject": "unit", "version": 1}]
    schema = own.schema(SchemaFormat.AVRO, json.dumps(SCHEMA), [Reference(**one) for one in references])
    version = own.register("azure", "Reading", schema)
    content = BytesIO()
    parsed = fastavro.parse_schema({**whole, "name": "Other"})
    fastavro.schemaless_writer(content, parsed, {"device": "azure", "unit": {"name": "km"}})
    with EventHubProducerClient.from_connection_string(text, eventhub_name="eh") as client:
        event = EventData(content.getvalue())
        event.content_type = f"avro/binary+{version.own_id}"
        client.send_batch([event, EventData(b"neither")], partition_id="0")


def test_both_forms_of_bodies_are_read(server: Server) -> None:
    publish(server)
    chosen = settings(server)
    log = chosen.open_log(LogOpening(limits=DEFAULT_LIMITS))
    try:
        end = log.ends()["0"].end
        (events,) = log.range("0", 0, end).read_events(100)
        decoded = decoder_of(Wanted((("device",), ("unit",))), events.format).decode(events.bodies)
    finally:
        log.close()
    assert decoded.fields[("device",)].to_list() == ["kafka", "azure"]
    assert decoded.fields[("unit",)].to_list() == [{"name": "m"}, {"name": "km"}]
    assert decoded.rejected_events.tolist() == [2]


UNIT = 'syntax = "proto3"; package fleet; message Unit { string name = 1; }'
RIDE = """
syntax = "proto3";
package fleet;
import "unit.proto";
import "google/protobuf/timestamp.proto";
message Other { int32 n = 1; }
message Ride {
  message Stop { string place = 1; }
  string device = 1;
  Unit unit = 2;
  google.protobuf.Timestamp at = 3;
}
"""


@pytest.mark.parametrize("serialized", [True, False])
def test_messages_of_protobuf_are_read_with_their_schema(
    server: Server, serialized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = server.namespace.schema_registry
    own.register("default", "pb-unit", own.schema(SchemaFormat.PROTOBUF, UNIT))
    schema = own.schema(SchemaFormat.PROTOBUF, RIDE, [Reference("unit.proto", "pb-unit", 1)])
    number = own.register("default", "pb-ride-value", schema).schema_id
    if not serialized:  # registries other than Confluent's and the hub's know texts only
        fetched = RemoteRegistry.fetched
        monkeypatch.setattr(
            RemoteRegistry, "fetched", lambda one, path: fetched(one, re.sub("[?&]format=serialized", "", path))
        )
        schema_registry._message_reader.cache_clear()
    chosen = settings(server, format="protobuf")
    registry = chosen.registry(chosen.connection_string)
    assert registry is not None
    head = b"\0" + number.to_bytes(4, "big")
    ride = b"\n\x03car" + b"\x12\x04\n\x02km" + b"\x1a\x02\x08\x01"
    values = [
        head + b"\x02\x02" + ride,  # one index, 1: Ride
        head + b"\0" + b"\x08\x07",  # the first message of the file
        head + b"\x04\x02\0" + b"\n\x01x",  # two indexes: Ride.Stop
        head + b"\x02\x12" + ride,  # no such message
        head + b"\x02\x02" + ride[:-1],
        head,
        b"\0" + (1 << 30).to_bytes(4, "big") + b"\0" + ride,
        b"{}",
    ]
    bodies = registry.bodies(values, chosen.body_format(DEFAULT_LIMITS))
    wanted = Wanted((("device",), ("unit",), ("at",), ("n",), ("place",)))
    decoded = decoder_of(wanted, chosen.body_format(DEFAULT_LIMITS)).decode(bodies)
    assert decoded.fields[("device",)].to_list() == ["car", None, None]
    assert decoded.fields[("unit",)].to_list() == [{"name": "km"}, None, None]
    assert decoded.fields[("at",)].to_list() == ["1970-01-01T00:00:01Z", None, None]
    assert decoded.fields[("n",)].to_list() == [None, 7, None]
    assert decoded.fields[("place",)].to_list() == [None, None, "x"]
    assert decoded.rejected_events.tolist() == [3, 4, 5, 6, 7]


def test_a_registry_names_the_message_so_that_the_settings_need_not(server: Server) -> None:
    with pytest.raises(ValueError, match="'deserializer' is not for bodies whose schema is in a registry"):
        settings(server, format="protobuf", deserializer="a.proto:M")
    with pytest.raises(ValueError, match="needs a 'deserializer'"):
        settings(server, format="protobuf", schema_registry=None)


def test_the_hub_s_key_goes_to_no_other_host(server: Server, tmp_path: Path) -> None:
    there = settings(server, schema_registry="http://registry.example:8081")
    registry = there.registry(there.connection_string)
    assert registry is not None
    assert registry.user == ""
    named = settings(server, schema_registry_username="u", schema_registry_password="p").registry("Endpoint=sb://x/")
    assert named is not None
    assert named.user == "u:p"


def test_a_wrong_key_is_named_as_the_cause(server: Server) -> None:
    wrong = settings(server, schema_registry_username="RootManageSharedAccessKey", schema_registry_password="x")
    registry = wrong.registry()
    assert registry is not None
    with pytest.raises(InputError, match="answers 401"):
        registry.bodies([b"\0" + (1).to_bytes(4) + b"a"], Format("avro"))
