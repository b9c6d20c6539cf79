"""Confluent's own serializers and registry client against the hub, unmodified; and the contract by plain HTTP."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.patience import PATIENCE_S
from tests.server.conftest import KEY, RULE
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.server import Server

VALUE = MessageField.VALUE


def base_of(server: Server) -> str:
    return f"https://localhost:{server.https_port}/schema-registry"


def client_of(server: Server, user: str = f"{RULE}:{KEY}") -> SchemaRegistryClient:
    assert server.certificate is not None
    return SchemaRegistryClient(
        {
            "url": base_of(server),
            "basic.auth.user.info": user,
            "ssl.ca.location": str(server.certificate.authority_file),
            "max.retries": 0,
        }
    )


@pytest.fixture
def registry(server: Server) -> Iterator[SchemaRegistryClient]:
    with client_of(server) as client:
        yield client


@pytest.fixture
def subject(hub: str) -> str:
    return f"{hub}-value"


def record(*names: str, default: bool = True) -> str:
    fields = [{"name": name, "type": "int", **({"default": 0} if default else {})} for name in names]
    return json.dumps({"type": "record", "name": "Reading", "fields": fields})


def code_of(error: pytest.ExceptionInfo[SchemaRegistryError]) -> tuple[int, int]:
    return error.value.http_status_code, error.value.error_code


def test_avro(registry: SchemaRegistryClient, server: Server, hub: str, subject: str) -> None:
    serializer = AvroSerializer(registry, record("a", "b"))
    context = SerializationContext(hub, VALUE)
    data = serializer({"a": 1, "b": 2}, context)
    assert data is not None
    assert data[0] == 0
    with client_of(server) as other:
        assert AvroDeserializer(other)(data, context) == {"a": 1, "b": 2}
        # a reader of a later version reads what an earlier one wrote
        other.register_schema(subject, Schema(record("a", "b", "c"), "AVRO"))
        assert AvroDeserializer(other, record("a", "c"))(data, context) == {"a": 1, "c": 0}
    assert registry.get_latest_version(subject).version == 2


def test_json_schema(registry: SchemaRegistryClient, hub: str) -> None:
    schema = {"title": "R", "type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    context = SerializationContext(hub, VALUE)
    data = JSONSerializer(json.dumps(schema), registry)({"a": 1}, context)
    assert data is not None
    assert JSONDeserializer(json.dumps(schema), schema_registry_client=registry)(data, context) == {"a": 1}
    assert registry.get_latest_version(f"{hub}-value").schema.schema_type == "JSON"


def message_class() -> Any:
    """A message with an import of its own and one of protobuf's."""
    pool = descriptor_pool.Default()
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    except KeyError:
        pass
    item = descriptor_pb2.FileDescriptorProto(name="shop/item.proto", package="shop", syntax="proto3")
    one = item.message_type.add(name="Item")
    one.field.add(name="count", number=1, type=5, label=1)
    order = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto",
        package="shop",
        syntax="proto3",
        dependency=["shop/item.proto", "google/protobuf/timestamp.proto"],
    )
    two = order.message_type.add(name="Order")
    two.field.add(name="item", number=1, type=11, label=1, type_name=".shop.Item")
    two.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    from google.protobuf import timestamp_pb2

    assert timestamp_pb2.Timestamp
    pool.Add(item)
    pool.Add(order)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf(registry: SchemaRegistryClient, hub: str, subject: str) -> None:
    order = message_class()
    value = order(item={"count": 3})
    context = SerializationContext(hub, VALUE)
    data = ProtobufSerializer(order, registry)(value, context)
    assert data is not None
    assert ProtobufDeserializer(order, schema_registry_client=registry)(data, context) == value
    found = registry.get_latest_version(subject)
    assert [one.name for one in found.schema.references] == ["shop/item.proto"]
    assert "message Order" in found.schema.schema_str
    assert base64.b64decode(registry.get_latest_version(subject, fmt="serialized").schema.schema_str)
    # the text that clients in Java send is the same schema
    again = registry.register_schema(subject, found.schema)
    assert again == found.schema_id


def test_versions_and_ids(registry: SchemaRegistryClient, subject: str) -> None:
    first = registry.register_schema(subject, Schema(record("v1")))
    assert registry.register_schema(subject, Schema(record("v1"))) == first
    second = registry.register_schema(subject, Schema(record("v1", "v2")))
    assert registry.get_versions(subject) == [1, 2]
    assert registry.get_version(subject, 1).schema_id == first
    assert registry.lookup_schema(subject, Schema(record("v1", "v2"))).version == 2
    assert registry.get_schema(second).schema_str == record("v1", "v2")
    guid = registry.get_latest_version(subject).guid
    assert registry.get_schema_by_guid(guid).schema_str == record("v1", "v2")
    assert registry.get_subjects_by_schema_id(first) == [subject]
    assert [one.version for one in registry.get_schema_versions(second)] == [2]
    assert subject in registry.get_subjects()
    assert set(registry.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert "." in registry.get_contexts()


def test_compatibility(registry: SchemaRegistryClient, subject: str) -> None:
    registry.register_schema(subject, Schema(record("a")))
    breaking = Schema(record("z", default=False))
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema(subject, breaking)
    assert code_of(refused) == (409, 409)
    assert registry.test_compatibility(subject, breaking) is False
    assert registry.test_compatibility(subject, Schema(record("a", "b"))) is True
    assert registry.test_compatibility_all_versions(subject, breaking) is False
    assert registry.get_compatibility() == "BACKWARD"
    with pytest.raises(SchemaRegistryError) as refused:
        registry.get_compatibility(subject)
    assert code_of(refused) == (404, 40408)
    registry.set_compatibility(subject, "NONE")
    assert registry.get_config(subject).compatibility_level == "NONE"
    assert registry.register_schema(subject, breaking)
    registry.delete_config(subject)
    with pytest.raises(SchemaRegistryError) as refused:
        registry.set_compatibility(subject, "SOMEHOW")
    assert code_of(refused) == (422, 42203)


def test_modes(registry: SchemaRegistryClient, subject: str) -> None:
    assert registry.get_global_mode() == "READWRITE"
    registry.update_mode(subject, "READONLY")
    assert registry.get_mode(subject) == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema(subject, Schema(record("a")))
    assert code_of(refused) == (422, 42205)
    registry.delete_mode(subject)
    with pytest.raises(SchemaRegistryError) as refused:
        registry.get_mode(subject)
    assert code_of(refused) == (404, 40409)


def test_deletions(registry: SchemaRegistryClient, subject: str) -> None:
    for names in ("a", "ab"):
        registry.register_schema(subject, Schema(record(*names)))
    assert registry.delete_version(subject, 1) == 1
    assert registry.get_versions(subject) == [2]
    assert registry.get_versions(subject, deleted=True) == [1, 2]
    with pytest.raises(SchemaRegistryError) as refused:
        registry.delete_version(subject, 1)
    assert code_of(refused) == (404, 40406)
    with pytest.raises(SchemaRegistryError) as refused:
        registry.delete_version(subject, 2, permanent=True)
    assert code_of(refused) == (404, 40407)
    registry.delete_subject(subject)
    assert registry.delete_subject(subject, permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError) as refused:
        registry.get_versions(subject, deleted=True)
    assert code_of(refused) == (404, 40401)


def test_subjects_with_slashes_and_in_other_contexts(registry: SchemaRegistryClient, hub: str) -> None:
    for subject in (f"{hub}/a b%-value", f":.of-{hub}:s"):
        registry.register_schema(subject, Schema(record("a")))
        assert registry.get_latest_version(subject).subject == subject
    assert f".of-{hub}" in registry.get_contexts()


def test_references(registry: SchemaRegistryClient, hub: str) -> None:
    registry.register_schema(f"{hub}-inner", Schema(record("a")))
    outer = '{"type":"record","name":"Outer","fields":[{"name":"r","type":"Reading"}]}'
    reference = SchemaReference("Reading", f"{hub}-inner", 1)
    schema_id = registry.register_schema(f"{hub}-outer", Schema(outer, "AVRO", [reference]))
    assert registry.get_referenced_by(f"{hub}-inner", 1) == [schema_id]
    assert registry.get_schema(schema_id).references == [reference]
    with pytest.raises(SchemaRegistryError) as refused:
        registry.delete_version(f"{hub}-inner", 1)
    assert code_of(refused) == (422, 42206)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda registry, subject: registry.get_schema(10**6), (404, 40403)),
        (lambda registry, subject: registry.get_latest_version(subject), (404, 40401)),
        (lambda registry, subject: registry.register_schema(subject, Schema("{")), (422, 42201)),
        (lambda registry, subject: registry.register_schema(subject, Schema("{}", "XML")), (422, 42201)),
        (lambda registry, subject: registry.get_version(subject, 0), (422, 42202)),
    ],
)
def test_errors_have_confluent_s_codes(
    registry: SchemaRegistryClient, subject: str, call: Any, expected: tuple[int, int]
) -> None:
    with pytest.raises(SchemaRegistryError) as refused:
        call(registry, subject)
    assert code_of(refused) == expected


def test_a_key_may_do_what_its_rule_allows_and_no_more(server: Server, hub: str, subject: str) -> None:
    management = server.namespace.management
    for right in Right:
        management.create_access_rule(AccessRule.create(f"{hub}-{right.value}", [right]), "")
        management.create_access_rule(AccessRule.create(f"own-{right.value}", [right]), hub)
    table = server.namespace.access.rule_table

    def of(name: str, level: str = "") -> SchemaRegistryClient:
        return client_of(server, f"{name}:{table.rule(name, level).primary_key}")

    schema = Schema(record("a"))
    with of(f"{hub}-Listen") as listening, of("own-Send", hub) as sending, of("own-Manage", hub) as managing:
        with pytest.raises(SchemaRegistryError) as refused:
            listening.register_schema(subject, schema)
        assert code_of(refused) == (403, 40301)
        schema_id = sending.register_schema(subject, schema)
        assert listening.get_schema(schema_id).schema_str == record("a")
        for client in (sending, managing):
            with pytest.raises(SchemaRegistryError) as refused:
                client.register_schema("another-hub-value", schema)
            assert code_of(refused) == (403, 40301)
        assert sending.get_subjects() == [subject]
        with pytest.raises(SchemaRegistryError) as refused:
            sending.delete_subject(subject)
        assert code_of(refused) == (403, 40301)
        assert managing.delete_subject(subject) == [1]
        with pytest.raises(SchemaRegistryError) as refused:
            managing.set_compatibility(level="NONE")
        assert code_of(refused) == (403, 40301)
    with client_of(server) as owner:
        hidden = owner.register_schema(f"{hub}-secret", Schema(record("hidden", hub)))
    with of("own-Send", hub) as sending, pytest.raises(SchemaRegistryError) as refused:
        sending.get_schema(hidden)
    assert code_of(refused) == (404, 40403)


def test_a_key_refers_to_no_schema_that_it_may_not_read(server: Server, hub: str, subject: str) -> None:
    rule = AccessRule.create("own", [Right.SEND])
    server.namespace.management.create_access_rule(rule, hub)
    nested = '{"type":"record","name":"Outer","fields":[{"name":"r","type":%s}]}'
    with client_of(server) as owner, client_of(server, f"own:{rule.primary_key}") as sending:
        owner.register_schema(f"{hub}-secret", Schema(record("hidden", default=False)))
        sending.register_schema(subject, Schema(nested % record()))
        for name in (f"{hub}-secret", f"{hub}-nothing"):
            outer = Schema(nested % '"Reading"', "AVRO", [SchemaReference("Reading", name, 1)])
            for call in (sending.test_compatibility, sending.register_schema, sending.lookup_schema):
                with pytest.raises(SchemaRegistryError, match=f"Subject '{name}' not found") as refused:
                    call(subject, outer)
                assert code_of(refused) == (422, 42201)
        owner.delete_subject(f"{hub}-secret")


@pytest.mark.parametrize("user", ["RootManageSharedAccessKey:wrong", "nobody:x", "x"])
def test_a_wrong_key_is_refused(server: Server, user: str) -> None:
    with client_of(server, user if ":" in user else f"{user}:") as client:
        with pytest.raises(SchemaRegistryError) as refused:
            client.get_subjects()
        assert code_of(refused) == (401, 401)


def test_a_connection_string_is_a_password_too(server: Server) -> None:
    string = server.connection_string()
    request = urllib.request.Request(f"http://localhost:{server.http_port}/schema-registry/subjects")
    request.add_header("Authorization", f"Basic {base64.b64encode(f'$ConnectionString:{string}'.encode()).decode()}")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"] == "application/vnd.schemaregistry.v1+json"
        assert isinstance(json.load(answer), list)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://localhost:{server.http_port}/schema-registry/subjects", timeout=PATIENCE_S)
