"""The settings of a cluster, under Kafka's names."""

import ssl
from pathlib import Path

import pytest

from tests.kafka.certificates import write_certificates
from tidegate.store.client.settings import (
    Credentials,
    SettingsError,
    client_settings,
    parse_bootstrap,
    parse_properties,
    read_settings,
)

BOOTSTRAP = (("kafka", 9092),)
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a b" password="p\\"w\\\\;=";'


def test_addresses() -> None:
    assert parse_bootstrap("a:1, [::1]:9092,") == (("a", 1), ("::1", 9092))
    for text in ("", "a", "a:", "a:0", "a:65536", ":9", "a:x"):
        with pytest.raises(SettingsError, match="broker"):
            parse_bootstrap(text)


def test_properties_are_read_as_java_reads_them() -> None:
    text = "# comment\n! another\na = 1\nb:2\nc 3\n  long = x \\\n    y\nempty=\nkey\\=name=v\\u00e4\\tz\n\n"
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "long": "x y",
        "empty": "",
        "key=name": "vä\tz",
    }


def test_without_a_file_nothing_is_needed() -> None:
    settings = read_settings("kafka:9092")
    assert (settings.bootstrap, settings.tls, settings.credentials) == (BOOTSTRAP, None, None)


def test_credentials() -> None:
    settings = client_settings(
        BOOTSTRAP,
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": SCRAM},
    )
    assert settings.credentials == Credentials("SCRAM-SHA-512", "a b", 'p"w\\;=')
    assert 'p"w' not in repr(settings)


def test_certificates(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    path = tmp_path / "client.properties"
    path.write_text(
        f"security.protocol=SSL\nssl.truststore.location={tmp_path / 'ca.pem'}\n"
        f"ssl.keystore.location={tmp_path / 'broker.pem'}\nssl.endpoint.identification.algorithm=\n",
        encoding="utf-8",
    )
    tls = read_settings("kafka:9092", path).tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert not tls.check_hostname


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sasl.mechanisms": "PLAIN"}, "did you mean sasl.mechanism"),
        ({"security.protocol": "TLS"}, "expected one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "expected one of PLAIN, SCRAM"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.jaas.config needs a username"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "only PEM"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere"}, "cannot be used"),
        ({"request.timeout.ms": "soon"}, "milliseconds"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        client_settings(BOOTSTRAP, given)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"missing\.properties cannot be read"):
        read_settings("kafka:9092", tmp_path / "missing.properties")
