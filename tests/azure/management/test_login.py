"""The token endpoint: what it gives a token for, what it refuses, and what the token is worth afterwards."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.azure.management.conftest import KEY, NAMESPACE, SECRETS, Api
from tidegate.azure.management import PrincipalRole, Principals
from tidegate.azure.management.access.tokens import CLOCK_SKEW_S, LIFETIME_S, TokenIssuer, TokenRejected
from tidegate.server import Server

ROOT = "RootManageSharedAccessKey"


def claims_of(token: str) -> Any:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.mark.parametrize("tenant", ["adfs", "any.tenant", "0c5d6f7e-1111-2222-3333-444455556666", "adfs/inner"])
def test_any_tenant_s_endpoint_gives_a_token(api: Api, arm_server: Server, tenant: str) -> None:
    answer = api.log_in("the-reader", SECRETS[PrincipalRole.READER], tenant)
    assert answer.status == 200
    token = answer.json["access_token"]
    assert answer.json["token_type"] == "Bearer"
    assert answer.json["expires_in"] == LIFETIME_S
    claims = claims_of(token)
    assert (claims["appid"], claims["aud"]) == ("the-reader", api.base_url)
    assert claims["exp"] - claims["iat"] == LIFETIME_S
    assert claims["tid"] == (tenant if tenant.startswith("0c5d") else "00000000-0000-0000-0000-000000000000")
    assert Api(arm_server, token).call("GET", NAMESPACE).status == 200


def test_the_first_version_of_the_endpoint_says_its_times_as_text(api: Api) -> None:
    form = f"grant_type=client_credentials&client_id={ROOT}&client_secret={KEY}&resource=https://management.azure.com/"
    answer = api.send("POST", "/x/oauth2/token", form.encode())
    assert answer.status == 200
    assert int(answer.json["expires_on"]) - int(answer.json["not_before"]) == LIFETIME_S
    assert answer.json["resource"] == "https://management.azure.com/"


def test_a_secret_may_come_by_http_basic(api: Api) -> None:
    encoded = base64.b64encode(f"the-owner:{SECRETS[PrincipalRole.OWNER]}".encode()).decode()
    form = f"grant_type=client_credentials&scope={api.base_url}/.default"
    answer = api.send("POST", "/x/oauth2/v2.0/token", form.encode(), Authorization=f"Basic {encoded}")
    assert answer.status == 200
    assert claims_of(answer.json["access_token"])["appid"] == "the-owner"


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({"client_secret": "wrong"}, 401, "invalid_client"),
        ({"client_id": "nobody"}, 401, "invalid_client"),
        ({"client_id": ""}, 401, "invalid_client"),
        ({"client_id": ROOT, "client_secret": "SAS_KEY_VALU"}, 401, "invalid_client"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({"scope": "https://graph.microsoft.com/.default"}, 400, "invalid_resource"),
        ({"scope": "https://servicebus.azure.net/.default"}, 400, "invalid_resource"),
        ({"scope": ""}, 400, "invalid_scope"),
        ({"client_secret": "", "client_assertion": "x"}, 401, "invalid_client"),
    ],
)
def test_no_token_for_anything_else(api: Api, fields: dict[str, str], status: int, error: str) -> None:
    answer = api.log_in("the-reader", SECRETS[PrincipalRole.READER], **fields)
    assert (answer.status, answer.json["error"]) == (status, error)
    assert answer.json["error_description"].startswith("AADSTS")
    assert KEY not in answer.content.decode()


@pytest.mark.parametrize("content", [b"\xff", b"&" * 1000, b"a=" + b"x" * 20_000, b"", b"%ff=%ff"])
def test_a_form_that_is_wrong_is_refused(api: Api, content: bytes) -> None:
    assert api.send("POST", "/x/oauth2/v2.0/token", content).status in (400, 401, 413)


@pytest.mark.slow
def test_a_token_ends_with_its_secret_and_its_principal(arm_server: Server, api: Api) -> None:
    principals = Principals(arm_server.data_dir)
    secret = principals.create("short-lived", PrincipalRole.READER)

    def status() -> int:
        return user.call("GET", NAMESPACE).status

    user = Api(arm_server, api.log_in("short-lived", secret).json["access_token"])
    assert status() == 200
    principals.assign("short-lived", PrincipalRole.CONTRIBUTOR)
    assert user.call("PUT", f"{NAMESPACE}/eventhubs/eh1", {}).status == 200
    principals.assign("short-lived", PrincipalRole.READER)
    assert user.call("PUT", f"{NAMESPACE}/eventhubs/eh1", {}).status == 403
    secret = principals.reset("short-lived")
    assert status() == 401
    user.token = api.log_in("short-lived", secret).json["access_token"]
    assert status() == 200
    principals.delete("short-lived")
    assert status() == 401


def test_a_token_for_the_root_key_ends_with_that_key(arm_server: Server, api: Api) -> None:
    management = arm_server.namespace.management
    former = arm_server.namespace.access.rule_table.rule(ROOT)
    management.roll_key(ROOT, "secondary")
    second = arm_server.namespace.access.rule_table.rule(ROOT).secondary_key
    try:
        user = Api(arm_server, api.log_in(ROOT, second).json["access_token"])
        assert user.call("GET", NAMESPACE).status == 200
        management.roll_key(ROOT, "secondary")
        assert user.call("GET", NAMESPACE).status == 401
        assert Api(arm_server, second).call("GET", NAMESPACE).status == 401
    finally:
        management.set_access_rule(former)


def test_the_key_of_another_rule_is_no_credential(arm_server: Server, api: Api) -> None:
    path = f"{NAMESPACE}/authorizationRules/manager"
    api.ok("PUT", path, {"properties": {"rights": ["Manage", "Listen", "Send"]}})
    key = api.ok("POST", f"{path}/listKeys")["primaryKey"]
    assert Api(arm_server, key).call("GET", NAMESPACE).status == 401
    assert api.log_in("manager", key).status == 401
    # Beside another rule that may manage, the last one could be deleted.
    api.ok("DELETE", path)


def issued(now_s: float = 1000.0, **changes: Any) -> str:
    arguments = {"client_id": "c", "credential": "s", "audience": "https://a", "tenant": "t", "now_s": now_s} | changes
    return TokenIssuer(b"k" * 32).issue(**arguments)


@pytest.mark.parametrize(
    ("token", "now_s", "reason"),
    [
        (issued(), 1000 + LIFETIME_S, "expired"),
        (issued(now_s=1000 + CLOCK_SKEW_S + 1), 1000, "not valid yet"),
        (issued(audience="https://b"), 1000, "audience"),
        (TokenIssuer(b"x" * 32).issue("c", "s", "https://a", "t", 1000), 1000, "not signed"),
        (issued()[:-1], 1000, "not signed"),
        (issued().replace(".", "..", 1), 1000, "neither"),
        ("", 1000, "neither"),
        ("\u00e9.b.c", 1000, "neither"),
    ],
)
def test_claims(token: str, now_s: float, reason: str) -> None:
    issuer = TokenIssuer(b"k" * 32)
    with pytest.raises(TokenRejected, match=reason):
        issuer.verify(token, ["https://a/"], now_s)


def test_a_header_that_asks_for_no_signature_is_refused() -> None:
    _, claims, _ = issued().split(".")
    header = base64.urlsafe_b64encode(b'{"typ":"JWT","alg":"none"}').rstrip(b"=").decode()
    for token in (f"{header}.{claims}.", f"{header}.{claims}.x"):
        with pytest.raises(TokenRejected, match="not signed"):
            TokenIssuer(b"k" * 32).verify(token, ["https://a"], 1000)


def test_a_token_is_read_as_it_was_issued() -> None:
    issuer = TokenIssuer(b"k" * 32)
    claims = issuer.verify(issued(), ["https://A/"], 1000)
    assert (claims.client_id, claims.binding) == ("c", issuer.binding("s"))


def test_documents_by_which_clients_find_the_endpoint(api: Api) -> None:
    base = api.base_url
    document = api.send("GET", "/some-tenant/v2.0/.well-known/openid-configuration").json
    assert document["token_endpoint"] == f"{base}/some-tenant/oauth2/v2.0/token"
    document = api.send("GET", "/adfs/.well-known/openid-configuration").json
    assert document["token_endpoint"] == f"{base}/adfs/oauth2/token"
    found = api.send("GET", f"/common/discovery/instance?authorization_endpoint={base}/t/oauth2/v2.0/authorize").json
    assert found["tenant_discovery_endpoint"] == f"{base}/t/v2.0/.well-known/openid-configuration"
    assert api.send("GET", "/adfs/discovery/keys").json == {"keys": []}
    for version, pick in (("2015-01-01", dict), ("2019-05-01", lambda found: found[0]), ("2022-09-01", dict)):
        metadata = pick(api.send("GET", f"/metadata/endpoints?api-version={version}").json)
        assert metadata["authentication"]["loginEndpoint"] == f"{base}/adfs"
        assert metadata["authentication"]["audiences"][0] == base
