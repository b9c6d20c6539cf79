"""Azure's Blob and Table storage on this machine: Microsoft's own Azurite, from npm, on loopback and in memory."""

import base64
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from azure.eventhub.extensions.checkpointstoreblob._vendor.storage.blob import ContainerClient

from tests.jars import free_ports
from tests.patience import PATIENCE_S
from tests.programs import node

FOLDER = Path(__file__).parent
ACCOUNT, OTHER_ACCOUNT = "tidegate", "other"


def azurite() -> AbstractContextManager[str]:
    """The connection string of a storage account with no blobs in it."""
    return _azurite("blob")


def azurite_tables() -> AbstractContextManager[str]:
    """The connection string of a storage account with no tables in it."""
    return _azurite("table")


@contextmanager
def _azurite(service: str) -> Iterator[str]:
    node(FOLDER, f".bin/azurite-{service}")
    (port,) = free_ports(1)
    key = base64.b64encode(secrets.token_bytes(64)).decode("ascii")
    command = [str(FOLDER / "node_modules" / ".bin" / f"azurite-{service}"), f"--{service}Port", str(port)]
    process = subprocess.Popen(
        [*command, "--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck"],
        env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{key};{OTHER_ACCOUNT}:{key}"},
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};"
        yield f"{account}{service.title()}Endpoint={endpoint};"
    finally:
        process.terminate()
        process.wait()


def of_other_account(connection_string: str) -> str:
    """The connection string of a second account of the same Azurite."""
    named = connection_string.replace(f"AccountName={ACCOUNT};", f"AccountName={OTHER_ACCOUNT};")
    return named.replace(f"/{ACCOUNT};", f"/{OTHER_ACCOUNT};")


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
