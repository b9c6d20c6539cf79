"""Compatibility levels: which earlier versions a new one must be able to read, or to be read by.

A version is *backward* compatible with an earlier one if its readers can read what the earlier one wrote, and *forward*
compatible if readers of the earlier one can read what it writes. A transitive level asks this of all versions, any
other of the latest only.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from tidegate.schemas.schema_text import SchemaText


class Compatibility(StrEnum):
    """What a new version must satisfy."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all earlier versions count."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def asks_backward(self) -> bool:
        """Whether new readers must read old data."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def asks_forward(self) -> bool:
        """Whether old readers must read new data."""
        return self.value.startswith(("FORWARD", "FULL"))


def check_evolution(level: Compatibility, new: SchemaText, earlier: Sequence[SchemaText]) -> list[str]:
    """Return what forbids a new version.

    Args:
        level: The level in force.
        new: The new version.
        earlier: The versions before it, the oldest first.

    Returns:
        Descriptions for people; none if the version may be registered.

    Raises:
        SchemaError: The new version is no schema.
    """
    if level is Compatibility.NONE:
        return []
    found: list[str] = []
    for version in earlier if level.is_transitive else earlier[-1:]:
        if level.asks_backward:
            found += new.differences(version)
        if level.asks_forward:
            found += version.differences(new)
    return list(dict.fromkeys(found))
