"""The address of a running hub's management API, written to its data directory for commands on the same machine.

The file holds no secret: access is controlled by the permissions of the keys beside it.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tidegate.durable_files import replace_file

FILE_NAME = "endpoint.json"


class Endpoint(BaseModel):
    """The base URL, and the CA that signed the certificate if the data directory has its own."""

    model_config = ConfigDict(frozen=True)

    url: str
    authority_file: Path | None = None

    def write(self, data_dir: Path) -> None:
        """Write it to the data directory. Raises OSError."""
        replace_file(data_dir / FILE_NAME, self.model_dump_json().encode("utf-8"))


def read_endpoint(data_dir: Path) -> Endpoint | None:
    """Return the endpoint of the running hub, None if no hub with HTTP is running. Raises OSError."""
    try:
        return Endpoint.model_validate_json((data_dir / FILE_NAME).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def remove_endpoint(data_dir: Path) -> None:
    """Remove the file, because the hub is stopping."""
    (data_dir / FILE_NAME).unlink(missing_ok=True)
