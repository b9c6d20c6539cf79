"""The section `[input_limits]`: how large one event or file may be, whoever wrote it."""

from __future__ import annotations

from pydantic import Field

from tidegate.connectors.model.section import Section
from tidegate.engine import DEFAULT_LIMITS, Limits


class InputLimits(Section):
    """Limits on one event or file; one that exceeds a limit counts as an input deserialization error."""

    depth: int = Field(
        default=DEFAULT_LIMITS.depth, ge=1, le=200, description="how deeply values (and Avro schemas) may be nested"
    )
    event_bytes: int = Field(
        default=DEFAULT_LIMITS.event_bytes, ge=1, description="the size of one event's body after decompression"
    )
    file_bytes: int = Field(
        default=DEFAULT_LIMITS.file_bytes, ge=1, description="the size of one file after decompression"
    )
    rows: int = Field(default=DEFAULT_LIMITS.rows, ge=1, description="how many rows one file may have")
    event_rows: int = Field(default=DEFAULT_LIMITS.event_rows, ge=1, description="how many rows one event may have")
    event_values: int = Field(
        default=DEFAULT_LIMITS.event_values,
        ge=1,
        description="how many values one event may have, those inside records and arrays included",
    )

    @property
    def limits(self) -> Limits:
        """Return the limits for the engine."""
        return Limits(**self.model_dump())
