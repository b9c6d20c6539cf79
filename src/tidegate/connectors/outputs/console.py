"""Standard output. What a terminal has shown cannot be withdrawn: after a crash the last step may be shown twice."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import ClassVar, Literal

from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening, OutputSection
from tidegate.connectors.outputs.output import Mark, Output, RejectedRow, new_mark
from tidegate.engine import ResultRows


@OUTPUTS.register
class ConsoleOutput(OutputSection):
    """Results on standard output, as JSON lines."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(("stdout", "terminal", "print"), 'write type = "console"')

    type: Literal["console"]

    def open_at(self, opening: OutputOpening) -> Output:
        return Console(opening.mark)


class Console:
    """Results as JSON lines on standard output."""

    def __init__(self, mark: Mark | None) -> None:
        self._mark = new_mark("console") if mark is None else dict(mark)

    def write(self, rows: ResultRows) -> None:
        sys.stdout.write(rows.to_json_lines().decode())
        self._mark["rows"] += len(rows)

    def commit(self) -> Mark:
        sys.stdout.flush()
        return dict(self._mark)

    def continue_after_held_rows(self) -> None:
        """There are no rows beyond the mark."""

    def drain_rejected_rows(self) -> list[RejectedRow]:
        return []

    def close(self) -> None:
        """The terminal stays open."""
