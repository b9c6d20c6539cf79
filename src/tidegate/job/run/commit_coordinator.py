"""The order in which the effects of a step become durable, so that each result leaves exactly once.

Rows are handed to the sinks, the sinks are made durable, and only then does the journal say that the rows have left: a
two-phase commit whose second phase is the replacement of the journal. A run that dies in between restarts with outputs
that hold more than the journal says. Outputs that can be truncated are; the others skip the rows they already hold
(`tidegate.connectors.outputs.output`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate.connectors.model.metrics import COUNTERS, DataError, DataErrorLog, Group, add
from tidegate.connectors.model.retry_policy import RetryPolicy
from tidegate.connectors.outputs import OutputCounts, Sinks
from tidegate.engine import ResultRows
from tidegate.job.prepare.opening import Inputs
from tidegate.job.run.journal import Commit, Journal
from tidegate.job.run.status import StatusFile
from tidegate.job.runtime.step import Step, Stepper
from tidegate.job.side_outputs import SideOutputs
from tidegate.ordering import END_OF_TIME

_COMMIT_EVERY_S = 1.0
_STATE_OF_INPUTS = "the state of the inputs"


class CommitCoordinator:
    """Commits the steps of one run: to the sinks, the journal, the status file and the log of data errors."""

    def __init__(
        self,
        journal: Journal,
        commit: Commit,
        sinks: Sinks,
        data_errors: DataErrorLog,
        status: StatusFile,
        retry_policy: RetryPolicy,
        side_outputs: SideOutputs,
        inputs: Inputs,
    ) -> None:
        """
        Args:
            commit: the one that the run resumes from.
            retry_policy: how long to wait for what cannot be written.
            inputs: their state is made durable before a commit that may depend on it.
        """
        self._journal = journal
        self._commit = commit
        self._sinks = sinks
        self._data_errors = data_errors
        self._status = status
        self._retry_policy = retry_policy
        self._side_outputs = side_outputs
        self._inputs = inputs
        self._committed_at = time.monotonic()
        self.totals = {**dict.fromkeys(COUNTERS, 0), **commit.counters}

    def accept_step(self, step: Step, side_rows: Sequence[ResultRows], stepper: Stepper) -> None:
        """Hand the rows of a step and of the side outputs to the sinks, and commit if it is time.

        Raises:
            JobError: something cannot be written, or has not been for too long.
        """
        if step.result_count or side_rows:
            self._retry_policy.call(_STATE_OF_INPUTS, lambda: self._inputs.prepare_rows(stepper.looked_at))
        for encoded in step.encoded:
            self._sinks.write(encoded)
        for rows in (*step.rows, *side_rows):
            self._sinks.write(rows)
        add(self.totals, {name: count for name, count in step.counters.items() if name in COUNTERS})
        self._log_data_errors(step.data_errors, step.data_error_counts)
        if step.result_count or side_rows or time.monotonic() - self._committed_at > _COMMIT_EVERY_S:
            self.commit(stepper)
        self._retry_policy.call("the status file", lambda: self._status.update(step, self.totals))

    def refresh_reference_data(self, stepper: Stepper) -> None:
        """Load new reference data between two steps, if there are any.

        Raises:
            JobError: a table cannot be read, or its copy has not been written for too long.
        """
        self._retry_policy.call(_STATE_OF_INPUTS, lambda: self._inputs.refresh_reference_data(stepper))

    def commit(self, stepper: Stepper) -> None:
        """Make the outputs durable, and only then say in the journal that their rows have left.

        Raises:
            JobError: something cannot be written, or has not been for too long.
        """
        self._retry_policy.call(_STATE_OF_INPUTS, self._inputs.make_durable)
        positions: dict[str, dict[str, int]] = {}
        for (name, partition), position in stepper.positions.items():
            counted = self._commit.positions.get(name, {}).get(partition, 0)
            positions.setdefault(name, {})[partition] = max(position, counted)
        logs = {name: dict(partitions) for name, partitions in self._commit.logs.items()}
        for (name, partition), log_id in stepper.log_ids.items():
            logs.setdefault(name, {})[partition] = log_id
        marks = self._sinks.commit()
        self.totals |= self._sinks.totals()
        self._log_data_errors(*self._sinks.drain_data_errors())
        self._commit = replace(
            self._commit,
            released=stepper.released,
            ahead=dict(stepper.ahead),
            positions=positions,
            counters=dict(self.totals),
            outputs={**self._commit.outputs, **marks},
            left=(stepper.emitted.before, stepper.emitted.until),
            side_outputs=self._side_outputs.states(),
            steps=self._commit.steps + 1,
            logs=logs,
        )
        self._retry_policy.call("the journal", lambda: self._journal.write_commit(self._commit))
        self._inputs.note_commit(self._commit.released)
        self._committed_at = time.monotonic()

    def finish(self, stepper: Stepper) -> None:
        """Commit what there is at the end of a run.

        Raises:
            JobError: something cannot be written, or has not been for too long.
        """
        if stepper.released == END_OF_TIME:
            self._sinks.complete()
        self.commit(stepper)
        self._retry_policy.call("the log of data errors", self._data_errors.flush)

    def output_counts(self) -> Mapping[str, OutputCounts]:
        """Return what each output has counted up to the last commit."""
        return self._sinks.counts()

    def _log_data_errors(self, errors: Sequence[DataError], counts: Mapping[Group, int]) -> None:
        self._data_errors.take(errors, counts)
        self._retry_policy.call("the log of data errors", self._data_errors.write_due)
