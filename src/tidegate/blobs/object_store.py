"""Open containers of Blob storage and S3 buckets through obstore, with credentials from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any


class BlobError(Exception):
    """A folder or store cannot be listed, or a file not read; the message holds no secret."""


class BlobGone(BlobError):
    """There is no such file, or it is not the one that was there."""


CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
AZURE_SCHEMES = ("az", "azure", "adl", "abfs", "abfss")


_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
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
    for setting, text in (("AccountName", account), ("EndpointSuffix", parts.get("endpointsuffix"))):
        if text and not _HOST_NAME.fullmatch(text):
            raise ValueError(f"the {setting} of {described} is part of a host's name: letters, digits, '.' and '-'")
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


_QUERY = re.compile(r"\?[^\s\"')]*")
# deltalake writes the causes of an error below it, each after an arrow in red, and how long it has tried.
_CAUSE = re.compile(r"\s*(?:\x1b\[\d+m)?↳(?:\x1b\[\d+m)?\s*")
_TRIALS = re.compile(r" in [\d.]+\w+, after \d+ retries, max_retries: \d+, retry_timeout: \d+\w+ ")
# obstore puts an answer behind its own words; the body is XML of one form in Blob storage, S3 and Google Cloud.
_ANSWER = re.compile(r"status code: (?P<status>\d{3}(?: [A-Z][A-Za-z-]*)*)")
_REASON = re.compile(r"<Code>(?P<code>\w+)</Code>\s*<Message>(?P<message>[^<\n]*)")
_REQUEST_TIMEOUT_S = 60
_RETRY_FOR_S = 20


class ObjectStore:
    """An open container or bucket.

    Attributes:
        url: without its query, which may hold a signature.
        api: the functions of obstore, which take `handle` first.
        errors: what they raise.
    """

    def __init__(self, url: str, environment: Mapping[str, str] | None = None) -> None:
        """
        Args:
            environment: where credentials are; default: this process's.

        Raises:
            BlobError: the URL or the credentials cannot be used.
            ModuleNotFoundError: obstore is not installed.
        """
        import obstore.exceptions  # an extra: what stays on this machine does without
        import obstore.store

        environment = os.environ if environment is None else environment
        self.url = _QUERY.sub("", url)
        self.api: Any = obstore
        self.errors = (obstore.exceptions.BaseError, OSError)
        try:
            config: dict[str, str] = {}
            if is_azure(url) and CONNECTION_STRING in environment:
                config = azure_config(environment[CONNECTION_STRING])
            elif url.startswith("s3") and environment is not os.environ:
                config = s3_config(environment)
            options: dict[str, Any] = {
                "config": config or None,  # what it does not say is in the environment
                "client_options": {
                    "timeout": timedelta(seconds=_REQUEST_TIMEOUT_S),
                    "allow_http": allows_plain_http(config, environment),
                },
                "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=_RETRY_FOR_S)},
            }
            self.handle: Any = obstore.store.from_url(url, **options)
        except (*self.errors, ValueError) as error:
            raise BlobError(self.problem("cannot be used", error)) from None

    def problem(self, what: str, error: Exception, name: str = "") -> str:
        """Return a message about this store, or a file of it, that holds no secret."""
        place = f"{self.url}/{name}" if name else self.url
        return f"{place} {what}: {without_secrets(error)}"


def is_azure(url: str) -> bool:
    """Whether a URL names Blob storage: az://CONTAINER and its like, or https://ACCOUNT.blob.core.windows.net/…"""
    scheme, _, rest = url.partition("://")
    return scheme in AZURE_SCHEMES or (scheme == "https" and ".blob." in rest.partition("/")[0])


def without_secrets(error: Exception) -> str:
    """Return an error's first line with its causes, or what a store has answered; without queries of URLs.

    A query may hold a signature.
    """
    text = _TRIALS.sub("", _CAUSE.sub(": ", str(error)))
    if answer := _ANSWER.search(text):
        reason = _REASON.search(text, answer.end())
        explained = f" ({reason['code']}): {reason['message']}" if reason else ""
        text = f"the store answers {answer['status']}{explained}"
    text = _QUERY.sub("", text).strip() or type(error).__name__
    return text.splitlines()[0][:300]
