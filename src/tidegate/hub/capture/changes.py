"""How the capture of an event hub is changed while the hub runs, whichever API asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.store import StoreError, open_store


def changed_capture(former: CaptureDescription | None, changes: Mapping[str, Any]) -> CaptureDescription:
    """Return the capture of a hub after a change, tried as far as possible without writing.

    A folder is returned as an absolute path, so that it stays the same folder when the hub is started elsewhere.

    Args:
        former: The capture as it is, or the namespace's default; None without either.
        changes: Fields of a CaptureDescription; None leaves a field alone.

    Raises:
        ValidationError: A setting is wrong, or there is no destination (pydantic's).
        StoreError: The destination cannot be used.
    """
    fields: dict[str, Any] = former.model_dump() if former is not None else {}
    given = {name: value for name, value in changes.items() if value is not None}
    description = CaptureDescription(**fields | given)
    if "://" not in description.destination:
        folder = str(Path(description.destination).absolute())
        description = description.model_copy(update={"destination": folder})
    if description.enabled:
        try:
            open_store(description.destination)
        except ModuleNotFoundError as error:
            raise StoreError(str(error)) from None
    return description
