"""The contract of outputs, which every kind runs: a class of tests over one empty destination."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from tests.job.rows import result_columns
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import Mark, Output


class Destination(Protocol):
    """A place that holds nothing at first."""

    def open_at(self, mark: Mark | None) -> Output:
        """Open the output as the next process would; the one before has ended or been killed."""

    def numbers(self) -> list[int]:
        """Return what the place holds of the column `n`, in ascending order."""


def numbered(*values: int) -> Any:
    return result_columns({"n": list(values)})


class OutputContract:
    """Each row once, whenever the process is killed. A subclass provides the fixture `destination`."""

    def test_committed_rows_are_there_and_the_mark_counts_them(self, destination: Destination) -> None:
        output = destination.open_at(None)
        output.write(numbered(1, 2))
        output.write(numbered(3))
        mark = output.commit()
        output.close()
        assert (mark["rows"], mark["dropped"]) == (3, 0)
        assert destination.numbers() == [1, 2, 3]
        assert output.drain_rejected_rows() == []

    def test_a_commit_without_rows_changes_nothing(self, destination: Destination) -> None:
        output = destination.open_at(None)
        output.write(numbered(1))
        mark = output.commit()
        assert output.commit() == mark
        output.close()
        assert destination.numbers() == [1]

    def test_rows_that_were_not_committed_are_not_there_twice(self, destination: Destination) -> None:
        output = destination.open_at(None)
        output.write(numbered(1))
        mark = output.commit()
        output.write(numbered(2, 3))
        output.close()
        again = destination.open_at(mark)
        again.write(numbered(2, 3))
        assert again.commit()["rows"] == 3
        again.close()
        assert destination.numbers() == [1, 2, 3]

    def test_a_commit_that_the_journal_does_not_know_of_leaves_each_row_once(self, destination: Destination) -> None:
        output = destination.open_at(None)
        output.write(numbered(1))
        mark = output.commit()
        output.write(numbered(2, 3))
        output.commit()
        output.close()
        again = destination.open_at(mark)
        # The same rows, cut differently.
        again.write(numbered(2))
        again.write(numbered(3, 4))
        assert again.commit()["rows"] == 4
        again.close()
        assert destination.numbers() == [1, 2, 3, 4]

    def test_rows_of_another_journal_are_not_added_to(self, destination: Destination) -> None:
        output = destination.open_at(None)
        output.write(numbered(1))
        output.commit()
        output.close()
        if self.knows_its_rows:
            with pytest.raises(OutputError):
                destination.open_at(None)
        assert destination.numbers() == [1]

    knows_its_rows = True
    """Whether an output without a mark can tell that its destination has rows of another journal."""
