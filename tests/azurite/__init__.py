"""Azure's Blob and Table storage on this machine: Microsoft's own Azurite, from npm, on loopback and in memory."""

import base64
import os
import re
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from azure.eventhub.extensions.checkpointstoreblob._vendor.storage.blob import ContainerClient

from tests.jars import free_ports
from tests.patience import PATIENCE_S
from tests.programs import node

FOLDER = Path(__file__).parent
ACCOUNT, OTHER_ACCOUNT = "tidegate", "other"
_ACCOUNTS = 50


@contextmanager
def azurite() -> Iterator[str]:
    """The connection string of a storage account with no blobs in it.

    A process has one Azurite, which takes seconds to start, for all of its accounts.
    """
    yield _new_account("blob")


@contextmanager
def azurite_tables() -> Iterator[str]:
    """The connection string of a storage account with no tables in it, of one Azurite as well."""
    yield _new_account("table")


@contextmanager
def azurite_that_ends() -> Iterator[str]:
    """Such a connection string, of an Azurite that ends with this context."""
    server = _Azurite("blob")
    try:
        yield server.new_account()
    finally:
        server.end()


class _Azurite:
    """A server with accounts that have not been used."""

    def __init__(self, service: str) -> None:
        node(FOLDER, f".bin/azurite-{service}")
        (port,) = free_ports(1)
        key = base64.b64encode(secrets.token_bytes(64)).decode("ascii")
        names = [f"{name}{number}" for name in (ACCOUNT, OTHER_ACCOUNT) for number in range(_ACCOUNTS)]
        command = [str(FOLDER / "node_modules" / ".bin" / f"azurite-{service}"), f"--{service}Port", str(port)]
        self._process = subprocess.Popen(
            [*command, "--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck"],
            env={**os.environ, "AZURITE_ACCOUNTS": ";".join(f"{name}:{key}" for name in names)},
            stdout=subprocess.DEVNULL,
        )
        self._strings = [
            f"DefaultEndpointsProtocol=http;AccountName={name};AccountKey={key};"
            f"{service.title()}Endpoint=http://127.0.0.1:{port}/{name};"
            for name in reversed(names[:_ACCOUNTS])
        ]
        _wait_for(port, self._process)

    @property
    def has_accounts(self) -> bool:
        return bool(self._strings)

    def new_account(self) -> str:
        return self._strings.pop()

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()


_shared: dict[str, list[_Azurite]] = {}
"""By service, the servers of this process. Accounts of the earlier ones may still be used."""


def _new_account(service: str) -> str:
    node(FOLDER, f".bin/azurite-{service}")
    servers = _shared.setdefault(service, [])
    if not servers or not servers[-1].has_accounts:
        servers.append(_Azurite(service))
    return servers[-1].new_account()


def end_shared() -> None:
    """End the servers that the tests of this process have shared (tests/conftest.py calls it)."""
    for servers in _shared.values():
        while servers:
            servers.pop().end()


def of_other_account(connection_string: str) -> str:
    """The connection string of a second account of the same Azurite."""
    return re.sub(rf"\b{ACCOUNT}(?=\d+;)", OTHER_ACCOUNT, connection_string)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, "Azurite ended"
        assert time.monotonic() < deadline, "Azurite did not come up"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)


def container(connection_string: str, name: str) -> ContainerClient:
    """A new container, through Microsoft's own client."""
    client = ContainerClient.from_connection_string(connection_string, name)
    client.create_container()
    return client
