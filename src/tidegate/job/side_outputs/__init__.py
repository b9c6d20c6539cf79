"""Outputs that a job writes in addition to those of its query: early results and explanations.

`side_output` is the protocol that a run knows them by, and each kind is a module of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.engine import ResultRows
from tidegate.job.config.definition import JobDefinition
from tidegate.job.runtime.step import Step, Stepper
from tidegate.job.side_outputs.early_results import EarlyResults
from tidegate.job.side_outputs.explanations import Explanations
from tidegate.job.side_outputs.side_output import RunInputs, Shapes, SideOutput

KINDS: tuple[type[SideOutput], ...] = (EarlyResults, Explanations)
EARLY_RESULTS = EarlyResults.SECTION
"""The section of the job file, and of the journal, that early results have."""


class SideOutputs:
    """The side outputs of one run, in the order of `KINDS`."""

    def __init__(self, inputs: RunInputs, states: Mapping[str, Any]) -> None:
        """
        Args:
            states: by section, what the journal keeps of each.
        """
        opened = (kind.open(inputs, states.get(kind.SECTION)) for kind in KINDS)
        self._opened = [one for one in opened if one is not None]
        self.logs = inputs.logs
        for one in self._opened:
            self.logs = one.logs_for_steps(self.logs)

    def before_step(self) -> None:
        """Prepare the logs for the next step."""
        for one in self._opened:
            one.before_step()

    def wants_preview(self) -> bool:
        """Return whether one of them will ask for a preview after the step that is about to read all that is there."""
        return any(one.wants_preview() for one in self._opened)

    def rows_after_step(self, step: Step, stepper: Stepper, until: int) -> list[ResultRows]:
        """Return the rows of all side outputs that leave with a step.

        Raises:
            InputError: a log cannot be read.
        """
        return [rows for one in self._opened for rows in one.rows_after_step(step, stepper, until)]

    @property
    def has_more(self) -> bool:
        """Whether the next step may find something although this one read its logs to the end."""
        return any(one.has_more for one in self._opened)

    def states(self) -> dict[str, Any]:
        """Return what a restart needs of each, by section."""
        return {one.SECTION: one.state() for one in self._opened}


def side_output_shapes(definition: JobDefinition, query_shapes: Shapes) -> dict[str, Any]:
    """Return the columns of every side output of a job, by output."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        found |= kind.shapes(definition, query_shapes)
    return found


__all__ = ["EARLY_RESULTS", "KINDS", "RunInputs", "Shapes", "SideOutput", "SideOutputs", "side_output_shapes"]
