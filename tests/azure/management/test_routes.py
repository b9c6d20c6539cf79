"""The management API over HTTP: who gets in, envelopes, errors, entity tags, and what no client should send."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from tests.azure.management.conftest import GROUP, KEY, NAMESPACE, Api
from tidegate.azure.management import PrincipalRole
from tidegate.azure.management.access.requests import MAX_BODY_BYTES, ArmError
from tidegate.azure.management.routes import _check_transport
from tidegate.hub.access import sign
from tidegate.server import Server
from tidegate.server.http.refusals import is_loopback

HUB = f"{NAMESPACE}/eventhubs/hub-of-routes"
LIST_KEYS = f"{NAMESPACE}/authorizationRules/RootManageSharedAccessKey/listKeys"


def test_a_resource_in_its_envelope(api: Api) -> None:
    answer = api.call("GET", NAMESPACE)
    assert answer.status == 200
    body = answer.json
    assert (body["id"], body["name"], body["type"]) == (NAMESPACE, "emulatorNs1", "Microsoft.EventHub/Namespaces")
    assert body["properties"]["provisioningState"] == "Succeeded"
    assert body["sku"] == {"name": "Standard", "tier": "Standard"}
    assert answer.headers["ETag"].startswith('"')
    assert len(answer.headers["x-ms-request-id"]) == 36


@pytest.mark.parametrize(
    "path",
    [
        NAMESPACE.upper(),
        NAMESPACE.lower(),
        NAMESPACE.replace("resourceGroups", "resourcegroups").replace("/s1/", "/another/").replace("g1", "any-group"),
        f"{NAMESPACE}/",
        NAMESPACE.replace("/namespaces", "//namespaces"),
    ],
)
def test_paths_compare_without_case_and_any_place_will_do(api: Api, path: str) -> None:
    assert api.ok("GET", path)["name"] == "emulatorNs1"


@pytest.mark.parametrize(
    ("token", "code"),
    [
        ("", "AuthenticationFailed"),
        ("wrong", "InvalidAuthenticationToken"),
        ("a.b.c", "InvalidAuthenticationToken"),
        (f"{KEY} ", None),
        (KEY, None),
        (KEY.lower(), "InvalidAuthenticationToken"),
        ("x" * 10_000, "InvalidAuthenticationToken"),
    ],
)
def test_only_the_root_key_and_tokens_of_this_server_get_in(arm_server: Server, token: str, code: str | None) -> None:
    answer = Api(arm_server, token).call("GET", NAMESPACE)
    if code is None:
        assert answer.status == 200
        return
    assert (answer.status, answer.code) == (401, code)
    assert "authorization_uri" in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize("scheme", ["Basic", "SharedAccessSignature", "Token"])
def test_no_other_scheme_gets_in(api: Api, scheme: str) -> None:
    assert api.call("GET", NAMESPACE, Authorization=f"{scheme} {KEY}").status == 401


@pytest.mark.parametrize(
    ("role", "method", "path", "body", "allowed"),
    [
        (PrincipalRole.READER, "GET", NAMESPACE, None, True),
        (PrincipalRole.READER, "PUT", HUB, {}, False),
        (PrincipalRole.READER, "DELETE", HUB, None, False),
        (
            PrincipalRole.READER,
            "POST",
            f"{NAMESPACE}/authorizationRules/RootManageSharedAccessKey/listKeys",
            None,
            False,
        ),
        (PrincipalRole.CONTRIBUTOR, "PUT", HUB, {}, True),
        (
            PrincipalRole.CONTRIBUTOR,
            "POST",
            f"{NAMESPACE}/authorizationRules/RootManageSharedAccessKey/listKeys",
            None,
            False,
        ),
        (PrincipalRole.CONTRIBUTOR, "DELETE", f"{NAMESPACE}/authorizationRules/rootmanagesharedaccesskey", None, False),
        (PrincipalRole.OWNER, "POST", LIST_KEYS, None, True),
    ],
)
def test_a_role_may_do_what_it_says(
    api_of: Callable[[PrincipalRole], Api],
    role: PrincipalRole,
    method: str,
    path: str,
    body: Any,
    allowed: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "tidegate"):
        answer = api_of(role).call(method, path, body)
    if allowed:
        assert answer.status == 200
        return
    assert (answer.status, answer.code) == (403, "AuthorizationFailed")
    assert f"the-{role.value}" in answer.json["error"]["message"]
    (line,) = [record.getMessage() for record in caplog.records if "AuthorizationFailed" in record.getMessage()]
    assert f"'the-{role.value}'" in line
    assert method in line
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        (NAMESPACE, 400, "MissingApiVersionParameter"),
        (f"{NAMESPACE}?api-version=1", 400, "InvalidApiVersionParameter"),
        (f"{NAMESPACE}?API-VERSION=2024-01-01", 200, None),
        (f"{NAMESPACE}/nothing/such?api-version=2024-01-01", 404, "InvalidResourceType"),
        (f"{NAMESPACE.replace('emulatorNs1', 'other')}?api-version=2024-01-01", 404, "ResourceNotFound"),
        (f"{NAMESPACE}/eventhubs/none?api-version=2024-01-01", 404, "ResourceNotFound"),
        (f"{GROUP}/providers/Microsoft.Nothing?api-version=2024-01-01", 404, "InvalidResourceType"),
        ("/subscriptions/s/providers/Microsoft.Nothing?api-version=2024-01-01", 404, "InvalidResourceNamespace"),
    ],
)
def test_refusals_have_a_code_and_a_message(api: Api, target: str, status: int, code: str | None) -> None:
    answer = api.send("GET", target, Authorization=f"Bearer {KEY}")
    assert answer.status == status
    if code is not None:
        assert answer.code == code
        assert answer.json["error"]["message"]


def test_a_method_that_is_not_served_is_told_from_a_path(api: Api) -> None:
    answer = api.call("POST", NAMESPACE, {})
    assert (answer.status, answer.headers["Allow"]) == (405, "DELETE, GET, PATCH, PUT")


@pytest.mark.slow
def test_entity_tags_guard_changes(api: Api) -> None:
    path = f"{NAMESPACE}/eventhubs/tagged"
    assert api.call("PUT", path, {}, If_Match="*").status == 412
    made = api.call("PUT", path, {"properties": {"partitionCount": 1}}, If_None_Match="*")
    assert made.status == 200
    assert api.call("PUT", path, {}, If_None_Match="*").status == 412
    etag = made.headers["ETag"]
    assert api.call("GET", path).headers["ETag"] == etag
    assert api.call("GET", path, If_None_Match=etag).status == 304
    changed = {"properties": {"messageRetentionInDays": 2}}
    assert api.call("PUT", path, changed, If_Match=etag).status == 200
    assert api.call("PUT", path, changed, If_Match=etag).status == 412
    assert api.call("DELETE", path, If_Match=etag).status == 412
    assert api.call("DELETE", path, If_Match="*").status == 200
    assert api.call("DELETE", path).status == 204


def test_a_hub_may_be_called_as_a_path_of_the_api_begins(api: Api, arm_server: Server) -> None:
    api.ok("PUT", f"{NAMESPACE}/eventhubs/subscriptions", {"properties": {"partitionCount": 1}})
    token = sign(f"{api.base_url}/subscriptions", "RootManageSharedAccessKey", KEY, int(time.time()) + 60)
    for path in ("messages", "partitions/0/messages", "publishers/one/messages"):
        assert api.send("POST", f"/subscriptions/{path}", b"x", Authorization=token).status == 201
    api.ok("DELETE", f"{NAMESPACE}/eventhubs/subscriptions")


def test_whether_a_resource_exists(api: Api) -> None:
    assert api.call("HEAD", NAMESPACE).status == 200
    missing = api.call("HEAD", f"{NAMESPACE}/eventhubs/none")
    assert (missing.status, missing.content) == (404, b"")


def test_http_is_for_this_machine_only(arm_server: Server) -> None:
    connection = http.client.HTTPConnection("localhost", arm_server.http_port)
    connection.request("GET", f"{NAMESPACE}?api-version=2024-01-01", headers={"Authorization": f"Bearer {KEY}"})
    assert connection.getresponse().status == 200
    connection.close()
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "", "x")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_http_and_https_share_one_state(api: Api, arm_server: Server) -> None:
    api.ok("PUT", f"{GROUP}-shared", {"location": "here", "tags": {"a": "b"}})
    connection = http.client.HTTPConnection("localhost", arm_server.http_port)
    connection.request("GET", f"{GROUP}-shared?api-version=2024-01-01", headers={"Authorization": f"Bearer {KEY}"})
    assert json.loads(connection.getresponse().read())["tags"] == {"a": "b"}
    connection.close()


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"1",
        b'"x"',
        b"\xff\xfe",
        b'{"properties": []}',
        b'{"properties": {"partitionCount": "many"}}',
        b'{"properties": {"partitionCount": 1e400}}',
        b'{"properties": {"partitionCount": NaN}}',
        b'{"properties": {"partitionCount": 0}}',
        b'{"properties": {"partitionCount": ' + b"9" * 5000 + b"}}",
        b'{"properties": {"userMetadata": "\\ud800"}}',
        b'{"properties": {"retentionDescription": {"cleanupPolicy": "Compact"}}}',
        b'{"properties": {"captureDescription": {"enabled": true, "destination": {"name": "x"}}}}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_a_body_that_is_wrong_is_refused(api: Api, body: bytes) -> None:
    answer = api.call("PUT", f"{NAMESPACE}/eventhubs/never", body)
    assert answer.status == 400
    assert answer.json["error"]["message"]
    assert api.call("GET", f"{NAMESPACE}/eventhubs/never").status == 404


def test_a_body_that_is_too_large_is_refused_before_it_is_read(api: Api) -> None:
    answer = api.call("PUT", f"{NAMESPACE}/eventhubs/never", b"{}", Content_Length=str(MAX_BODY_BYTES + 1))
    assert (answer.status, answer.code) == (413, "RequestContentTooLarge")


@pytest.mark.parametrize(
    "path",
    [
        f"{NAMESPACE}/eventhubs/..",
        f"{NAMESPACE}/eventhubs/%2e%2e",
        f"{NAMESPACE}/eventhubs/a%2Fb",
        f"{NAMESPACE}/eventhubs/a%5Cb",
        f"{NAMESPACE}/eventhubs/%00",
        f"{NAMESPACE}/eventhubs/%ff",
        f"{NAMESPACE}/eventhubs/{'x' * 5000}",
        f"{NAMESPACE}/eventhubs/%0d%0aX-Evil:1",
    ],
)
def test_a_path_cannot_lead_elsewhere(api: Api, path: str) -> None:
    answer = api.send("PUT", f"{path}?api-version=2024-01-01", b"{}", Authorization=f"Bearer {KEY}")
    assert answer.status in (400, 404, 414)
    assert "X-Evil" not in answer.headers


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = (
    "properties",
    "sku",
    "tags",
    "location",
    "rights",
    "partitionCount",
    "captureDescription",
    "retentionDescription",
    "destination",
    "userMetadata",
    "capacity",
    "name",
    "keyType",
    "key",
    "template",
    "mode",
    "parameters",
)
FIELDS = st.sampled_from(NAMES)
NAMED = st.recursive(JSON, lambda inner: st.dictionaries(FIELDS, inner, max_size=5), max_leaves=10)
TARGETS = st.sampled_from(
    [
        NAMESPACE,
        f"{NAMESPACE}/eventhubs/fuzzed",
        f"{NAMESPACE}/eventhubs/eh1/consumergroups/fuzzed",
        f"{NAMESPACE}/authorizationRules/fuzzed",
        f"{NAMESPACE}/authorizationRules/fuzzed/regenerateKeys",
        f"{GROUP}-fuzzed",
        "/subscriptions/s/providers/Microsoft.EventHub/checkNameAvailability",
    ]
)


@settings(deadline=None)
@given(st.sampled_from(["PUT", "PATCH", "POST"]), TARGETS, NAMED.map(json.dumps).map(str.encode) | st.binary())
def test_any_body_is_answered(arm_server: Server, method: str, path: str, body: bytes) -> None:
    answer = Api(arm_server).call(method, path, body)
    assert answer.status < 500, answer.content
    assert json.loads(answer.content or b"{}") is not None


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_path_is_answered(arm_server: Server, path: bytes) -> None:
    """Over a raw socket, for clients that do not quote what they send."""
    port = arm_server.http_port or 0
    with socket.create_connection(("127.0.0.1", port)) as client:
        head = b"GET /subscriptions/" + path.replace(b"\r", b"").replace(b"\n", b"") + b" HTTP/1.1\r\nHost: x\r\n"
        client.sendall(head + b"Authorization: Bearer SAS_KEY_VALUE\r\nConnection: close\r\n\r\n")
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    assert answer[:9] == b"HTTP/1.1 "
    assert answer[9:10] in b"24"


def test_the_hub_still_serves_after_all_that(api: Api) -> None:
    assert api.send("GET", "/health").status == 200
    assert api.ok("GET", f"{NAMESPACE}/eventhubs/eh1")["properties"]["partitionIds"] == ["0", "1"]


@pytest.mark.parametrize(
    ("scheme", "client", "server", "is_served"),
    [
        ("http", "127.0.0.1", "127.0.0.1", True),
        ("http", "192.0.2.7", "192.0.2.7", True),
        ("http", "192.0.2.8", "192.0.2.7", False),
        ("https", "192.0.2.8", "192.0.2.7", True),
    ],
)
def test_without_tls_only_clients_on_this_machine_are_served(
    scheme: str, client: str, server: str, is_served: bool
) -> None:
    scope = {"type": "http", "scheme": scheme, "client": (client, 50000), "server": (server, 5300), "path": "/"}
    request = Request({**scope, "headers": [], "query_string": b"", "method": "GET"})
    if is_served:
        _check_transport(request)
        return
    with pytest.raises(ArmError) as refused:
        _check_transport(request)
    assert refused.value.code == "HttpsRequired"
