"""Reading what Microsoft's own checkpoint store keeps in Blob storage.

A checkpoint is an empty blob `NAMESPACE/HUB/GROUP/checkpoint/PARTITION`, in lower case, whose metadata has `offset` and
`sequencenumber`; an ownership one of `…/ownership/…` whose metadata has `ownerid`. Only reading is here: Microsoft's
`BlobCheckpointStore` writes them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NamedTuple

from tidegate.blobs.account import AZURE_SCHEMES, CONNECTION_STRING, azure_config
from tidegate.checkpoints.database import Position, in_order
from tidegate.checkpoints.errors import CheckpointError

_THREADS = 8
_TIMEOUT_S = 30
_QUERY = re.compile(r"\?[^\s\"')]*")


class _Entry(NamedTuple):
    """What one blob says."""

    key: tuple[str, str, str, str]
    kind: str
    metadata: Mapping[str, str]
    modified_s: float


def is_blob_container(location: str) -> bool:
    """Whether a place is a container of Blob storage: az://CONTAINER, or https://ACCOUNT.blob.core.windows.net/…"""
    scheme, separator, rest = location.partition("://")
    return bool(separator) and (scheme in AZURE_SCHEMES or (scheme == "https" and ".blob." in rest.partition("/")[0]))


class BlobCheckpoints:
    """The checkpoints in a container. Credentials come from the environment."""

    def __init__(self, url: str, environment: Mapping[str, str] = os.environ) -> None:
        """Raises CheckpointError for a URL or credentials that cannot be used, or without obstore."""
        try:
            import obstore.exceptions
            import obstore.store
        except ModuleNotFoundError:
            raise CheckpointError(f'{_QUERY.sub("", url)} needs an extra: pip install "tidegate[capture]"') from None
        self._url = _QUERY.sub("", url)
        self._api = obstore
        self._errors = (obstore.exceptions.BaseError, OSError)
        try:
            config = azure_config(environment[CONNECTION_STRING]) if CONNECTION_STRING in environment else {}
            plain = config.get("endpoint", "").startswith("http://")
            options: dict[str, Any] = {
                "config": config or None,  # what it does not say is in the environment
                "client_options": {"timeout": timedelta(seconds=_TIMEOUT_S), "allow_http": plain},
                "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=_TIMEOUT_S)},
            }
            self._store = obstore.store.from_url(url, **options)
        except (*self._errors, ValueError) as error:
            raise self._failed("cannot be used", error) from None

    def positions(self) -> list[Position]:
        """Every checkpoint there is, in the order of their names. Raises CheckpointError."""
        now_s = time.time()
        entries = list(self._entries())
        owners = {entry.key: entry.metadata.get("ownerid", "") for entry in entries if entry.kind == "ownership"}
        positions = [
            Position(
                *entry.key,
                sequence_number=_number(entry.metadata.get("sequencenumber")),
                age_s=max(0.0, now_s - entry.modified_s),
                owner_id=owners.get(entry.key, ""),
            )
            for entry in entries
            if entry.kind == "checkpoint"
        ]
        return sorted(positions, key=in_order)

    def close(self) -> None:
        """There is nothing to give up."""

    def _entries(self) -> Iterator[_Entry]:
        try:
            names = [item["path"] for page in self._api.list(self._store) for item in page]
            with ThreadPoolExecutor(_THREADS) as threads:
                yield from filter(None, threads.map(self._entry, names))
        except self._errors as error:
            raise self._failed("cannot be read", error) from None

    def _entry(self, name: str) -> _Entry | None:
        parts = name.split("/")
        if len(parts) != 5 or parts[3] not in ("checkpoint", "ownership"):
            return None  # somebody else's
        try:
            found = self._api.get(self._store, name)
        except FileNotFoundError:
            return None  # gone since
        metadata = {key.lower(): str(value) for key, value in found.attributes.items()}
        key = (parts[0], parts[1], parts[2], parts[4])
        return _Entry(key, parts[3], metadata, found.meta["last_modified"].timestamp())

    def _failed(self, what: str, error: Exception) -> CheckpointError:
        """Without the query of any URL: that is where signatures are."""
        lines = _QUERY.sub("", str(error)).strip().splitlines() or [type(error).__name__]
        return CheckpointError(f"{self._url} {what}: {lines[0][:300]}")


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.lstrip("-").isdecimal() else None
