"""Connections to a broker: with and without a login, over TLS, and what refuses or breaks them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.kafka import PASSWORD, USER, Broker, kafka_broker
from tests.patience import PATIENCE_S
from tidegate.kafka.messages import Api, encode_response
from tidegate.store.client.connection import Connection, KafkaError, LoginRefused, TooOld, Unreachable
from tidegate.store.client.settings import ClientSettings, client_settings, parse_bootstrap

Result = TypeVar("Result")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with kafka_broker() as found:
        client = AdminClient({"bootstrap.servers": found.address})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion("scram,user=1", info, b"p w", None)
        for done in client.alter_user_scram_credentials([change]).values():
            done.result(PATIENCE_S)
        yield found


def signed(broker: Broker, password: str) -> ClientSettings:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{USER}" password="{password}";'
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": jaas}
    return client_settings(parse_bootstrap(broker.signed_address), given)


def sealed(broker: Broker, password: str) -> ClientSettings:
    both = broker.folder / "both.pem"
    both.write_bytes((broker.folder / "client.key").read_bytes() + (broker.folder / "client.pem").read_bytes())
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'ScramLoginModule required username="scram,user=1" password="{password}";',
        "ssl.truststore.location": str(broker.folder / "ca.pem"),
        "ssl.keystore.location": str(both),
    }
    return client_settings(parse_bootstrap(broker.sealed_address), given)


async def cluster_id(settings: ClientSettings) -> str:
    connection = await Connection.open(settings, *settings.bootstrap[0], timeout_s=PATIENCE_S)
    try:
        return str((await connection.request(Api.METADATA, {"topics": []})).cluster_id)
    finally:
        connection.close()


def test_every_way_in_leads_to_the_same_cluster(broker: Broker) -> None:
    ways = [client_settings(parse_bootstrap(broker.address), {}), signed(broker, PASSWORD), sealed(broker, "p w")]
    assert len({asyncio.run(cluster_id(way)) for way in ways}) == 1


def test_a_wrong_password_is_refused_by_name(broker: Broker) -> None:
    for way in (signed(broker, "wrong"), sealed(broker, "wrong")):
        with pytest.raises(LoginRefused, match="refuses the login"):
            asyncio.run(cluster_id(way))


def test_a_mechanism_that_is_not_offered(broker: Broker) -> None:
    jaas = 'ScramLoginModule required username="a" password="b";'
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    settings = client_settings(parse_bootstrap(broker.signed_address), given)
    with pytest.raises(LoginRefused, match="does not offer SCRAM-SHA-256, only PLAIN"):
        asyncio.run(cluster_id(settings))


def test_a_certificate_of_an_unknown_authority(broker: Broker) -> None:
    settings = client_settings(parse_bootstrap(broker.sealed_address), {"security.protocol": "SSL"})
    with pytest.raises(LoginRefused, match=r"TLS with .* failed"):
        asyncio.run(cluster_id(settings))


# -- peers that are no broker

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[tuple[str, int]]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield "127.0.0.1", server.sockets[0].getsockname()[1]
    finally:
        server.close()


def failure_with(serve: Serve, timeout_s: float = PATIENCE_S) -> KafkaError:
    async def run() -> KafkaError:
        async with listening(serve) as address:
            with pytest.raises(KafkaError) as caught:
                await Connection.open(ClientSettings((address,)), *address, timeout_s=timeout_s)
            return caught.value

    return asyncio.run(run())


def test_nobody_listens() -> None:
    async def run() -> None:
        async with listening(_close) as address:
            pass
        with pytest.raises(Unreachable, match="cannot be reached"):
            await Connection.open(ClientSettings((address,)), *address)

    asyncio.run(run())


async def _close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


async def _web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def _silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.CancelledError):
        await reader.read()
    writer.close()


async def _garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    frame = await reader.read(100)
    writer.write(b"\0\0\0\x08" + frame[8:12] + b"\xff\xff\xff\xff")


async def _old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker of Kafka 0.10, which answers what it is asked first."""
    while frame := await reader.read(1000):
        known = {Api.PRODUCE: 2, Api.FETCH: 3, Api.LIST_OFFSETS: 1, Api.METADATA: 2, Api.API_VERSIONS: 0}
        keys = [{"api_key": int(api), "min_version": 0, "max_version": last} for api, last in known.items()]
        writer.write(encode_response(Api.API_VERSIONS, 0, int.from_bytes(frame[8:12], "big"), {"api_keys": keys}))
    writer.close()


def test_a_cluster_that_is_too_old_is_named() -> None:
    async def run() -> None:
        async with listening(_old) as address:
            connection = await Connection.open(ClientSettings((address,)), *address)
            named = r"127.0.0.1:\d+ (knows versions 0 to \d of|does not know) the request %s.*Kafka 2.8 or newer"
            for api in (Api.INIT_PRODUCER_ID, Api.DESCRIBE_CLUSTER, Api.PRODUCE, Api.FETCH):
                with pytest.raises(TooOld, match=named % api.name):
                    connection.send(api, {})
            connection.close()

    asyncio.run(run())


def test_other_peers_are_told_apart_from_brokers() -> None:
    assert "was lost" in str(failure_with(_close))
    assert "does not speak Kafka's protocol" in str(failure_with(_web))
    assert "cannot be reached: no answer" in str(failure_with(_silence, timeout_s=0.05))
    assert "cannot be read" in str(failure_with(_garbage))
