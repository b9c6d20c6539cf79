"""Where a running hub's management API is, left in its data directory for commands on the same machine.

The file holds no secret: who may read the keys beside it may use them.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tidegate.durable_files import replace_file

FILE_NAME = "endpoint.json"


class Endpoint(BaseModel):
    """The base URL, and the CA that signed the certificate if it is the data directory's own."""

    model_config = ConfigDict(frozen=True)

    url: str
    authority_file: Path | None = None

    def write(self, data_dir: Path) -> None:
        """Leave it in the data directory. Raises OSError."""
        replace_file(data_dir / FILE_NAME, self.model_dump_json().encode("utf-8"))


def read_endpoint(data_dir: Path) -> Endpoint | None:
    """What a hub left there; None if none runs, or one without HTTP. Raises OSError."""
    try:
        return Endpoint.model_validate_json((data_dir / FILE_NAME).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def remove_endpoint(data_dir: Path) -> None:
    """The hub stops."""
    (data_dir / FILE_NAME).unlink(missing_ok=True)
