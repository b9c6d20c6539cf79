"""Reading what Microsoft's own checkpoint store keeps in Blob storage.

A checkpoint is an empty blob `NAMESPACE/HUB/GROUP/checkpoint/PARTITION`, in lower case, whose metadata has `offset` and
`sequencenumber`; an ownership one of `…/ownership/…` whose metadata has `ownerid`. Only reading is here: Microsoft's
`BlobCheckpointStore` writes them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from tidegate.blobs import BlobError, ObjectStore, is_azure
from tidegate.checkpoints.database import CheckpointError, StoredCheckpoint, in_order

_THREADS = 8
_TRANSLATED = "tidegatetranslatedfrom"


class _Entry(NamedTuple):
    """What one blob says."""

    key: tuple[str, str, str, str]
    kind: str
    metadata: Mapping[str, str]
    modified_s: float


def is_blob_container(location: str) -> bool:
    """Whether a place is a container of Blob storage: az://CONTAINER, or https://ACCOUNT.blob.core.windows.net/…"""
    return "://" in location and is_azure(location)


class BlobCheckpoints:
    """The checkpoints in a container. Credentials come from the environment."""

    def __init__(self, url: str, environment: Mapping[str, str] = os.environ) -> None:
        """Raises CheckpointError for a URL or credentials that cannot be used, or without obstore."""
        try:
            self._store = ObjectStore(url, environment)
        except ModuleNotFoundError:
            name = url.partition("?")[0]
            raise CheckpointError(f'{name} needs an extra: pip install "tidegate[capture]"') from None
        except BlobError as error:
            raise CheckpointError(str(error)) from None

    def positions(self) -> list[StoredCheckpoint]:
        """Every checkpoint there is, in the order of their names. Raises CheckpointError."""
        now_s = time.time()
        entries = list(self._entries())
        owners = {entry.key: entry.metadata.get("ownerid", "") for entry in entries if entry.kind == "ownership"}
        positions = [
            StoredCheckpoint(
                *entry.key,
                sequence_number=_number(entry.metadata.get("sequencenumber")),
                age_s=max(0.0, now_s - entry.modified_s),
                owner_id=owners.get(entry.key, ""),
            )
            for entry in entries
            if entry.kind == "checkpoint"
        ]
        return sorted(positions, key=in_order)

    def shift(self, shifts: Mapping[tuple[str, str], int]) -> int:
        """Subtract a number from the sequence numbers of some hubs, whose offsets become equal to them.

        A checkpoint that was translated is marked, so that doing it again changes nothing.

        Args:
            shifts: By hub, in lower case, and partition.

        Returns:
            How many checkpoints were translated.

        Raises:
            CheckpointError: They cannot be read or written; what was translated before stays so.
        """
        translated = 0
        for entry in list(self._entries()):
            _, hub, _, partition = entry.key
            number = _number(entry.metadata.get("sequencenumber"))
            shift = shifts.get((hub, partition))
            if entry.kind != "checkpoint" or shift is None or number is None or _TRANSLATED in entry.metadata:
                continue
            moved = str(max(0, number - shift))
            metadata = {**entry.metadata, "sequencenumber": moved, "offset": moved, _TRANSLATED: str(number)}
            name = "/".join((*entry.key[:3], entry.kind, partition))
            try:
                self._store.api.put(self._store.handle, name, b"", attributes=metadata)
            except self._store.errors as error:
                raise CheckpointError(self._store.problem("cannot be written", error, name)) from None
            translated += 1
        return translated

    def close(self) -> None:
        """There is nothing to give up."""

    def _entries(self) -> Iterator[_Entry]:
        try:
            names = [item["path"] for page in self._store.api.list(self._store.handle) for item in page]
            with ThreadPoolExecutor(_THREADS) as threads:
                yield from filter(None, threads.map(self._entry, names))
        except self._store.errors as error:
            raise CheckpointError(self._store.problem("cannot be read", error)) from None

    def _entry(self, name: str) -> _Entry | None:
        parts = name.split("/")
        if len(parts) != 5 or parts[3] not in ("checkpoint", "ownership"):
            return None  # another consumer's
        try:
            found = self._store.api.get(self._store.handle, name)
        except FileNotFoundError:
            return None  # gone since
        metadata = {key.lower(): str(value) for key, value in found.attributes.items()}
        key = (parts[0], parts[1], parts[2], parts[4])
        return _Entry(key, parts[3], metadata, found.meta["last_modified"].timestamp())


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.lstrip("-").isdecimal() else None
