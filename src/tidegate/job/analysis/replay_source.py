"""The subject of a question about time: a query, a policy and the logs, from a job file or from a case file.

Answering a question never writes an output or a journal, so questions may be asked while the job runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate.connectors.model.errors import JobError, JobQueryError
from tidegate.connectors.model.events import InputLog, PartitionEnd
from tidegate.engine import Program, UnsupportedQuery
from tidegate.job.config.definition import JobDefinition
from tidegate.job.prepare.loading import load_job
from tidegate.job.prepare.opening import close_logs, open_logs
from tidegate.job.runtime.step import Timeline
from tidegate.job.runtime.watermark_blockers import policy_of
from tidegate.job.testing.case import prepared_case, read_case
from tidegate.ordering import Policy
from tidegate.sql import QueryError


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """A prepared query, its policy, and its logs by the name the query uses; ``definition`` is None for a case."""

    name: str
    program: Program
    policy: Policy
    logs: Mapping[str, InputLog]
    definition: JobDefinition | None = None

    def ends(self) -> dict[Timeline, PartitionEnd]:
        """Return where each partition of each input ends now.

        Raises:
            InputError: a log cannot be reached.
        """
        return {(name, partition): end for name, log in self.logs.items() for partition, end in log.ends().items()}

    def policy_of(self, input_name: str) -> Policy:
        """Return the policy of one input: without TIMESTAMP BY no tolerance applies."""
        return policy_of(self.program, self.policy, input_name)

    def timeline(self, input_name: str | None, partition: str | None) -> Timeline:
        """Return the timeline of an input and partition; either may be None if there is only one.

        Raises:
            JobError: there is no such timeline, or there are several; the message names them.
        """
        partitions = self.ends()
        names = list(self.logs)
        if input_name is None and len(names) > 1:
            raise JobError(f"the job has several inputs; say which with --input: {', '.join(names)}")
        named = names[0] if input_name is None else next((n for n in names if n.lower() == input_name.lower()), None)
        if named is None:
            raise JobError(f"the query reads no input '{input_name}'; it reads {', '.join(names)}")
        known = [number for name, number in partitions if name == named]
        if partition is None and len(known) == 1:
            return named, known[0]
        if partition is None or partition not in known:
            asked = "say which with --partition" if partition is None else f"there is no partition '{partition}'"
            raise JobError(f"the input {named} has the partitions {', '.join(known) or '(none)'}; {asked}")
        return named, partition


@contextmanager
def open_replay_source(path: Path) -> Iterator[ReplaySource]:
    """Read a job or case file and open its logs.

    Raises:
        JobError: it is neither, or an input cannot be reached.
        JobQueryError: the query cannot run.
    """
    if is_case(path):
        case = read_case(path)
        try:
            program, logs = prepared_case(case)
        except QueryError as error:
            raise JobQueryError(str(path), case.query, error) from error
        except UnsupportedQuery as error:
            raise JobError(f"the query of {path} cannot run: {error}") from error
        yield ReplaySource(case.name, program, case.event_ordering(), logs)
        return
    job = load_job(path)
    opened, _ = open_logs(job.definition, job.program, job.policy)
    try:
        yield ReplaySource(job.definition.name, job.program, job.policy, opened, job.definition)
    finally:
        close_logs(opened)


def is_case(path: Path) -> bool:
    """Return whether a file is a case: the inputs of a case are a list of events, those of a job a table."""
    if path.suffix != ".json":
        return False
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and isinstance(content.get("inputs"), list)
