"""Capture's settings, in the terms of the CaptureDescription of an Event Hubs namespace.

https://learn.microsoft.com/azure/event-hubs/event-hubs-capture-overview: a file is closed by time or by size, whichever
is reached first. Its name has nine parts, all of them required, so that no two files share a name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field, field_validator

DEFAULT_NAME_FORMAT = "{Namespace}/{EventHub}/{PartitionId}/{Year}/{Month}/{Day}/{Hour}/{Minute}/{Second}"
NAME_PARTS = ("Namespace", "EventHub", "PartitionId", "Year", "Month", "Day", "Hour", "Minute", "Second")
_LITERAL = re.compile(r"[A-Za-z0-9 ._=/-]*")
_PART = re.compile(r"\{([^{}]*)\}")


def check_name_format(text: str) -> str:
    """Return the name format of capture files, without the extension `.avro`, if it is valid.

    Raises ValueError if it lacks a part, has an unknown one, or could escape the destination.
    """
    found = _PART.findall(text)
    for part in found:
        if part not in NAME_PARTS:
            by_case = {name.lower(): name for name in NAME_PARTS}
            near = difflib.get_close_matches(part.lower(), by_case, n=1)
            hint = f", did you mean {{{by_case[near[0]]}}}?" if near else f": the parts are {', '.join(NAME_PARTS)}"
            raise ValueError(f"{{{part}}} is no part of a name{hint}")
    missing = [part for part in NAME_PARTS if part not in found]
    if missing:
        raise ValueError(f"all nine parts are needed, {', '.join(f'{{{part}}}' for part in missing)} missing")
    literal = _PART.sub("0", text)
    if not _LITERAL.fullmatch(literal):
        raise ValueError("beside its parts a name has letters, digits, spaces and . _ = - / only")
    if any(segment.strip(".") == "" for segment in literal.split("/")):
        raise ValueError("a folder in a name has a name of its own: not //, not . and not .., and no / at either end")
    return text


class CaptureDescription(BaseModel):
    """What capture writes for an event hub, and where. Limits and defaults are the service's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=True, description="If false, nothing is captured; the other settings are kept.")
    destination: str = Field(
        min_length=1, description="A folder, or an object store: `az://container`, `s3://bucket`, `gs://bucket`, …"
    )
    interval_in_seconds: int = Field(
        default=300, ge=60, le=900, description="The length of a time window; windows begin at multiples of it."
    )
    size_limit_in_bytes: int = Field(
        default=314_572_800, ge=10_485_760, le=524_288_000, description="A file that reaches it is closed at once."
    )
    skip_empty_archives: bool = Field(default=False, description="Write no file for a window without events.")
    archive_name_format: str = Field(
        default=DEFAULT_NAME_FORMAT, description="The files' names, without `.avro`; all nine parts must be in it."
    )

    _name_format_is_one = field_validator("archive_name_format")(check_name_format)

    def archive_name(self, names: Mapping[str, str], time_s: int) -> str:
        """Return the name of a file.

        `names` holds Namespace, EventHub and PartitionId; `time_s` is in seconds since 1970.
        """
        time = datetime.fromtimestamp(time_s, UTC)
        parts = {
            **names,
            "Year": f"{time.year:04d}",
            "Month": f"{time.month:02d}",
            "Day": f"{time.day:02d}",
            "Hour": f"{time.hour:02d}",
            "Minute": f"{time.minute:02d}",
            "Second": f"{time.second:02d}",
        }
        return _PART.sub(lambda found: parts[found[1]], self.archive_name_format) + ".avro"
