"""A container or bucket of an object store, opened through obstore: the one place that knows how.

Credentials come from the environment, under the names that each provider's own tools use; Azure's connection string is
read too. They are never part of a message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tidegate.blobs.account import AZURE_SCHEMES, CONNECTION_STRING, allows_plain_http, azure_config, s3_config
from tidegate.blobs.errors import BlobError

_QUERY = re.compile(r"\?[^\s\"')]*")
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
    """Return the first line of an error without the query of any URL in it: that is where signatures are."""
    text = _QUERY.sub("", str(error)).strip() or type(error).__name__
    return text.splitlines()[0][:300]
