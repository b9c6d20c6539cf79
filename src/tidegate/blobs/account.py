"""Accounts of object stores, as a connection string or variables name them, in obstore's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
AZURE_SCHEMES = ("az", "azure", "adl", "abfs", "abfss")


_S3_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
)


def s3_config(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of obstore for the variables of S3's tools; those that are missing are left out."""
    return {name.lower(): environment[name] for name in _S3_VARIABLES if environment.get(name)}


def allows_plain_http(config: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Whether a store is named by an http:// address: an emulator's, or an S3 server's of one's own."""
    endpoints = (
        config.get("endpoint", ""),
        environment.get("AWS_ENDPOINT", ""),
        environment.get("AWS_ENDPOINT_URL", ""),
    )
    return any(endpoint.lower().startswith("http://") for endpoint in endpoints)


def azure_config(connection_string: str, described: str = CONNECTION_STRING) -> dict[str, str]:
    """The settings of obstore for a connection string. Raises ValueError; the message holds no part of it.

    Args:
        described: what the message calls it.
    """
    parts: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in connection_string.split(";"))):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{described} is not of the form Name=value;Name=value")
        parts[name.lower()] = value
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        return {"use_emulator": "true"}
    account = parts.get("accountname")
    endpoint = parts.get("blobendpoint", "").rstrip("/")
    if not account and endpoint:
        account = re.sub(r"^https?://", "", endpoint).partition(".")[0]
    if not account:
        raise ValueError(f"{described} names no account: expected AccountName or BlobEndpoint in it")
    config = {"account_name": account}
    if endpoint:
        config["endpoint"] = endpoint
    elif suffix := parts.get("endpointsuffix"):
        config["endpoint"] = f"{parts.get('defaultendpointsprotocol', 'https')}://{account}.blob.{suffix}"
    if key := parts.get("accountkey"):
        config["account_key"] = key
    if signature := parts.get("sharedaccesssignature"):
        config["sas_key"] = signature.lstrip("?")
    return config
