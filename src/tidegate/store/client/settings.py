"""How a cluster is reached: a file of properties under the names that Kafka's own clients use for TLS and SASL."""

from __future__ import annotations

import difflib
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

_JAAS = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_KNOWN = {
    "security.protocol": "PLAINTEXT",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "",
    "ssl.truststore.certificates": "",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "",
    "ssl.keystore.certificate.chain": "",
    "ssl.keystore.key": "",
    "ssl.key.password": "",
    "ssl.endpoint.identification.algorithm": "https",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "",
    "client.id": "tidegate",
    "request.timeout.ms": "30000",
}


class SettingsError(ValueError):
    """A property that cannot be used; the message names it and says what is expected."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What SASL presents."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.username!r})"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How to connect.

    Attributes:
        bootstrap: Host and port of some brokers, at least one; the others are learned from them.
        tls: None without TLS.
        check_host_name: Whether the certificate must name the host.
        credentials: None without SASL.
        client_id: What the brokers' logs and quotas call the client.
        request_timeout_s: After how long a request without an answer ends its connection.
        addresses_of: Resolves a host and port, as getaddrinfo does, and raises OSError for what must not be connected
            to; None for a client that may connect to all.
    """

    bootstrap: tuple[tuple[str, int], ...]
    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    client_id: str = "tidegate"
    request_timeout_s: float = 30.0
    addresses_of: Callable[[str, int], Sequence[tuple[Any, ...]]] | None = None


def parse_bootstrap(text: str) -> tuple[tuple[str, int], ...]:
    """Return the addresses in `HOST:PORT[,HOST:PORT…]`. Raises SettingsError."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536 or not host:
            raise SettingsError(
                f"{part!r} is no address of a broker: expected HOST:PORT, as in kafka-1.example.com:9092"
            )
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not found:
        raise SettingsError("the address of at least one broker is needed, as in kafka://kafka-1.example.com:9092")
    return tuple(found)


def address_text(host: str, port: int) -> str:
    """Return an address of `parse_bootstrap` as text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_settings(bootstrap: str, path: Path | None = None) -> ClientSettings:
    """Return the settings for a cluster.

    Args:
        bootstrap: `HOST:PORT[,HOST:PORT…]`.
        path: The file of properties; None for a cluster without TLS and SASL.

    Raises:
        SettingsError: A property or an address cannot be used.
    """
    given: Mapping[str, str] = {}
    if path is not None:
        try:
            given = parse_properties(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"the file {path} cannot be read: {error}") from error
    try:
        return client_settings(parse_bootstrap(bootstrap), given)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}" if path is not None else str(error)) from None


def client_settings(bootstrap: tuple[tuple[str, int], ...], given: Mapping[str, str]) -> ClientSettings:
    """Return the settings that properties describe. Raises SettingsError."""
    for name in given:
        if name not in _KNOWN:
            close = difflib.get_close_matches(name, _KNOWN, 1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(_KNOWN)}"
            raise SettingsError(f"the property {name!r} is unknown: {hint}")
    values = {**_KNOWN, **given}
    protocol = values["security.protocol"].upper()
    if protocol not in _PROTOCOLS:
        raise SettingsError(
            f"security.protocol is {values['security.protocol']!r}: expected one of {', '.join(_PROTOCOLS)}"
        )
    timeout = values["request.timeout.ms"]
    if not timeout.isdecimal() or not int(timeout):
        raise SettingsError(f"request.timeout.ms is {timeout!r}: expected a number of milliseconds")
    return ClientSettings(
        bootstrap,
        _tls(values) if protocol.endswith("SSL") else None,
        _credentials(values) if protocol.startswith("SASL") else None,
        values["client.id"],
        int(timeout) / 1000,
    )


def _tls(values: Mapping[str, str]) -> ssl.SSLContext:
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if values[name].upper() != "PEM":
            raise SettingsError(
                f"{name} is {values[name]!r}: only PEM can be read; convert a store with "
                "`keytool -importkeystore -deststoretype PKCS12` and `openssl pkcs12`"
            )
    try:
        context = ssl.create_default_context(
            cafile=values["ssl.truststore.location"] or None, cadata=values["ssl.truststore.certificates"] or None
        )
        password = values["ssl.key.password"] or None
        if values["ssl.keystore.location"]:
            context.load_cert_chain(values["ssl.keystore.location"], password=password)
        elif values["ssl.keystore.key"]:
            with NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as both:  # the context reads files only
                both.write(values["ssl.keystore.key"] + "\n" + values["ssl.keystore.certificate.chain"])
                both.flush()
                context.load_cert_chain(both.name, password=password)
    except (OSError, ValueError) as error:
        raise SettingsError(f"the certificates of ssl.truststore and ssl.keystore cannot be used: {error}") from error
    if not values["ssl.endpoint.identification.algorithm"]:
        context.check_hostname = False
    return context


def _credentials(values: Mapping[str, str]) -> Credentials:
    mechanism = values["sasl.mechanism"].upper()
    if mechanism not in MECHANISMS:
        raise SettingsError(f"sasl.mechanism is {values['sasl.mechanism']!r}: expected one of {', '.join(MECHANISMS)}")
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single) if double or single else bare
        for name, double, single, bare in _JAAS.findall(values["sasl.jaas.config"])
    }
    if not options.get("username") or "password" not in options:
        raise SettingsError(
            "sasl.jaas.config needs a username and a password, as in "
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="NAME" password="SECRET";'
        )
    return Credentials(mechanism, options["username"], options["password"])


def parse_properties(text: str) -> dict[str, str]:
    """Return the entries of a Java properties file. Raises SettingsError for a line that is none."""
    entries: dict[str, str] = {}
    pending = ""
    for number, line in enumerate(text.splitlines(), 1):
        line = pending + line.lstrip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        match = re.match(r"((?:[^\s=:\\]|\\.)+)\s*[=:]?\s*(.*)", line)
        if match is None:
            raise SettingsError(f"line {number} is no property: expected NAME=VALUE")
        entries[_unescaped(match[1])] = _unescaped(match[2])
    return entries


def _unescaped(text: str) -> str:
    letters = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return letters.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text)
