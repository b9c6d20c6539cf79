"""What models have in common: they compute many rows at once, and a row may fail alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class ModelError(Exception):
    """A model gave no value for a row; the message is for people."""


class RowModel(ABC):
    """A model as a registered function (`tidegate.engine.expressions.registered`)."""

    def __call__(self, *args: Any) -> Any:
        """Compute it for one row.

        Raises:
            ModelError: it failed.
        """
        (value,) = self.call_rows([[arg] for arg in args], 1)
        if isinstance(value, Exception):
            raise value
        return value

    @abstractmethod
    def call_rows(self, columns: Sequence[Sequence[Any]], count: int | None = None) -> list[Any]:
        """Return its value for each row, or the exception that the row failed with.

        Args:
            columns: the arguments, a column each.
            count: how many rows there are, where there may be no columns.
        """
