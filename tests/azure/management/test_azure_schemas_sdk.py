"""Azure's schema registry as its clients use it: groups by the management client, schemas by azure-schemaregistry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.eventhub import EventData
from azure.identity import ClientSecretCredential
from azure.mgmt.eventhub import EventHubManagementClient
from azure.schemaregistry import SchemaFormat, SchemaRegistryClient
from azure.schemaregistry.aio import SchemaRegistryClient as AsyncSchemaRegistryClient
from azure.schemaregistry.encoder.avroencoder import AvroEncoder

from tests.azure.management.conftest import SECRETS, Api
from tidegate.azure.management import PrincipalRole
from tidegate.hub.access import sign

SCHEMA = json.dumps(
    {
        "namespace": "example",
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "device", "type": "string"},
            {"name": "value", "type": ["null", "double"], "default": None},
        ],
    }
)
ARM_GROUP, NAMESPACE = "any-group", "emulatorNs1"


def credential_of(api: Api, role: PrincipalRole, secret: str = "") -> ClientSecretCredential:
    return ClientSecretCredential(
        "any-tenant",
        f"the-{role.value}",
        secret or SECRETS[role],
        authority=api.base_url,
        disable_instance_discovery=True,
        connection_verify=api.ca_file,
    )


def client_of(api: Api, role: PrincipalRole, secret: str = "") -> SchemaRegistryClient:
    return SchemaRegistryClient(
        f"localhost:{api.server.https_port}", credential_of(api, role, secret), connection_verify=api.ca_file
    )


@pytest.fixture
def management(api: Api) -> Iterator[EventHubManagementClient]:
    with EventHubManagementClient(
        credential_of(api, PrincipalRole.OWNER),
        "any-subscription",
        base_url=api.base_url,
        credential_scopes=[f"{api.base_url}/.default"],
        connection_verify=api.ca_file,
    ) as client:
        yield client


@pytest.fixture
def group(management: EventHubManagementClient, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"g-{abs(hash(request.node.name)) % 10**6}"
    properties = {"schemaType": "Avro", "schemaCompatibility": "Backward", "groupProperties": {"owner": "us"}}
    management.schema_registry.create_or_update(ARM_GROUP, NAMESPACE, name, {"properties": properties})
    yield name
    management.schema_registry.delete(ARM_GROUP, NAMESPACE, name)


@pytest.fixture
def client(api: Api) -> Iterator[SchemaRegistryClient]:
    with client_of(api, PrincipalRole.CONTRIBUTOR) as made:
        yield made


def test_groups_are_resources(management: EventHubManagementClient, group: str) -> None:
    registry = management.schema_registry
    found = registry.get(ARM_GROUP, NAMESPACE, group)
    assert (found.name, found.schema_type, found.schema_compatibility) == (group, "Avro", "Backward")
    assert found.group_properties == {"owner": "us"}
    assert found.created_at_utc is not None
    assert {one.name for one in registry.list_by_namespace(ARM_GROUP, NAMESPACE)} >= {"default", group}
    with pytest.raises(ResourceNotFoundError):
        registry.get(ARM_GROUP, NAMESPACE, "none")
    with pytest.raises(HttpResponseError, match="format of the schema group"):
        registry.create_or_update(ARM_GROUP, NAMESPACE, group, {"properties": {"schemaType": "Json"}})
    registry.delete(ARM_GROUP, NAMESPACE, "none")


def test_schemas(client: SchemaRegistryClient, group: str) -> None:
    registered = client.register_schema(group, "example.Reading", SCHEMA, SchemaFormat.AVRO)
    assert (registered.group_name, registered.name, registered.version) == (group, "example.Reading", 1)
    assert registered.format is SchemaFormat.AVRO
    assert client.register_schema(group, "example.Reading", SCHEMA, "avro").id == registered.id
    assert client.get_schema_properties(group, "example.Reading", SCHEMA, "Avro").id == registered.id
    by_id = client.get_schema(registered.id)
    assert (by_id.definition, by_id.properties.id, by_id.properties.format) == (SCHEMA, registered.id, "Avro")
    more = json.loads(SCHEMA)
    more["fields"].append({"name": "unit", "type": "string", "default": ""})
    second = client.register_schema(group, "example.Reading", json.dumps(more), "Avro")
    assert second.version == 2
    by_version = client.get_schema(group_name=group, name="example.Reading", version=1)
    assert (by_version.definition, by_version.properties.version) == (SCHEMA, 1)


def test_other_formats(client: SchemaRegistryClient) -> None:
    for text, kind in (('{"type": "string"}', "Json"), ("anything at all", "Custom")):
        registered = client.register_schema("default", f"of {kind}/x", text, kind)
        found = client.get_schema(registered.id)
        assert (registered.name, found.definition, found.properties.format) == (f"of {kind}/x", text, kind)
    assert client.register_schema("default", "ü", '"int"', "Avro").name == "%C3%BC"


def test_errors(client: SchemaRegistryClient, group: str) -> None:
    with pytest.raises(ResourceNotFoundError, match="ItemNotFound") as missing:
        client.get_schema("0" * 32)
    assert missing.value.status_code == 404
    with pytest.raises(ResourceNotFoundError, match="there is no schema group 'none'"):
        client.register_schema("none", "n", SCHEMA, "Avro")
    with pytest.raises(ResourceNotFoundError):
        client.get_schema_properties(group, "n", SCHEMA, "Avro")
    with pytest.raises(ResourceNotFoundError):
        client.get_schema(group_name=group, name="n", version=1)
    with pytest.raises(HttpResponseError, match="InvalidSchema") as invalid:
        client.register_schema(group, "n", "{", "Avro")
    assert invalid.value.status_code == 400
    client.register_schema(group, "n", '"string"', "Avro")
    with pytest.raises(HttpResponseError, match="IncompatibleSchema"):
        client.register_schema(group, "n", '"int"', "Avro")
    with pytest.raises(HttpResponseError, match="takes schemas in AVRO"):
        client.register_schema(group, "m", "{}", "Json")


def test_roles_and_wrong_keys(api: Api, client: SchemaRegistryClient, group: str) -> None:
    registered = client.register_schema(group, "n", SCHEMA, "Avro")
    with client_of(api, PrincipalRole.READER) as reader:
        assert reader.get_schema(registered.id).definition == SCHEMA
        with pytest.raises(HttpResponseError, match="needs the right Send") as refused:
            reader.register_schema(group, "n", '"int"', "Avro")
        assert refused.value.status_code == 403
    with client_of(api, PrincipalRole.READER, "wrong") as stranger, pytest.raises(ClientAuthenticationError):
        stranger.get_schema(registered.id)
    # a token of the management API's own audience, a signature, and one for another group
    path = f"/$schemaGroups/$schemas/{registered.id}?api-version=2022-10"
    base = f"sb://localhost:{api.server.https_port}"
    for resource, status in ((base, 200), (f"{base}/$schemaGroups/{group}", 200), (f"{base}/$schemaGroups/x", 404)):
        token = sign(resource, "RootManageSharedAccessKey", "SAS_KEY_VALUE", 2**32)
        assert api.send("GET", path, Authorization=token).status == status
    assert api.send("GET", path, Authorization="Bearer x.y.z").status == 401
    answer = api.send("GET", path)
    assert (answer.status, answer.code) == (401, "Unauthorized")


def test_the_avro_encoder(client: SchemaRegistryClient, group: str, api: Api) -> None:
    encoder = AvroEncoder(client=client, group_name=group, auto_register=True)
    value = {"device": "d", "value": 1.5}
    event: Any = encoder.encode(value, schema=SCHEMA, message_type=EventData)
    assert event.content_type.startswith("avro/binary+")
    with client_of(api, PrincipalRole.READER) as reader:
        assert AvroEncoder(client=reader).decode(event) == value
        assert AvroEncoder(client=reader, group_name=group).encode(value, schema=SCHEMA)["content_type"] == (
            event.content_type
        )


def test_groups_are_listed_by_http(api: Api, group: str) -> None:
    token = sign(f"sb://localhost:{api.server.https_port}", "RootManageSharedAccessKey", "SAS_KEY_VALUE", 2**32)
    listed = api.send("GET", "/$schemaGroups?api-version=2022-10", Authorization=token)
    assert group in listed.json["Value"]


async def _registered(api: Api, group: str) -> str:
    from azure.identity.aio import ClientSecretCredential as AsyncCredential

    credential = AsyncCredential(
        "any-tenant",
        "the-contributor",
        SECRETS[PrincipalRole.CONTRIBUTOR],
        authority=api.base_url,
        disable_instance_discovery=True,
        connection_verify=api.ca_file,
    )
    async with (
        credential,
        AsyncSchemaRegistryClient(
            f"localhost:{api.server.https_port}", credential, connection_verify=api.ca_file
        ) as client,
    ):
        registered = await client.register_schema(group, "n", SCHEMA, "Avro")
        return str((await client.get_schema(registered.id)).definition)


def test_the_asynchronous_client(api: Api, group: str) -> None:
    import asyncio

    assert asyncio.run(_registered(api, group)) == SCHEMA
