"""The opened inputs of a job: its logs, with estimated arrival clocks where needed, and its reference data.

A live input may be unreachable for a while, at the start or later. The job then waits and logs that it does
(`tidegate.connectors.model.retry_policy`), as it does for its outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidegate.connectors.inputs.kinds import ArrivalEstimate, LogOpening, StreamInput
from tidegate.connectors.inputs.reference import References, ReferenceSection
from tidegate.connectors.inputs.ticks import TickedLog, Ticks
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import InputLog, LogRange, PartitionEnd
from tidegate.connectors.model.retry_policy import RetryPolicy
from tidegate.connectors.model.set_aside import read_set_aside, without
from tidegate.engine import Program
from tidegate.job.config.definition import JobDefinition
from tidegate.job.runtime.step import Stepper
from tidegate.ordering import NO_TIME, Policy, read_from


def reference_definitions(definition: JobDefinition) -> dict[str, ReferenceSection]:
    """Return the inputs of a job that are reference data."""
    return {name: one for name, one in definition.inputs.items() if isinstance(one, ReferenceSection)}


class PatientLog:
    """A log that waits while its input cannot be reached."""

    def __init__(self, log: InputLog, name: str, reading: RetryPolicy) -> None:
        self._log = log
        self._what = f"input '{name}'"
        self._reading = reading

    def ends(self) -> dict[str, PartitionEnd]:
        return self._reading.call(self._what, self._log.ends)

    def first_at(self, partition: str, arrival: int) -> int:
        return self._reading.call(self._what, lambda: self._log.first_at(partition, arrival))

    def range(self, partition: str, start: int, end: int) -> LogRange:
        return self._log.range(partition, start, end)

    def close(self) -> None:
        self._log.close()


def open_logs(
    definition: JobDefinition, program: Program, policy: Policy, *, reading: RetryPolicy | None = None
) -> tuple[dict[str, InputLog], Ticks]:
    """Open the streams that a query reads, by the name it uses, and their ticks.

    Args:
        reading: for a running job, how long to wait for inputs; only then are new ticks made and the state folder
            written. None: the job is not running.

    Raises:
        InputError: one cannot be reached or read.
    """
    live = reading is not None
    folder = definition.state_dir if live or _exists(definition.state_dir) else None
    sections = {name.lower(): one for name, one in definition.inputs.items() if isinstance(one, StreamInput)}
    limits = definition.input_limits.limits
    ticks = Ticks(folder, with_past=not live)
    set_aside = read_set_aside(folder)
    logs: dict[str, InputLog] = {}
    try:
        by_source: dict[str, InputLog] = {}
        for name in program.input_names:
            source = program.source_of(name).lower()
            if source not in by_source:
                section = sections[source]
                opening = LogOpening(
                    source,
                    folder,
                    live=live,
                    limits=limits,
                    patient=not live,
                    retry_s=definition.input_retry_s,
                    job=definition.name if live else "",
                )
                by_source[source] = logs[name] = without(set_aside, _open(section, opening, reading), source)
                estimate = _arrival_estimate(section, name, program, policy) if live else None
                by_source[source] = TickedLog(logs[name], source, ticks, estimate)
            logs[name] = by_source[source]
    except BaseException:
        close_logs(logs)
        raise
    return logs, ticks


def _open(section: StreamInput, opening: LogOpening, reading: RetryPolicy | None) -> InputLog:
    if reading is None:
        return open_named(section, opening)
    log = reading.call(f"input '{opening.name}'", lambda: open_named(section, opening))
    return PatientLog(log, opening.name, reading)


def open_named(section: StreamInput, opening: LogOpening) -> InputLog:
    """Open a stream, and name the input in the message if it is wrong.

    Raises:
        InputError: it cannot be reached or read.
    """
    try:
        return section.open_log(opening)
    except InputError as error:
        named = f"input '{opening.name}'"
        # A message about something unavailable gets the name where the job waits for it, and others have a kind.
        if type(error) is not InputError or str(error).startswith(named):
            raise
        raise InputError(f"{named}: {error}") from error


def close_logs(logs: Mapping[str, InputLog]) -> None:
    """Close connections and files."""
    for log in {id(log): log for log in logs.values()}.values():
        log.close()


def _arrival_estimate(section: StreamInput, name: str, program: Program, policy: Policy) -> ArrivalEstimate | None:
    """Return how the arrival clock of an idle input advances; None if it does not or if no result depends on it."""
    waits_indefinitely = program.has_event_time(name) and policy.late_ticks is None
    return None if waits_indefinitely else section.arrival_estimate()


def _exists(folder: Path | None) -> bool:
    return folder is not None and folder.exists()


class Inputs:
    """The inputs of a running job."""

    def __init__(
        self,
        definition: JobDefinition,
        program: Program,
        policy: Policy,
        folder: Path,
        released: int,
        reading: RetryPolicy,
    ) -> None:
        """Open them.

        Args:
            released: ticks; all results before this time have been emitted.
            reading: how long to wait for an input that cannot be reached.

        Raises:
            InputError: one cannot be reached or read.
        """
        self._program = program
        self._policy = policy
        self._committed = released
        self._references = References(reference_definitions(definition), folder, definition.input_limits.limits)
        self._references.keep(folder)
        self._references.resume(released, program.lookback_ticks)
        self.program = program.with_reference(self._references.tables()) if self._references else program
        self.logs, self._ticks = open_logs(definition, program, policy, reading=reading)

    def prepare_rows(self, looked_at: int) -> None:
        """Make durable what rows that are about to leave may depend on.

        Args:
            looked_at: ticks; no row with a later time has been computed.

        Raises:
            JobError: the disk refuses.
        """
        self._references.note_joined(looked_at, self._committed)
        self.make_durable()

    def make_durable(self) -> None:
        """Make durable what a time that is about to be committed may depend on.

        Raises:
            JobError: the disk refuses.
        """
        self._ticks.forget_before(self._read_from(self._committed))
        self._ticks.write()

    def note_commit(self, released: int) -> None:
        """Record that the journal has all results before a time (ticks), so no restart goes back further."""
        self._committed = released

    def refresh_reference_data(self, stepper: Stepper) -> None:
        """Load new reference data, if any, and pass them to the stepper.

        Raises:
            InputError: a table cannot be read.
            UnavailableError: the disk refuses.
        """
        if not self._references:
            return
        # A run after a kill goes back to the last commit, which may be some steps ago.
        needed_from = NO_TIME if self._committed == NO_TIME else self._committed - self._program.lookback_ticks
        if self._references.refresh(stepper.looked_at + 1, needed_from):
            self.program = self._program.with_reference(self._references.tables())
            stepper.use(self.program)

    def _read_from(self, released: int) -> int | None:
        return None if released == NO_TIME else read_from(released, self._program.lookback_ticks, self._policy)

    def close(self) -> None:
        """Close connections and files, and record when the ends of idle inputs were seen."""
        try:
            self._ticks.write()
        finally:
            close_logs(self.logs)
