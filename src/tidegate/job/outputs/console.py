"""Standard output. What a terminal has shown cannot be taken back: after a crash its last step may show twice."""

from __future__ import annotations

import sys

from tidegate.engine import ResultRows
from tidegate.job.outputs.output import Mark, RejectedRow, new_mark


class Console:
    """Results as JSON lines on standard output."""

    def __init__(self, mark: Mark | None) -> None:
        self._mark = new_mark("console") if mark is None else dict(mark)

    def write(self, rows: ResultRows) -> None:
        """See ``Output.write``."""
        sys.stdout.write(rows.to_json_lines().decode())
        self._mark["rows"] += len(rows)

    def commit(self) -> Mark:
        """See ``Output.commit``."""
        sys.stdout.flush()
        return dict(self._mark)

    def continue_after_held_rows(self) -> None:
        """See ``Output.continue_after_held_rows``: nothing beyond the mark."""

    def drain_rejected_rows(self) -> list[RejectedRow]:
        """See ``Output.drain_rejected_rows``."""
        return []

    def close(self) -> None:
        """See ``Output.close``."""
