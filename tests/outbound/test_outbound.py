"""Addresses that a service connects to for others, and those that it does not."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE_S
from tidegate import outbound
from tidegate.outbound import AddressPolicy, AddressRefused, Allowed, connect, hosts_of, http_connection, normalised

GUARDED = AddressPolicy.guarded()


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """Return a server that redirects to where its path says, and else answers with the credentials it was shown."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = self.path.partition("?to=")[2]
            content = self.headers.get("Authorization", "nobody").encode()
            self.send_response(302 if target else 200)
            if target:
                self.send_header("Location", target)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Be quiet."""

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "localhost",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "0.0.0.0",
        "0",
        "::",
        "::ffff:0.0.0.0",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "169.254.1.1",
        "fe80::1",
        "fe80::1%1",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "224.0.0.1",
        "255.255.255.255",
    ],
)
def test_a_guarded_process_connects_to_nothing_that_trusts_its_machine(host: str) -> None:
    with GUARDED.in_force(), pytest.raises(AddressRefused, match="--allow-address"):
        connect(host, 80, PATIENCE_S)


@pytest.mark.parametrize("address", ["10.0.0.5", "192.168.1.1", "8.8.8.8", "2001:4860:4860::8888", "fd12:3456::1"])
def test_other_addresses_are_free(address: str) -> None:
    GUARDED.check("h", address, 443)


@given(st.ip_addresses(v=4))
def test_an_address_is_judged_alike_however_it_is_written(address: Any) -> None:
    forms = [f"::ffff:{address}", f"64:ff9b::{int(address):x}" if int(address) < 1 << 16 else f"64:ff9b::{address}"]

    def is_free(text: str) -> bool:
        try:
            GUARDED.check("h", text, 80)
        except AddressRefused:
            return False
        return True

    assert {is_free(form) for form in forms} == {is_free(str(address))}
    assert normalised(forms[0]) == address


def test_a_name_is_resolved_once_and_only_checked_addresses_are_used(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that answers differently the second time (DNS rebinding) gains nothing."""
    answers = iter(["203.0.113.7", "127.0.0.1"])
    asked: list[str] = []

    def resolve(host: str, port: int, **options: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    used: list[Any] = []

    class Socket(socket.socket):
        def connect(self, address: Any) -> None:
            used.append(address)
            raise TimeoutError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "socket", Socket)
    with GUARDED.in_force():
        with pytest.raises(TimeoutError):
            connect("rebound.example", server.server_port, 1.0)
        with pytest.raises(AddressRefused, match=r"rebound\.example is 127\.0\.0\.1"):
            connect("rebound.example", server.server_port, 1.0)
    assert (asked, used) == (["rebound.example"] * 2, [("203.0.113.7", server.server_port)])


def test_what_the_operator_allows_is_allowed_at_its_port_only(server: ThreadingHTTPServer) -> None:
    port = server.server_port
    with AddressPolicy.guarded([f"127.0.0.1:{port}"]).in_force():
        connect("localhost", port, PATIENCE_S).close()
        with pytest.raises(AddressRefused):
            connect("127.0.0.1", port ^ 1, PATIENCE_S)
        with pytest.raises(AddressRefused):
            connect("127.0.0.2", port, PATIENCE_S)


def test_a_job_reads_its_own_hub_but_not_the_portal_whatever_is_allowed(server: ThreadingHTTPServer) -> None:
    port = server.server_port
    with GUARDED.beside([port], [5300]).in_force():
        connect("localhost", port, PATIENCE_S, is_amqp=True).close()
        with pytest.raises(AddressRefused):
            connect("localhost", port, PATIENCE_S)
    with AddressPolicy.guarded(outbound.LOOPBACK).beside([], [port]).in_force():
        for host in ("localhost", "127.0.0.1", "0.0.0.0"):
            with pytest.raises(AddressRefused, match="for its owner"):
                connect(host, port, PATIENCE_S)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("127.0.0.1", "127.0.0.1/32"),
        ("127.0.0.1:10000", "127.0.0.1:10000"),
        ("[::1]:10000", "[::1]:10000"),
        ("::1", "::1/128"),
        ("10.0.0.0/8", "10.0.0.0/8"),
    ],
)
def test_an_allowed_address_reads_and_writes(text: str, shown: str) -> None:
    assert str(Allowed.parse(text)) == shown
    assert Allowed.parse(shown) == Allowed.parse(text)


@pytest.mark.parametrize("text", ["", "localhost", "127.0.0.1:0", "127.0.0.1:99999", "1.2.3", "10.0.0.0/99", "[::1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|port|appear|CIDR|netmask|permitted|Expected|Octet|valid"):
        Allowed.parse(text)


def test_another_process_gets_the_policy_from_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = AddressPolicy.guarded(["127.0.0.1:10000", "::1"]).beside([5672], [5300])
    for name, value in policy.environment.items():
        monkeypatch.setenv(name, value)
    assert outbound.current() == policy
    monkeypatch.setenv(outbound.VARIABLE, AddressPolicy().environment[outbound.VARIABLE])
    assert not outbound.current().is_guarded


def test_redirects_are_checked_and_credentials_stay_where_they_belong(server: ThreadingHTTPServer) -> None:
    port = server.server_port

    def asked(target: str) -> urllib.request.Request:
        return urllib.request.Request(target, headers={"Authorization": "secret"})

    here = f"http://127.0.0.1:{port}/"
    for target, shown in (
        (here, b"secret"),
        (f"{here}?to={here}", b"secret"),
        (f"{here}?to={here.replace('127.0.0.1', 'localhost')}", b"nobody"),
    ):
        with outbound.url_opener().open(asked(target), timeout=PATIENCE_S) as answer:
            assert answer.read() == shown
    with AddressPolicy.guarded([f"127.0.0.1:{port}"]).in_force():
        with pytest.raises(urllib.error.URLError, match=r"127\.0\.0\.2 is a loopback address"):
            outbound.url_opener().open(asked(f"{here}?to=http://127.0.0.2:{port}/"), timeout=PATIENCE_S)
        with closing(http_connection("http", "127.0.0.1", port, PATIENCE_S)) as connection:
            connection.request("GET", f"/?to=http://127.0.0.2:{port}/")
            assert connection.getresponse().status == 302


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        ({"connection_string": "Endpoint=sb://h:5672;SharedAccessKey=x;UseDevelopmentEmulator=true"}, ["h"]),
        ({"url": "https://user:p@h:8443/a?code=x"}, ["h"]),
        ({"bootstrap_servers": "a:9092,b:9092"}, ["a", "b"]),
        ({"connection_string": "Server=tcp:h,1433;Database=d"}, ["h"]),
        ({"connection_string": "host=h port=5432 dbname=d"}, ["h"]),
        ({"connection_string": "redis://:p@h:6379/0"}, ["h"]),
        ({"connection_string": "UseDevelopmentStorage=true"}, ["127.0.0.1"]),
        ({"catalog_properties": {"uri": "http://h:8181"}}, ["h"]),
        ({"connection_string": "sqlserver://u:p@h/d?host=g&x=1"}, ["h", "g"]),
        ({"connection_string": "AccountName=h;AccountKey=k"}, ["h.blob.core.windows.net", "h.table.core.windows.net"]),
        (
            {"connection_string": "AccountName=h;AccountKey=k;EndpointSuffix=s;BlobEndpoint=https://b"},
            ["b", "h.table.s"],
        ),
        ({"path": "az://container/a"}, []),
        ({"script": "// see http://127.0.0.1/", "query": "SELECT 'http://127.0.0.1/'"}, []),
    ],
)
def test_hosts_are_found_in_settings(settings: Any, hosts: list[str]) -> None:
    assert [host for host, _, _ in hosts_of(settings)] == hosts


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1\\instance",
        "127.0.0.1%5Cinstance",
        "/tmp/mysql.sock",
        "127.0.0.1/x.blob.core.windows.net",
        "",
        "(local)",
        "u@127.0.0.1",
    ],
)
def test_what_is_no_host_is_not_left_to_a_library(host: str) -> None:
    outbound.check_host(host, 80)
    with GUARDED.in_force(), pytest.raises(AddressRefused) as refusal:
        outbound.check_host(host, 80)
    assert "--allow-address" not in str(refusal.value)


def test_a_library_may_try_all_addresses_of_a_name_so_all_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in ("203.0.113.7", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with GUARDED.in_force():
        with pytest.raises(AddressRefused, match=r"two\.example is 127\.0\.0\.1"):
            outbound.check_settings({"connection_string": "redis://two.example:6379/0"})
        assert [one[4][0] for one in outbound.resolved("two.example", 80)] == ["203.0.113.7"]
    with AddressPolicy.guarded(["127.0.0.1:80"]).in_force():
        outbound.check_host("two.example", 80)


def test_localhost_is_allowed_with_one_of_its_addresses() -> None:
    with AddressPolicy.guarded(["127.0.0.1:80"]).in_force():
        outbound.check_host("localhost", 80)
        with pytest.raises(AddressRefused):
            outbound.check_host("localhost", 81)


@pytest.mark.parametrize(
    "settings", [{}, {"host": "127.0.0.1"}, {"host": "8.8.8.8", "unix_socket": "/s"}, {"path": "/s"}]
)
def test_a_driver_does_not_reach_the_hubs_machine(settings: dict[str, Any]) -> None:
    outbound.check_driver(settings, 3306)
    with GUARDED.in_force():
        with pytest.raises(AddressRefused):
            outbound.check_driver(settings, 3306)
        outbound.check_driver({"host": "8.8.8.8", "port": "1"}, 3306)


@pytest.mark.parametrize("settings", [{"dbname": "d"}, {"host": "/var/run/postgresql"}, {"host": "8.8.8.8,127.0.0.1"}])
def test_postgresql_is_not_reached_as_the_hub_itself(settings: dict[str, str]) -> None:
    assert outbound.postgresql_address(settings) is None
    with GUARDED.in_force():
        with pytest.raises(AddressRefused):
            outbound.postgresql_address(settings)
        assert outbound.postgresql_address({"host": "8.8.8.8"}) == "8.8.8.8"
