"""Which addresses this process may connect to on behalf of others, and connections that obey.

Whoever may define a job, or ask the management API to read a sample, names hosts. The service connects to them from
the hub's machine, where loopback and link-local addresses lead to what trusts that machine: the hub's own portal,
databases without a password, a cloud's metadata. So a *guarded* process resolves a name once, checks each address, and
connects to an address that it has checked; another answer of the name server, or a redirect, leads nowhere else.

`tidegate up` guards itself and the processes that it starts, which inherit the policy in their environment. A command
that somebody runs for themselves is not guarded.
"""

from __future__ import annotations

import contextlib
import contextvars
import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = [
    "LOOPBACK",
    "VARIABLE",
    "AddressPolicy",
    "AddressRefused",
    "Allowed",
    "check_driver",
    "check_host",
    "check_settings",
    "connect",
    "current",
    "hosts_of",
    "http_connection",
    "normalised",
    "postgresql_address",
    "resolved",
    "url_opener",
]

VARIABLE = "TIDEGATE_OUTBOUND"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK = ("127.0.0.0/8", "::1")

_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
)
"""Where clouds serve the credentials of a machine, or what manages it; some are not link-local."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s;,\"']+")
_NAMED_HOST = re.compile(
    r"(?:^|[;\s])\s*(?:host(?:name|addr)?|server|data source|addr(?:ess)?)\s*=\s*(?:tcp:)?([^;\s]+)", re.IGNORECASE
)
_PORT = re.compile(r"[:,](\d{1,5})$")
_HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(%\w+)?")


class AddressRefused(OSError):
    """A connection that this process does not make for others; the message says why, and what the operator can do."""

    def __init__(self, host: str, address: str, what: str, *, can_be_allowed: bool = True) -> None:
        named = address if host == address else f"{host} is {address}, which"
        hint = (
            f" unless the hub's operator allows them (tidegate up --allow-address {address})" if can_be_allowed else ""
        )
        super().__init__(f"{named} is {what}: connections there are refused{hint}")


@dataclass(frozen=True, slots=True)
class Allowed:
    """An address or network that the operator allows, at one port or all."""

    network: Network
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Allowed:
        """Return what `127.0.0.1`, `127.0.0.1:10000`, `[::1]:10000` or `10.0.0.0/8` allows. Raises ValueError."""
        found = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(\d+))?|([0-9.]+(?:/\d+)?)(?::(\d+))?|([0-9A-Fa-f:./]+)", text)
        if found is None:
            raise ValueError(f"{text!r} is no address: expected one such as 127.0.0.1, [::1]:10000 or 10.0.0.0/8")
        port = found[2] or found[4]
        if port is not None and not 0 < int(port) < 65536:
            raise ValueError(f"{text!r}: a port is between 1 and 65535")
        return cls(ipaddress.ip_network(found[1] or found[3] or found[5], strict=False), int(port) if port else None)

    def __str__(self) -> str:
        if self.port is None:
            return str(self.network)
        address = self.network.network_address if self.network.num_addresses == 1 else self.network
        return f"[{address}]:{self.port}" if self.network.version == 6 else f"{address}:{self.port}"

    def includes(self, address: Address, port: int) -> bool:
        """Return whether an address is allowed at a port."""
        return address.version == self.network.version and address in self.network and self.port in (None, port)


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Which addresses connections may be made to.

    Attributes:
        is_guarded: False lets all connections through.
        allowed: What the operator allows of what is refused otherwise.
        amqp_ports: The AMQP ports of this hub: jobs read it over loopback, and it asks for a key.
        web_ports: The HTTP ports of this hub. They are refused on loopback whatever is allowed, as visitors from there
            are owners.
    """

    is_guarded: bool = False
    allowed: tuple[Allowed, ...] = ()
    amqp_ports: frozenset[int] = frozenset()
    web_ports: frozenset[int] = frozenset()

    @classmethod
    def guarded(cls, allowed: Iterable[str] = ()) -> AddressPolicy:
        """Return the policy of a service, with what its operator allows. Raises ValueError."""
        return cls(True, tuple(map(Allowed.parse, allowed)))

    def beside(self, amqp_ports: Iterable[int], web_ports: Iterable[int]) -> AddressPolicy:
        """Return the policy of what runs beside a hub with these ports."""
        return replace(self, amqp_ports=frozenset(amqp_ports), web_ports=frozenset(web_ports))

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment variables that give another process this policy."""
        content = {
            "allowed": list(map(str, self.allowed)),
            "amqpPorts": sorted(self.amqp_ports),
            "webPorts": sorted(self.web_ports),
        }
        return {VARIABLE: json.dumps(content) if self.is_guarded else ""}

    def check(self, host: str, address: str, port: int, *, is_amqp: bool = False) -> None:
        """Raise AddressRefused for an address that a connection must not be made to."""
        if not self.is_guarded:
            return
        plain = normalised(address)
        if (plain.is_loopback or plain.is_unspecified) and port in self.web_ports:
            raise AddressRefused(host, address, "where this hub takes a visitor for its owner")
        if is_amqp and plain.is_loopback and port in self.amqp_ports:
            return
        what = _danger_of(plain)
        if what and not any(one.includes(plain, port) for one in self.allowed):
            raise AddressRefused(host, str(plain), what)

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Let this policy be the one of the present thread or task."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def install(self) -> None:
        """Let this policy be the one of this process, and of all that it starts from now on."""
        os.environ.update(self.environment)


_current: contextvars.ContextVar[AddressPolicy | None] = contextvars.ContextVar("outbound", default=None)


def current() -> AddressPolicy:
    """Return the policy in force: of this thread or task, or of this process."""
    return _current.get() or _installed(os.environ.get(VARIABLE, ""))


@lru_cache(maxsize=4)
def _installed(text: str) -> AddressPolicy:
    if not text:
        return AddressPolicy()
    content = json.loads(text)
    return AddressPolicy.guarded(content["allowed"]).beside(content["amqpPorts"], content["webPorts"])


def normalised(address: str) -> Address:
    """Return an address as what it leads to: an IPv4 address that is written as an IPv6 one is an IPv4 address."""
    plain = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(plain, ipaddress.IPv4Address):
        return plain
    inner = plain.ipv4_mapped or plain.sixtofour or (plain.teredo or (None, None))[1]
    if inner is None and (plain in _NAT64 or 1 < int(plain) < 1 << 32):
        inner = ipaddress.IPv4Address(int(plain) & 0xFFFFFFFF)
    return inner or plain


def _danger_of(address: Address) -> str:
    """Return why an address is refused, empty if it is not."""
    if address in _METADATA:
        return "where clouds keep the credentials of a machine"
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_unspecified or (address.version == 4 and int(address) < 1 << 24):
        return "an unspecified address"
    if address.is_multicast or str(address) == "255.255.255.255":
        return "a multicast address"
    return ""


def resolved(host: str, port: int, *, is_amqp: bool = False) -> list[tuple[Any, ...]]:
    """Resolve a name once, and return those of its addresses that may be connected to, as getaddrinfo does.

    Raises:
        AddressRefused: None of them may be.
        OSError: The name has no address.
    """
    policy = current()
    found, refusal = [], None
    for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            policy.check(host, str(one[4][0]), port, is_amqp=is_amqp)
        except AddressRefused as error:
            refusal = error
        else:
            found.append(one)
    if not found and refusal is not None:
        raise refusal
    return found


def connect(host: str, port: int, timeout_s: float, *, is_amqp: bool = False) -> socket.socket:
    """Connect to the first address of a host that may be connected to and answers. Raises AddressRefused, OSError."""
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in resolved(host, port, is_amqp=is_amqp):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(timeout_s)
            made.connect(address)
        except OSError as error:
            made.close()
            failure = error
        else:
            return made
    raise failure


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = connect(self.host, self.port, self.timeout or 60.0)


class _SecureConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        plain = connect(self.host, self.port, self.timeout or 60.0)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)

    def __init__(self, host: str, port: int | None, *, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._tls = context


def http_connection(scheme: str, host: str, port: int | None, timeout_s: float) -> http.client.HTTPConnection:
    """Return a connection to an HTTP server, made when it is first used. It follows no redirect and uses no proxy."""
    if scheme == "https":
        return _SecureConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
    return _Connection(host, port, timeout=timeout_s)


def url_opener() -> urllib.request.OpenerDirector:
    """Return what opens URLs; in a guarded process every redirect is checked too, and no proxy is used."""
    if not current().is_guarded:
        return urllib.request.build_opener(_Redirects)
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _Redirects, _Handler, _SecureHandler)


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_made, "http"), req)


class _SecureHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_made, "https"), req)


def _made(scheme: str, host: str, *, timeout: float) -> http.client.HTTPConnection:
    return http_connection(scheme, host, None, timeout)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but shows credentials to the server only that they were given for."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            made.remove_header("Authorization")
        return made


def check_settings(settings: Any) -> None:
    """Check the hosts that settings name, for connections that a library makes. Raises AddressRefused.

    A library resolves a name again, so this is less than `connect`; a name that has no address now is left to it.
    """
    if current().is_guarded:
        for host, port, is_amqp in dict.fromkeys(hosts_of(settings)):
            check_host(host, port, is_amqp=is_amqp)


def check_host(host: str, port: int, *, is_amqp: bool = False) -> None:
    """Check a host that a library connects to. Raises AddressRefused.

    A library may try each of a name's addresses, so all must be allowed; of `localhost`, which has two, one is enough.
    What is neither a name nor an address is refused, as a library may read it differently: a SQL Server's
    `127.0.0.1\\instance`, a socket's path.
    """
    policy = current()
    if not policy.is_guarded:
        return
    if not _HOST.fullmatch(host):
        raise AddressRefused(host, host, "neither the name nor the address of a host", can_be_allowed=False)
    with contextlib.suppress(socket.gaierror, UnicodeError):
        if host.lower() == "localhost":
            resolved(host, port, is_amqp=is_amqp)
            return
        for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            policy.check(host, str(one[4][0]), port, is_amqp=is_amqp)


def check_driver(settings: Mapping[str, Any], port: int) -> None:
    """Check where the driver of a database connects to with these arguments. Raises AddressRefused.

    Args:
        settings: `host` and `port`, and what else the URL of the database gives the driver.
        port: The database's usual port.
    """
    if not current().is_guarded:
        return
    for name in _LOCAL_SETTINGS:
        if settings.get(name):
            raise AddressRefused(name, name, "for the hub's own machine", can_be_allowed=False)
    written = str(settings.get("port") or port)
    check_host(str(settings.get("host") or "localhost"), int(written) if written.isdecimal() else port)


_LOCAL_SETTINGS = ("unix_socket", "read_default_file", "path")
"""A local socket, where a database takes the job for the hub's user, and a file of that user."""


def postgresql_address(settings: Mapping[str, Any]) -> str | None:
    """Return libpq's `hostaddr`, the addresses that were checked, for a parsed connection string; None without a guard.

    Raises:
        AddressRefused: They must not be connected to. A local socket must not, either: there the database takes
            whoever asks for the hub itself.
        OSError: A name has no address.
    """
    if not current().is_guarded:
        return None
    hosts = str(settings.get("hostaddr") or settings.get("host") or "").split(",")
    ports = str(settings.get("port") or 5432).split(",")
    found = []
    for number, host in enumerate(hosts):
        if not host or host[0] in "/@":
            raise AddressRefused(host or "the database", "127.0.0.1", "reached by a local socket")
        port = int(ports[min(number, len(ports) - 1)] or 5432)
        found.append(str(resolved(host, port)[0][4][0]))
    return ",".join(found)


def hosts_of(settings: Any, name: str = "") -> Iterator[tuple[str, int, bool]]:
    """Yield each host that settings name in URLs, connection strings and lists of brokers: host, port, whether AMQP."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from hosts_of(value, str(key))
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from hosts_of(value, name)
    elif isinstance(settings, str) and not _TEXTS.search(name):
        yield from _hosts_of_urls(settings)
        if "://" not in settings and "connection" in name.lower():
            yield from (_host_and_port(one) for one in _NAMED_HOST.findall(settings))
        yield from _hosts_of_storage(settings)
        if "usedevelopmentstorage=true" in settings.lower().replace(" ", ""):
            yield "127.0.0.1", 10000, False
        if _LISTS.search(name):
            yield from (_host_and_port(one) for one in settings.split(",") if one.strip() and "://" not in one)


def _hosts_of_urls(text: str) -> Iterator[tuple[str, int, bool]]:
    for url in _URL.findall(text):
        with contextlib.suppress(ValueError):
            parts = urlsplit(url)
            is_amqp = parts.scheme in ("sb", "amqp", "amqps")
            usual = 443 if not is_amqp else 5672 if "usedevelopmentemulator=true" in text.lower() else 5671
            if parts.hostname and parts.scheme not in _OF_STORES:
                yield parts.hostname, parts.port or usual, is_amqp
            # Some libraries take the host of the query before that of the URL.
            for one in _NAMED_HOST.findall(parts.query.replace("&", ";")):
                yield _host_and_port(unquote(one))


def _hosts_of_storage(text: str) -> Iterator[tuple[str, int, bool]]:
    """Yield the hosts of a storage account that a connection string names without their URLs."""
    named = {
        name.strip().lower(): value.strip() for name, _, value in (part.partition("=") for part in text.split(";"))
    }
    if account := named.get("accountname"):
        suffix = named.get("endpointsuffix") or "core.windows.net"
        for service in ("blob", "table"):
            if f"{service}endpoint" not in named:
                yield _host_and_port(f"{account}.{service}.{suffix}")


_TEXTS = re.compile(r"script|query|code|description", re.IGNORECASE)
"""Members whose value is a text that may hold anything, and names no host to connect to."""
_LISTS = re.compile(r"bootstrap|brokers|^servers?$|^hosts?$", re.IGNORECASE)
_OF_STORES = frozenset({"az", "azure", "adl", "abfs", "abfss", "s3", "s3a", "gs", "file", "sqlite"})
"""Schemes of URLs whose host is the name of a container or bucket, or nothing."""


def _host_and_port(text: str) -> tuple[str, int, bool]:
    found = _PORT.search(text.strip())
    host = text.strip()[: found.start()] if found else text.strip()
    return host.strip("[]"), int(found[1]) if found and int(found[1]) < 65536 else 0, False
