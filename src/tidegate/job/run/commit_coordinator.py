"""What a run makes durable of its steps, in the order that lets each result leave once.

Results are written, the outputs made durable, and only then the journal says that they left. A run that dies before
that finds, when it starts again, outputs that hold more than the journal says; those that can are cut back, the others
pass over what they hold (`tidegate.job.outputs.output`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate.engine import ResultRows
from tidegate.job.model.metrics import COUNTERS, DataError, DataErrorLog, Group, add
from tidegate.job.outputs import OutputCounts, RetryPolicy, Sinks
from tidegate.job.prepare.opening import Inputs
from tidegate.job.run.journal import Commit, Journal
from tidegate.job.run.status import StatusFile
from tidegate.job.runtime.step import Step, Stepper
from tidegate.job.side_outputs.early_results import EarlyResults
from tidegate.job.side_outputs.explanations import Explanations

_COMMIT_EVERY_S = 1.0


class Durable:
    """Outputs, journal, and what is written for people beside them."""

    def __init__(
        self,
        journal: Journal,
        commit: Commit,
        sinks: Sinks,
        data_errors: DataErrorLog,
        status: StatusFile,
        retry_policy: RetryPolicy,
        early: EarlyResults | None = None,
        explanations: Explanations | None = None,
        inputs: Inputs | None = None,
    ) -> None:
        """
        Args:
            commit: where the run goes on from.
            retry_policy: waits for what cannot be written.
            early, explanations: those of the run, where it has any.
            inputs: of the run; what they know is made durable before a commit that may depend on it.
        """
        self._journal = journal
        self._commit = commit
        self._sinks = sinks
        self._data_errors = data_errors
        self._status = status
        self._retry_policy = retry_policy
        self._early = early
        self._explanations = explanations
        self._inputs = inputs
        self._committed_at = time.monotonic()
        self.totals = {**dict.fromkeys(COUNTERS, 0), **commit.counters}

    def take(self, step: Step, rows_beside: Sequence[ResultRows], stepper: Stepper) -> None:
        """Hand the rows of a step to the outputs, with those that are not of the query, and commit if it is worth it.

        Raises:
            JobError: something cannot be written, or has not been for too long.
        """
        for rows in (*step.rows, *rows_beside):
            self._sinks.write(rows)
        add(self.totals, {name: count for name, count in step.counters.items() if name in COUNTERS})
        self._note(step.data_errors, step.data_error_counts)
        if step.rows or rows_beside or time.monotonic() - self._committed_at > _COMMIT_EVERY_S:
            self.commit(stepper)
        self._retry_policy.call("the status file", lambda: self._status.see(step, self.totals))

    def commit(self, stepper: Stepper) -> None:
        """Make the outputs durable, and only then say in the journal that their rows have left.

        Raises:
            JobError: something cannot be written, or has not been for too long.
        """
        if self._inputs is not None:
            self._retry_policy.call("the ticks", self._inputs.before_it_counts)
        positions: dict[str, dict[str, int]] = {}
        for (name, partition), position in stepper.positions.items():
            counted = self._commit.positions.get(name, {}).get(partition, 0)
            positions.setdefault(name, {})[partition] = max(position, counted)
        marks = self._sinks.commit()
        self.totals |= self._sinks.totals()
        self._note(*self._sinks.drain_data_errors())
        self._commit = replace(
            self._commit,
            released=stepper.released,
            ahead=dict(stepper.ahead),
            positions=positions,
            counters=dict(self.totals),
            outputs=marks,
            left=(stepper.emitted.before, stepper.emitted.until),
            early=None if self._early is None else self._early.mark.as_json(),
            explained=None if self._explanations is None else self._explanations.told,
            steps=self._commit.steps + 1,
        )
        self._retry_policy.call("the journal", lambda: self._journal.write(self._commit))
        if self._inputs is not None:
            self._inputs.committed(self._commit.released)
        self._committed_at = time.monotonic()

    def end(self, stepper: Stepper) -> None:
        """Make durable what there is at the end of a run.

        Raises:
            JobError: something cannot be written, or has not been for too long.
        """
        self.commit(stepper)
        self._retry_policy.call("the log of data errors", self._data_errors.flush)

    def counts(self) -> Mapping[str, OutputCounts]:
        """What each output has counted up to the last commit."""
        return self._sinks.counts()

    def _note(self, errors: Sequence[DataError], counts: Mapping[Group, int]) -> None:
        self._data_errors.take(errors, counts)
        self._retry_policy.call("the log of data errors", self._data_errors.write_due)
