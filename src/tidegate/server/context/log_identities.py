"""How a reader on the hub's own machine recognises the hub's own folders.

The hub names each partition's folder and an identity that it wrote into it. A reader that opens the folder of that
name and finds the identity there may read segments instead of asking for deliveries. The identity is new at every
start, so that a copy of the data (on another machine, in a container's image) is never taken for the original.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from tidegate.durable_files import replace_file

FILE_NAME = "log-id"


class LogIdentities:
    """Identities of one server's life, written when first asked for."""

    def __init__(self) -> None:
        self._identities: dict[Path, str] = {}

    def of(self, directory: Path) -> str:
        """The identity that the file in `directory` holds from now on. Raises OSError."""
        identity = self._identities.get(directory)
        if identity is None:
            identity = uuid.uuid4().hex
            replace_file(directory / FILE_NAME, identity.encode("ascii"))
            self._identities[directory] = identity
        return identity
