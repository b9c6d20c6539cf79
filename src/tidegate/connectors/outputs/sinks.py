"""All outputs of a run together: routing of rows, waiting for unavailable outputs, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.connectors.model.encoded_rows import EncodedRows, Encoder
from tidegate.connectors.model.errors import JobError, OutputError
from tidegate.connectors.model.metrics import DATA_CONVERSION_ERRORS, OUTPUT_EVENTS, DataError, Group
from tidegate.connectors.model.retry_policy import RetryPolicy
from tidegate.connectors.outputs.console import ConsoleOutput
from tidegate.connectors.outputs.kinds import OutputOpening, OutputSection, open_output, shared_files
from tidegate.connectors.outputs.output import (
    ChoosesEncoder,
    Identity,
    KeepsPeriods,
    Mark,
    Output,
    OutputUnavailableError,
)
from tidegate.connectors.outputs.shape import Shape
from tidegate.engine import ResultRows


@dataclass(frozen=True, slots=True)
class OutputCounts:
    """What an output counts over the life of a job: results that it has, and results that it rejected."""

    events: int
    conversion_errors: int


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """The outputs of a run.

    Attributes:
        job: the job's name.
        journal: the identity of the journal that the marks are from.
        sections: the outputs of the job file, by name.
        shapes: by output of the query, its columns if they are known.
        drop: drop rows that an output rejects; otherwise they end the job.
        folder: the job's state folder.
    """

    job: str
    journal: str
    sections: Mapping[str, OutputSection]
    shapes: Mapping[str, Shape | None]
    drop: bool = False
    folder: Path | None = None


class Encoders(Mapping[str, Encoder]):
    """How executors may encode the rows of the next step, by output; it may change from step to step."""

    def __init__(self, asked: Mapping[str, Callable[[], Encoder | None]]) -> None:
        self._asked = asked

    def without(self, names: Collection[str]) -> Encoders:
        """Return those of the other outputs; ``names`` are in lower case."""
        return Encoders({name: ask for name, ask in self._asked.items() if name.lower() not in names})

    def __getitem__(self, name: str) -> Encoder:
        encoder = self._asked[name]()
        if encoder is None:
            raise KeyError(name)
        return encoder

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, ask in self._asked.items() if ask() is not None])

    def __len__(self) -> int:
        return sum(ask() is not None for ask in self._asked.values())


class Sinks:
    """The outputs of one run, by the name the query gives them."""

    def __init__(
        self,
        outputs: Mapping[str, Output],
        marks: Mapping[str, Mark],
        retry_policy: RetryPolicy,
        encoders: Encoders | None = None,
    ) -> None:
        self._outputs = outputs
        self.encoders = encoders or Encoders({})
        self._marks = dict(marks)
        self._retry_policy = retry_policy

    @classmethod
    def open(cls, settings: SinkSettings, marks: Mapping[str, Mark], retry_policy: RetryPolicy) -> Sinks:
        """Open every output at its mark.

        Raises:
            JobError: an output cannot be written or does not fit its mark, or the query never writes it.
        """
        sections = {name.lower(): section for name, section in settings.sections.items()}
        unused = set(sections) - {name.lower() for name in settings.shapes}
        if unused:
            raise JobError(
                f"the job has outputs the query never writes: {', '.join(sorted(unused))}; "
                f"the query writes {', '.join(settings.shapes)}"
            )
        for name, problem in shared_files(settings.sections).items():
            raise JobError(f"output '{name}': {problem}")
        opened: dict[str, Output] = {}
        encoders: dict[str, Callable[[], Encoder | None]] = {}
        try:
            for name, shape in settings.shapes.items():
                section: OutputSection = sections.get(name.lower(), ConsoleOutput(type="console"))
                identity = Identity(settings.job, name, settings.journal)
                opening = OutputOpening(identity, marks.get(name), shape, settings.drop, settings.folder)
                with _naming(name):
                    opened[name] = open_output(section, opening)
                output = opened[name]
                encoders[name] = output.encoder if isinstance(output, ChoosesEncoder) else section.encoder
        except BaseException:
            _close(opened.values())
            raise
        # The journal also has marks of outputs that an earlier query wrote.
        return cls(
            opened, {name: mark for name, mark in marks.items() if name in opened}, retry_policy, Encoders(encoders)
        )

    def write(self, rows: ResultRows | EncodedRows) -> None:
        """Pass rows to their output.

        Raises:
            OutputError: the output cannot accept them.
        """
        output: Any = self._outputs[rows.output]
        write = output.write if isinstance(rows, ResultRows) else output.write_encoded
        with _naming(rows.output):
            self._retry_policy.call(_named(rows.output), lambda: write(rows))

    def commit(self) -> dict[str, Mark]:
        """Make written rows durable, waiting for unavailable outputs, and return the mark of each.

        Raises:
            OutputError: an output has been unavailable for too long, or fails.
        """
        marks = {}
        for name, output in self._outputs.items():
            with _naming(name):
                marks[name] = self._retry_policy.call(_named(name), output.commit)
        self._marks = marks
        return dict(marks)

    def complete(self) -> None:
        """Say that no rows follow, before the last commit."""
        for output in self._outputs.values():
            if isinstance(output, KeepsPeriods):
                output.complete()

    def continue_after_held_rows(self) -> None:
        """Treat rows that an output has beyond its mark as emitted: the rows to come are others."""
        for output in self._outputs.values():
            output.continue_after_held_rows()

    def counts(self) -> dict[str, OutputCounts]:
        """Return what each output counts, up to the last commit."""
        return {
            name: OutputCounts(mark["rows"] - mark["dropped"], mark["dropped"]) for name, mark in self._marks.items()
        }

    def totals(self) -> dict[str, int]:
        """Return the sums over all outputs, by metric name."""
        counts = self.counts().values()
        return {
            OUTPUT_EVENTS: sum(count.events for count in counts),
            DATA_CONVERSION_ERRORS: sum(count.conversion_errors for count in counts),
        }

    def drain_data_errors(self) -> tuple[list[DataError], Counter[Group]]:
        """Return samples of the rows that outputs rejected since the last call, and how many there are."""
        errors = [
            DataError(
                row.kind,
                name,
                "",
                row.row,
                row.time,
                row.message,
                row.example,
            )
            for name, output in self._outputs.items()
            for row in output.drain_rejected_rows()
        ]
        return errors, Counter((error.kind, error.input, "") for error in errors)

    def close(self) -> None:
        """Close files and connections."""
        _close(self._outputs.values())


def _named(output: str) -> str:
    return f"output '{output}'"


@contextmanager
def _naming(output: str) -> Iterator[None]:
    """Name the output in an error that does not."""
    try:
        yield
    except OutputError as error:
        if type(error) not in (OutputError, OutputUnavailableError) or _named(output) in str(error):
            raise
        raise type(error)(f"{_named(output)}: {error}") from error


def _close(outputs: Iterable[Output]) -> None:
    for output in outputs:
        output.close()
