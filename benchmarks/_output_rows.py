"""Rows for outputs, as an output takes them and as a loop over a client library does; see `benchmarks.outputs`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tests.job.rows import result_columns
from tidegate.connectors.outputs import OUTPUTS, Identity, Output, OutputOpening, open_output

PORTION = 10_000
PARTITIONS = 4
Rows = list[dict[str, Any]]
Loop = Callable[[Rows], None]
AVRO_SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "device", "type": "string"},
        {"name": "average", "type": "double"},
        {"name": "window_end", "type": "string"},
        {"name": "p", "type": "long"},
    ],
}
_journals = itertools.count(1)


def opened(kind: str, **settings: Any) -> Output:
    """Open an output of a new journal."""
    section = OUTPUTS.by_name[kind].model_validate({"type": kind, **settings})
    return open_output(section, OutputOpening(Identity("bench", "out", f"journal-{next(_journals)}")))


def portions(count: int) -> tuple[list[Any], list[Rows]]:
    """Return rows in portions, as the output takes them and as the loop does."""
    columns: list[Any] = []
    for first in range(0, count, PORTION):
        numbers = range(first, min(first + PORTION, count))
        columns.append(
            result_columns(
                {
                    "n": list(numbers),
                    "device": [f"device-{number % 1_000}" for number in numbers],
                    "average": [number / 7 for number in numbers],
                    "window_end": [f"2026-01-01T00:{number % 60:02}:00.0000000Z" for number in numbers],
                    "p": [number % PARTITIONS for number in numbers],
                }
            )
        )
    return columns, [one.to_dicts() for one in columns]
