"""What a side output is: rows besides its query's that a job computes from the same logs, with equal guarantees.

A side output follows the steps of a run. Before a step it may narrow what the step sees of the logs; after it, it
returns rows of its own, which leave with those of the step and are committed with them. What it needs to continue after
a restart is its *state*, a JSON value that the journal keeps under the name of its section. Its rows are a function of
the log alone, as results are, so a restart repeats none and skips none.

A new kind is one class that implements `SideOutput`, an entry of `tidegate.job.side_outputs.KINDS`, and its name in
`tidegate.job.prepare.side_output_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tidegate.connectors.model.events import InputLog
from tidegate.connectors.outputs.shape import Shape
from tidegate.engine import Program, ResultRows
from tidegate.job.config.definition import JobDefinition
from tidegate.job.runtime.step import Step, Stepper
from tidegate.ordering import Policy

Shapes = Mapping[str, Shape | None]
"""The columns of outputs by name; None where they are not known before the rows are."""


@dataclass(frozen=True, slots=True)
class RunInputs:
    """What a run reads, for the side outputs that follow it.

    Attributes:
        definition: the job's.
        program: its query, with the reference data that the run begins with.
        logs: by the name the query uses.
        start: ticks; all results before this time have left. NO_TIME: none has.
    """

    definition: JobDefinition
    program: Program
    policy: Policy
    logs: Mapping[str, InputLog]
    start: int


class SideOutput(Protocol):
    """The rows of one section of the job file, during one run."""

    SECTION: ClassVar[str]
    """The section of the job file that asks for it, and the name of its state in the journal."""

    @classmethod
    def shapes(cls, definition: JobDefinition, query_shapes: Shapes) -> Shapes:
        """Return the columns of the outputs it writes; none if the job does not ask for it."""

    @classmethod
    def open(cls, inputs: RunInputs, state: Any) -> SideOutput | None:
        """Return it as a run begins; None if the job does not ask for it.

        Args:
            state: what `state` returned at the last commit; None if there is none.
        """

    def logs_for_steps(self, logs: Mapping[str, InputLog]) -> Mapping[str, InputLog]:
        """Return the logs as the run's steps should see them."""

    def before_step(self) -> None:
        """Prepare the logs for the next step."""

    def wants_preview(self) -> bool:
        """Return whether it will ask for a preview after the step that is about to read all that the logs show."""

    def rows_after_step(self, step: Step, stepper: Stepper, until: int) -> list[ResultRows]:
        """Return the rows that leave with a step.

        Args:
            until: ticks; no row at or after this time leaves.

        Raises:
            InputError: a log cannot be read.
        """

    @property
    def has_more(self) -> bool:
        """Whether the next step may find something although this one read its logs to the end."""

    def state(self) -> Any:
        """Return what a restart needs, as JSON."""
