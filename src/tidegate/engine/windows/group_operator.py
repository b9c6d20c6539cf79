"""The operator of a GROUP BY, by its windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.engine.expressions.failures import Failures
from tidegate.engine.expressions.frames import Frame, merge_by_time
from tidegate.engine.substreams.watermarks import Watermark
from tidegate.engine.values.vectors import Vector
from tidegate.engine.windows.kind import GroupOperator, PaneWindow, RowWindow
from tidegate.engine.windows.panes_operator import PanesOperator
from tidegate.sql.plan import nodes as plan


def group_operator(relation: plan.Aggregate) -> GroupOperator:
    """Return the operator of an aggregate: one for all windows that come in panes, and one for each other window."""
    in_panes: list[tuple[PaneWindow, str | None]] = []
    parts: list[GroupOperator] = []
    for named in relation.windows:
        match named.window:
            case PaneWindow() as window:
                in_panes.append((window, named.id))
            case RowWindow() as window:
                parts.append(window.operator(relation, named.id))
            case window:
                raise TypeError(f"no operator evaluates {type(window).__name__}")
    if in_panes:
        parts.insert(0, PanesOperator(relation, in_panes))
    return parts[0] if len(parts) == 1 else WindowsOperator(relation, parts)


class WindowsOperator:
    """An aggregate over several windows: the union of the results of its parts."""

    def __init__(self, relation: plan.Aggregate, parts: Sequence[GroupOperator]) -> None:
        self.relation = relation
        self.sources = (relation.source,)
        self.delay_ticks = 0
        self.parts = parts

    def new_state(self) -> list[Any]:
        """Return the empty state of each part."""
        return [part.new_state() for part in self.parts]

    def reduce(self, side: int, frame: Frame, failures: Failures) -> list[Any]:
        """Return what each part reduces the rows to; a row that fails is counted once."""
        payloads: list[Any] = []
        for part in self.parts:
            payloads.append(part.reduce(side, frame, failures if not payloads else Failures()))
        return payloads

    def absorb(self, state: list[Any], side: int, payload: list[Any]) -> None:
        """Add to the state of each part what it has reduced."""
        for part, held, own in zip(self.parts, state, payload, strict=True):
            if own is not None:
                part.absorb(held, side, own)

    def release_rows(self, state: list[Any], watermark: Watermark, failures: Failures) -> Frame | None:
        """Return the results of all parts by time; those of the same time in the order of the parts."""
        released = [part.release_rows(held, watermark, failures) for part, held in zip(self.parts, state, strict=True)]
        frames = [
            frame.with_ties(Vector.constant(number, len(frame)), *frame.ties)
            for number, frame in enumerate(released)
            if frame is not None
        ]
        return merge_by_time(frames) if frames else None
