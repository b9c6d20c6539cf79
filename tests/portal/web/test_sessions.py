"""On loopback no key is needed; from elsewhere one is. A change comes from a page of the portal, or not at all."""

from __future__ import annotations

import logging
import time
from urllib.parse import urlencode

import pytest

from tests.portal.conftest import KEY, Client
from tidegate.hub.access import sign
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.portal.pages.sign_in import local_path
from tidegate.server import Server


def test_on_loopback_no_key_is_needed(client: Client) -> None:
    assert client.page("/").status == 200


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:80", "127.9.9.9"])
def test_any_name_of_loopback_will_do(server: Server, host: str) -> None:
    assert Client(server.http_port, host=host).page("/").status == 200


@pytest.mark.parametrize("host", ["rebound.example", "127.0.0.1.example", "", "10.0.0.1", "localhost.example:1"])
def test_a_page_that_points_its_name_at_loopback_gets_nothing(server: Server, host: str) -> None:
    visitor = Client(server.http_port, host=host or "x")
    answer = visitor.page("/")
    assert (answer.status, answer.headers["location"]) == (303, "/sign-in?next=/")
    assert visitor.request("GET", "/.json").status == 401
    assert visitor.request("POST", "/eventhubs", b"{}").status == 401


@pytest.mark.parametrize(
    "header",
    [
        {"X_Forwarded_For": "203.0.113.7"},
        {"X_Forwarded_For": "127.0.0.1"},
        {"X_Forwarded_Host": "hub.example"},
        {"X_Real_IP": "203.0.113.7"},
        {"Forwarded": "for=203.0.113.7"},
        {"Via": "1.1 proxy"},
    ],
)
def test_a_forwarded_request_is_not_local(server: Server, header: dict[str, str]) -> None:
    visitor = Client(server.http_port)
    assert visitor.request("GET", "/.json", **header).status == 401


def test_the_root_key_signs_an_owner_in_and_out(away: Client) -> None:
    assert away.sign_in().status == 303
    page = away.page("/eventhubs/eh1")
    assert "owner" in page.text
    assert KEY not in page.text
    out = away.request("POST", "/sign-out", f"csrf_token={away.token}".encode())
    assert out.status == 303
    away.cookie = away.cookie or "tidegate-session=gone"
    assert away.page("/").status == 303


def test_a_connection_string_signs_in_too(away: Client, server: Server) -> None:
    away.page("/sign-in")
    form = urlencode({"csrf_token": away.token, "key": server.connection_string(), "rule": ""})
    assert away.request("POST", "/sign-in", form.encode()).status == 303


def test_a_wrong_key_is_refused_and_not_repeated(away: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        answer = away.sign_in("wrong-secret")
    assert answer.status == 401
    assert "wrong-secret" not in answer.text + caplog.text
    assert "not valid" in answer.text


def test_the_sign_in_page_keeps_the_name_of_the_rule_and_links_to_no_json(away: Client) -> None:
    assert 'value="RootManageSharedAccessKey"' in away.page("/sign-in").text
    refused = away.sign_in("wrong", "telemetry-readers")
    assert 'name="rule" value="telemetry-readers"' in refused.text
    assert "sign-in.json" not in refused.text


def test_the_cookie_is_for_the_portal_alone(away: Client) -> None:
    cookie = away.sign_in().headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_a_session_ends_with_its_key(away: Client, server: Server) -> None:
    management = server.namespace.management
    rule = AccessRule.create("short-lived", [Right.LISTEN])
    management.create_access_rule(rule)
    try:
        away.sign_in(rule.primary_key, "short-lived")
        assert away.page("/").status == 200
        management.roll_key("short-lived", "primary")
        assert away.page("/").status == 303
    finally:
        management.delete_access_rule("short-lived")


def test_a_script_sends_a_shared_access_signature_with_each_request(away: Client) -> None:
    token = sign("http://hub.example", "RootManageSharedAccessKey", KEY, int(time.time()) + 60)
    away.headers["Authorization"] = token
    assert away.get("/.json")["namespace"] == "emulatorNs1"
    sent = away.request("POST", "/eventhubs/eh1/send", b'{"body": "by a script"}')
    assert sent.data == {"sent": 1}
    away.headers["Authorization"] = token.replace("sig=", "sig=x")
    assert away.request("GET", "/.json").status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"X-CSRF-Token": "wrong"},
        {"X-CSRF-Token": ""},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_change_that_no_page_of_the_portal_asked_for_is_refused(client: Client, headers: dict[str, str]) -> None:
    answer = client.post("/eventhubs/eh1/send", {"body": "x"}, **headers)
    assert answer.status == 403


def test_the_token_of_one_session_is_worth_nothing_in_another(away: Client, client: Client) -> None:
    client.page("/")
    away.sign_in()
    assert away.request("POST", "/eventhubs/eh1/send", b"{}", **{"X-CSRF-Token": client.token}).status == 403


@pytest.mark.parametrize(
    ("rights", "role", "may_send", "may_create"),
    [
        ([Right.LISTEN], "reader", 403, 403),
        ([Right.LISTEN, Right.SEND], "contributor", 200, 403),
        ([Right.MANAGE], "manager", 200, 200),
    ],
)
def test_the_role_follows_from_the_rights_of_the_key(
    away: Client,
    server: Server,
    caplog: pytest.LogCaptureFixture,
    rights: list[Right],
    role: str,
    may_send: int,
    may_create: int,
) -> None:
    rule = AccessRule.create(f"{role}s-key", rights)
    server.namespace.management.set_access_rule(rule)
    # It said that Manage makes an owner.
    assert f"a {role}" in away.page("/sign-in").text
    away.sign_in(rule.primary_key, rule.name)
    page = away.page("/eventhubs/eh1/explorer")
    assert f"{rule.name} · {role}" in page.text
    assert away.post("/eventhubs/eh1/send", {"body": "x"}).status == may_send
    with caplog.at_level(logging.WARNING):
        answer = away.post("/eventhubs", {"name": f"by-{role}", "partitionCount": 1})
    assert answer.status == may_create
    if may_create == 403:
        assert "needs the role manager" in answer.data["error"]["detail"]
        assert f"{rule.name}, {role}" in caplog.text
        assert "POST '/eventhubs'" in caplog.text


@pytest.mark.parametrize("rights", [[Right.SEND]])
def test_a_key_that_may_only_send_shows_nothing(away: Client, server: Server, rights: list[Right]) -> None:
    rule = AccessRule.create("senders-key", rights)
    server.namespace.management.set_access_rule(rule)
    answer = away.sign_in(rule.primary_key, rule.name)
    assert answer.status == 401
    assert "right Listen" in answer.text


def test_a_key_of_one_hub_does_not_open_all_of_them(away: Client, server: Server) -> None:
    rule = AccessRule.create("of-eh1", list(Right))
    server.namespace.management.set_access_rule(rule, "eh1")
    assert "not of one hub" in away.sign_in(rule.primary_key, rule.name).text


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/eventhubs/a?from=earliest", "/eventhubs/a?from=earliest"),
        ("https://elsewhere.example/", "/"),
        ("//elsewhere.example/", "/"),
        ("/\\elsewhere.example", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_signing_in_leads_to_a_page_of_the_portal(target: str, path: str) -> None:
    assert local_path(target) == path


def test_a_page_allows_no_inline_script_and_no_other_host(client: Client) -> None:
    answer = client.page("/eventhubs/eh1/explorer")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "<script>" not in answer.text
    assert "//" not in "".join(part.partition('"')[0] for part in answer.text.split('src="')[1:])
    assert answer.headers["cache-control"] == "no-store"


def test_a_browser_gets_a_page_for_what_does_not_exist_and_a_script_an_answer(client: Client) -> None:
    page = client.request("GET", "/no/such/page", Accept="text/html")
    assert (page.status, page.headers["content-type"].partition(";")[0]) == (404, "text/html")
    assert "there is no page /no/such/page" in page.text
    assert "<html" not in client.request("GET", "/no/such/page").text
    assert client.request("GET", "/health", Accept="text/html").status == 200
