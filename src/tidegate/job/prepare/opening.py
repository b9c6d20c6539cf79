"""The inputs of one job, opened: its logs, with the ticks of those that nobody speaks for, and its reference data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tidegate.engine import Program
from tidegate.job.config.definition import JobDefinition
from tidegate.job.inputs.kinds import ArrivalEstimate, LogOpening, StreamInput
from tidegate.job.inputs.reference import ReferenceInput, References
from tidegate.job.inputs.ticks import TickedLog, Ticks
from tidegate.job.model.events import InputLog
from tidegate.job.runtime.step import Runner, Stepper
from tidegate.ordering import NO_TIME, Policy, read_from


def reference_definitions(definition: JobDefinition) -> dict[str, ReferenceInput]:
    """The inputs of a job that are reference data."""
    return {name: one for name, one in definition.inputs.items() if isinstance(one, ReferenceInput)}


def open_logs(
    definition: JobDefinition, program: Program, policy: Policy, *, live: bool
) -> tuple[dict[str, InputLog], Ticks]:
    """The streams that a query reads, by the name it uses, and their ticks.

    Args:
        live: whether the job runs: only then new ticks are made, and the state folder is written to.

    Raises:
        InputError: one cannot be reached or read.
    """
    folder = definition.state_dir if live or _exists(definition.state_dir) else None
    sections = {name.lower(): one for name, one in definition.inputs.items() if isinstance(one, StreamInput)}
    limits = definition.input_limits.limits
    ticks = Ticks(folder)
    logs: dict[str, InputLog] = {}
    try:
        by_source: dict[str, InputLog] = {}
        for name in program.input_names:
            source = program.source_of(name).lower()
            if source not in by_source:
                section = sections[source]
                opening = LogOpening(source, folder, live=live, limits=limits)
                by_source[source] = logs[name] = section.open_log(opening)
                estimate = _arrival_estimate(section, name, program, policy) if live else None
                by_source[source] = TickedLog(logs[name], source, ticks, estimate)
            logs[name] = by_source[source]
    except BaseException:
        close_logs(logs)
        raise
    return logs, ticks


def close_logs(logs: Mapping[str, InputLog]) -> None:
    """Give back connections and files."""
    for log in {id(log): log for log in logs.values()}.values():
        log.close()


def _arrival_estimate(section: StreamInput, name: str, program: Program, policy: Policy) -> ArrivalEstimate | None:
    """Return how the arrival clock of an idle input advances; None if it does not, or if that would move nothing."""
    waits_indefinitely = program.has_event_time(name) and policy.late_ticks is None
    return None if waits_indefinitely else section.arrival_estimate()


def _exists(folder: Path | None) -> bool:
    return folder is not None and folder.exists()


class Inputs:
    """The inputs of a job that runs."""

    def __init__(
        self,
        definition: JobDefinition,
        program: Program,
        policy: Policy,
        folder: Path,
        released: int,
        runner_for: Callable[[Program], Runner] | None,
    ) -> None:
        """Open them.

        Args:
            released: ticks; all results before this have left.
            runner_for: makes a runner for a program with other reference data; None: what is there at the beginning is
                all that is joined.

        Raises:
            InputError: one cannot be reached or read.
        """
        self._program = program
        self._policy = policy
        self._runner_for = runner_for
        self._committed = released
        self._references = References(reference_definitions(definition), folder, definition.input_limits.limits)
        self._references.keep(folder)
        if released != NO_TIME:
            self._references.refresh(released)
        self.program = program.with_reference(self._references.tables()) if self._references else program
        self.logs, self._ticks = open_logs(definition, program, policy, live=True)

    def runner(self, given: Runner) -> Runner:
        """The runner to begin with: the one that was given, if the reference data are as when that was made."""
        if not self._references or self.program.has_reference_of(self._program) or self._runner_for is None:
            return given
        return self._runner_for(self.program)

    def before_it_counts(self) -> None:
        """Make durable what rows that are about to leave, or a time that is about to be committed, may depend on.

        Raises:
            JobError: the disk refuses.
        """
        self._ticks.forget_before(self._read_from(self._committed))
        self._ticks.write()

    def committed(self, released: int) -> None:
        """The journal says that all results before a time (ticks) have left: no restart goes back further."""
        self._committed = released

    def look(self, stepper: Stepper) -> None:
        """Take in new reference data, where there are any.

        Raises:
            InputError: a table cannot be read.
        """
        if not self._references or self._runner_for is None:
            return
        needed_from = NO_TIME if stepper.released == NO_TIME else stepper.released - self._program.lookback_ticks
        if self._references.refresh(stepper.looked_at + 1, needed_from):
            self.program = self._program.with_reference(self._references.tables())
            stepper.use(self.program, self._runner_for(self.program))

    def _read_from(self, released: int) -> int | None:
        return None if released == NO_TIME else read_from(released, self._program.lookback_ticks, self._policy)

    def close(self) -> None:
        """Give back connections and files, and write down when the ends of idle inputs were seen."""
        try:
            self._ticks.write()
        finally:
            close_logs(self.logs)
