"""The local token endpoint: OAuth 2.0 client credentials, and the documents by which clients find it.

It answers as Entra ID's endpoints do (https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow),
as far as MSAL, azure-identity and the Azure CLI need: v1.0 with a `resource` and v2.0 with a `scope`, below any tenant,
and below `adfs`, for which MSAL asks no host of Microsoft's whether the authority is known.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from tidegate.azure.management.access.requests import ArmAnswer
from tidegate.azure.management.access.tokens import DATA_AUDIENCES, LIFETIME_S, MANAGEMENT_AUDIENCES, Callers

MAX_FORM_BYTES = 16 << 10
_DEFAULT_SCOPE = "/.default"


class TokenRefused(Exception):
    """A request for a token that is refused, in the terms of RFC 6749, 5.2."""

    def __init__(self, error: str, number: int, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.number = number

    def answer(self, now: datetime) -> ArmAnswer:
        """Return the answer, with the fields that clients of Entra ID print."""
        trace = str(uuid.uuid4())
        body = {
            "error": self.error,
            "error_description": f"AADSTS{self.number}: {self}",
            "error_codes": [self.number],
            "timestamp": now.strftime("%Y-%m-%d %H:%M:%SZ"),
            "trace_id": trace,
            "correlation_id": trace,
        }
        return ArmAnswer(401 if self.error == "invalid_client" else 400, body)


def issue_token(
    callers: Callers, tenant: str, content: bytes, headers: Mapping[str, str], base_url: str, *, is_v2: bool
) -> tuple[ArmAnswer, str]:
    """Answer a request for a token.

    Args:
        callers: What verifies the credentials.
        tenant: The tenant in the path; any one will do.
        content: The body, a form.
        headers: Their names in lower case.
        base_url: How the client reached the server, which is an audience of its own.
        is_v2: Whether it is answered as the second version of the endpoint does.

    Returns:
        The answer, and the client's id for the log.
    """
    client_id = ""
    try:
        form = _form(content)
        client_id, secret = _credentials(form, headers)
        if form.get("grant_type") != "client_credentials":
            raise TokenRefused(
                "unsupported_grant_type", 70003, "only service principals log in here: grant_type=client_credentials"
            )
        audience = _audience(form, base_url)
        token = callers.issue_token(client_id, secret, audience, tenant) if client_id and secret else None
        if token is None:
            raise TokenRefused(
                "invalid_client",
                7000215,
                "Invalid client secret provided, or no such client: `tidegate principal list` shows the clients",
            )
    except TokenRefused as refused:
        return refused.answer(datetime.now(UTC)), client_id[:128]
    body: dict[str, Any] = {"token_type": "Bearer", "expires_in": LIFETIME_S, "ext_expires_in": LIFETIME_S}
    if not is_v2:
        now = int(datetime.now(UTC).timestamp())
        numbers = {"expires_in": LIFETIME_S, "expires_on": now + LIFETIME_S, "not_before": now}
        body |= {name: str(number) for name, number in numbers.items()} | {"resource": audience}
    return ArmAnswer(200, body | {"access_token": token}, {"Cache-Control": "no-store"}), client_id[:128]


def _form(content: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(content.decode("utf-8"), max_num_fields=50, errors="strict"))
    except ValueError:
        raise TokenRefused("invalid_request", 900144, "the body is not a form in UTF-8") from None


def _credentials(form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the client's id and secret, from the form or from HTTP Basic (RFC 6749, 2.3.1)."""
    scheme, _, encoded = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            client_id, _, secret = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, ValueError):
            raise TokenRefused("invalid_request", 900144, "the Authorization header is not HTTP Basic") from None
        return unquote(client_id), unquote(secret)
    if "client_assertion" in form:
        raise TokenRefused("invalid_client", 700027, "certificates are not supported here; use a client secret")
    return form.get("client_id", ""), form.get("client_secret", "")


def _audience(form: Mapping[str, str], base_url: str) -> str:
    """Return the audience that is asked for, if it is that of the management API."""
    name = "resource" if "resource" in form else "scope"
    asked = form.get(name, "")
    scopes = [scope for scope in asked.split() if scope not in ("openid", "offline_access", "profile")]
    if len(scopes) != 1:
        raise TokenRefused("invalid_scope", 70011, f"one {name} is needed, such as {base_url}{_DEFAULT_SCOPE}")
    audience = scopes[0].removesuffix(_DEFAULT_SCOPE)
    if audience.rstrip("/").lower() not in {*MANAGEMENT_AUDIENCES, *DATA_AUDIENCES, base_url.lower()}:
        raise TokenRefused(
            "invalid_resource",
            500011,
            f"the resource {audience[:200]!r} is not served here; it is {base_url} or {MANAGEMENT_AUDIENCES[0]}. "
            "Event Hubs clients log in with a shared access key",
        )
    return audience


def openid_configuration(base_url: str, authority: str, *, is_v2: bool) -> dict[str, Any]:
    """Return the OpenID Connect discovery document of an authority such as `https://localhost:8443/adfs`."""
    version = "/v2.0" if is_v2 else ""
    return {
        "issuer": authority + version,
        "authorization_endpoint": f"{authority}/oauth2{version}/authorize",
        "token_endpoint": f"{authority}/oauth2{version}/token",
        "device_authorization_endpoint": f"{authority}/oauth2{version}/devicecode",
        "jwks_uri": f"{authority}/discovery/keys",
        "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
        "grant_types_supported": ["client_credentials"],
        "response_types_supported": ["token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["HS256"],
        "cloud_instance_name": base_url.partition("://")[2],
    }


def instance_discovery(base_url: str, authorization_endpoint: str) -> dict[str, Any]:
    """Return what MSAL asks of an authority's host: which hosts are the same, and where the tenant describes itself."""
    host = base_url.partition("://")[2]
    path = authorization_endpoint.partition("://")[2].partition("/")[2]
    tenant = path.partition("/")[0] or "common"
    return {
        "tenant_discovery_endpoint": f"{base_url}/{tenant}/v2.0/.well-known/openid-configuration",
        "api-version": "1.1",
        "metadata": [{"preferred_network": host, "preferred_cache": host, "aliases": [host]}],
    }


def cloud_metadata(base_url: str, api_version: str) -> Any:
    """Return the cloud's endpoints, by which `az cloud register` and Terraform configure themselves."""
    login = f"{base_url}/adfs"
    if api_version < "2019":
        authentication = {"loginEndpoint": login, "audiences": [base_url]}
        return {"galleryEndpoint": "", "graphEndpoint": "", "portalEndpoint": "", "authentication": authentication}
    cloud = {
        "name": "Tidegate",
        "resourceManager": base_url,
        "portal": base_url,
        "authentication": {
            "loginEndpoint": login,
            "audiences": [base_url, f"{MANAGEMENT_AUDIENCES[0]}/"],
            "tenant": "adfs",
            "identityProvider": "ADFS",
        },
        "suffixes": {},
    }
    return cloud if api_version >= "2022" else [cloud]
