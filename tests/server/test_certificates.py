"""Certificates: made once, kept private, refused by name when unusable; and a client over TLS."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient

from tidegate.server import Server
from tidegate.server.certificates import Certificate, CertificateError, development_certificate


def test_a_development_certificate_is_made_once_and_its_key_is_private(tmp_path: Path) -> None:
    first = development_certificate(tmp_path / "tls", "127.0.0.1")
    content = first.cert_file.read_bytes()
    assert stat.S_IMODE(first.key_file.stat().st_mode) == 0o600
    second = development_certificate(tmp_path / "tls", "127.0.0.1")
    assert second.cert_file.read_bytes() == content
    assert isinstance(first.server_context(), ssl.SSLContext)


def test_an_unusable_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nothing")
    with pytest.raises(CertificateError, match=r"cert\.pem"):
        Certificate(tmp_path / "cert.pem", tmp_path / "key.pem").server_context()


@pytest.mark.sdk
def test_publish_over_tls(server: Server, connection: str, hub: str) -> None:
    # Without the emulator flag the Python client ignores the endpoint's port, but not that of a custom endpoint.
    plain = connection.replace("UseDevelopmentEmulator=true;", "")
    options = {
        "eventhub_name": hub,
        "custom_endpoint_address": f"sb://localhost:{server.amqps_port}",
        "connection_verify": str(server.certificate.authority_file),
        "retry_total": 0,
    }
    with EventHubProducerClient.from_connection_string(plain, **options) as producer:
        producer.send_event(EventData("over TLS"), partition_id="0")
    with EventHubConsumerClient.from_connection_string(plain, "$Default", **options) as consumer:
        assert consumer.get_partition_properties("0")["last_enqueued_sequence_number"] == 0
