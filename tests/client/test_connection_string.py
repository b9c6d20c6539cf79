"""Connection strings: every form the clients know, and no secret in what is said of a wrong one."""

from __future__ import annotations

import base64
import hashlib
import hmac
from urllib.parse import parse_qs, unquote

import pytest

from tidegate.client import ClientError, ConnectionString

KEYS = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0=="


@pytest.mark.parametrize(
    ("text", "host", "port", "tls"),
    [
        (f"Endpoint=sb://h.example/;{KEYS};EntityPath=e", "h.example", 5671, True),
        (f"Endpoint=sb://localhost;{KEYS};EntityPath=e;UseDevelopmentEmulator=true;", "localhost", 5672, False),
        (f"endpoint=sb://localhost:6000;{KEYS};entitypath=e;UseDevelopmentEmulator=TRUE", "localhost", 6000, False),
        (f"Endpoint=amqps://h:7000;{KEYS};EntityPath=e", "h", 7000, True),
    ],
)
def test_the_endpoint_says_where_and_how(text: str, host: str, port: int, tls: bool) -> None:
    parsed = ConnectionString.parse(text)
    assert (parsed.host, parsed.port, parsed.tls, parsed.entity_path) == (host, port, tls, "e")
    assert parsed.key == "c2VjcmV0=="


def test_a_token_is_signed_over_the_encoded_resource_and_the_expiry() -> None:
    token, expiry = ConnectionString.parse(f"Endpoint=sb://h/;{KEYS};EntityPath=e").token(now_s=1000)
    fields = parse_qs(token.removeprefix("SharedAccessSignature "))
    resource = token.partition("sr=")[2].partition("&")[0]
    assert unquote(resource) == "sb://h/e"
    assert fields["skn"] == ["root"]
    assert fields["se"] == [str(expiry)]
    assert expiry == 4600
    digest = hmac.new(b"c2VjcmV0==", f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    assert fields["sig"] == [base64.b64encode(digest).decode()]


def test_a_ready_made_signature_is_used_as_it_is() -> None:
    signature = "SharedAccessSignature sr=sb%3A%2F%2Fh%2Fe&sig=abc%3D&se=4600&skn=root"
    parsed = ConnectionString.parse(f"Endpoint=sb://h/;SharedAccessSignature={signature};EntityPath=e")
    assert parsed.token() == (signature, 4600)


@pytest.mark.parametrize("expiry", ["", "&se=soon", "&se=1e9", "&se=" + "9" * 5000])
def test_a_signature_without_a_readable_expiry_is_refused(expiry: str) -> None:
    parsed = ConnectionString.parse(
        f"Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=x{expiry};EntityPath=e"
    )
    with pytest.raises(ClientError, match="SharedAccessSignature is no token"):
        parsed.token()


@pytest.mark.parametrize(
    ("text", "event_hub", "told"),
    [
        ("nonsense-with-a-secret", "e", "expected parts such as Endpoint"),
        (f"Endpoint=sb:///;{KEYS}", "e", "Endpoint=sb://HOST/ is missing"),
        (f"Endpoint=sb://h:http/;{KEYS}", "e", "Port"),
        (f"Endpoint=sb://[h/;{KEYS}", "e", "Endpoint is not sb://HOST"),
        ("Endpoint=sb://h/;SharedAccessKeyName=root", "e", "SharedAccessKey"),
        (f"Endpoint=sb://h/;{KEYS}", None, "names no event hub"),
        (f"Endpoint=sb://h/;{KEYS};EntityPath=a", "b", "EntityPath is a, but event_hub is b"),
    ],
)
def test_what_is_wrong_is_said_without_the_key(text: str, event_hub: str | None, told: str) -> None:
    with pytest.raises(ClientError) as caught:
        ConnectionString.parse(text, event_hub)
    assert told in str(caught.value)
    assert "c2VjcmV0" not in str(caught.value)


def test_the_key_is_not_in_its_repr() -> None:
    assert "c2VjcmV0" not in repr(ConnectionString.parse(f"Endpoint=sb://h/;{KEYS};EntityPath=e"))
