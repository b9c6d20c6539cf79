"""Rows that were lost because an expression failed for them: runtime errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.engine.expressions.frames import Frame
from tidegate.engine.expressions.registered import first_raised
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind, Reason, Vector


@dataclass(frozen=True, slots=True)
class RuntimeErrors:
    """Rows lost for one reason.

    Attributes:
        reason: why.
        rows: int64[k], which decoded rows; only in a task, else empty.
        times: int64[k], their System.Timestamp in ticks.
        detail: what a registered function raised, the first time that one did.
    """

    reason: Reason
    rows: Int64Array
    times: Int64Array
    detail: str = ""

    def since(self, ticks: int) -> RuntimeErrors:
        """Return only the rows with a time from ``ticks`` on."""
        later = self.times >= ticks
        return RuntimeErrors(self.reason, self.rows if later.all() else self.rows[:0], self.times[later], self.detail)

    @property
    def message(self) -> str:
        """Return the reason as a sentence."""
        return f"{self.reason.message}; the first: {self.detail}" if self.detail else self.reason.message


@dataclass(slots=True)
class Failures:
    """The runtime errors of one evaluation."""

    errors: list[RuntimeErrors] = field(default_factory=list)

    def without(self, frame: Frame, vectors: Sequence[Vector]) -> BoolArray | None:
        """Return which rows have no failure in any of the vectors, None if none has, and count the others."""
        failing = [vector for vector in vectors if Kind.ERROR in vector.present()]
        if not failing:
            return None
        reasons = np.zeros(len(frame), dtype=np.int64)
        for vector in reversed(failing):
            failed = vector.kinds == Kind.ERROR
            reasons[failed] = vector.int_values()[failed]
        for reason in np.unique(reasons[reasons > 0]).tolist():
            places = np.flatnonzero(reasons == reason)
            rows = np.empty(0, dtype=np.int64) if frame.rows is None else frame.rows[places]
            detail = first_raised() if reason == Reason.FUNCTION_FAILED else ""
            self.errors.append(RuntimeErrors(Reason(reason), rows, frame.times[places], detail))
        fine: BoolArray = reasons == 0
        return fine
