"""Token providers: what a name leads to, and what is said if it leads nowhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tidegate.client import ClientError, ConnectionString, HubClient
from tidegate.client.connection_string import provided_token
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer


class Token(NamedTuple):
    """A token as azure-core has it."""

    token: str
    expires_on: int


class Credential:
    """A credential whose token is what it was last given."""

    value = "ey.jwt"

    def get_token(self, *scopes: str) -> Token:
        assert scopes == ("https://eventhubs.azure.net//.default",)
        return Token(self.value, int(time.time()) + 3600)


credential = Credential()
number = int


def failing() -> Any:
    raise RuntimeError("no managed identity here\nand more")


@pytest.mark.parametrize("name", ["credential", "Credential"])
def test_a_provider_is_a_credential_or_makes_one(name: str) -> None:
    assert provided_token(f"{__name__}:{name}")[0] == "ey.jwt"


@pytest.mark.parametrize(
    ("provider", "told"),
    [
        ("azure.identity", "expected MODULE:NAME"),
        ("no.such.module:x", "install it for the Python of the driver and of every executor"),
        (f"{__name__}:missing", "has no 'missing'"),
        (f"{__name__}:number", "a int has no method get_token"),
        (f"{__name__}:failing", "has no token: no managed identity here"),
    ],
)
def test_a_provider_that_is_none_is_an_error_of_one_line(provider: str, told: str) -> None:
    with pytest.raises(ClientError) as caught:
        provided_token(provider)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_string_has_a_key_or_there_is_a_provider() -> None:
    with pytest.raises(ClientError, match="give one"):
        ConnectionString.parse("Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=k", "e", token_provider="a:b")
    assert ConnectionString.parse("Endpoint=sb://h/", "e", token_provider="a:b").token_provider == "a:b"


def test_the_token_signs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tidegate's hub knows shared access signatures only, and refuses Entra's tokens by name."""
    config = NamespaceConfig(name="n", event_hubs=(EventHubConfig(name="e", partition_count=2),))
    with BackgroundServer(config, tmp_path) as hub:
        signed = ConnectionString.parse(hub.connection_string, "e")
        endpoint = f"Endpoint=sb://{signed.host}:{signed.port};UseDevelopmentEmulator=true"
        connection = ConnectionString.parse(endpoint, "e", token_provider=f"{__name__}:Credential")
        with pytest.raises(ClientError, match="refuses the jwt token"):
            HubClient(connection)
        monkeypatch.setattr(Credential, "value", signed.token()[0])
        client = HubClient(connection)
        assert client.partition_ids() == ("0", "1")
        client.close()
