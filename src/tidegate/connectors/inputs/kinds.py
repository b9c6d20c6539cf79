"""What a kind of input declares: its section of the job file, and how to open it.

Most inputs are streams (`StreamInput`), read as a log. Reference data (`reference`) are the exception: tables that
streams are joined to.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_core import CoreSchema, core_schema

from tidegate.connectors.model.events import InputLog
from tidegate.connectors.model.kinds import Kinds, KindSection
from tidegate.connectors.model.section import Section
from tidegate.engine import DEFAULT_LIMITS, FORMATS, DecodingLimits


class InputSection(KindSection):
    """A section ``[inputs.NAME]``."""


INPUTS: Kinds[InputSection] = Kinds("an input", __package__, "tidegate.inputs")
"""Every kind of input."""


@dataclass(frozen=True, slots=True)
class LogOpening:
    """The arguments for opening a stream beside its section.

    Attributes:
        name: the input's name in the query.
        state_folder: the job's state folder, if it has one.
        live: whether findings about the input are recorded there.
        limits: how large one event or file may be.
        patient: whether the log itself waits for a hub that restarts; False: the caller waits.
        retry_s: how long a task waits for a source that cannot be reached, where it waits by itself.
        job: the name of a job that runs, for a source that shows who reads it; empty if it is only asked about.
    """

    name: str = ""
    state_folder: Path | None = None
    live: bool = False
    limits: DecodingLimits = DEFAULT_LIMITS
    patient: bool = True
    retry_s: float = 20
    job: str = ""


@dataclass(frozen=True, slots=True)
class ArrivalEstimate:
    """How the arrival clock of an idle stream is advanced by estimate (`ticks`).

    Attributes:
        idle_after_s: how long the stream must be idle before that begins.
        seen_within_s: how much the delay between arrival and reading may vary.
    """

    idle_after_s: float
    seen_within_s: float = 0


class StreamInput(InputSection):
    """An input that is read as a log of events."""

    @abstractmethod
    def open_log(self, opening: LogOpening) -> InputLog:
        """Open the stream as a log.

        Raises:
            InputUnavailableError: it cannot be reached at the moment.
            InputError: it cannot be read.
        """

    def arrival_estimate(self) -> ArrivalEstimate | None:
        """Return how its arrival clock advances while it is idle; None if it does not."""
        return None

    def event_hub_name(self) -> str:
        """Return the name of the hub or the topics that it reads, for metrics; empty if it reads something else."""
        return ""


@dataclass(frozen=True, slots=True)
class FormatName:
    """Annotation of a setting whose values are the names of formats.

    Attributes:
        in_events: only formats that the body of one event may have.
        others: names that are allowed beside the formats.
    """

    in_events: bool = False
    others: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))

    @property
    def names(self) -> tuple[str, ...]:
        """The values that the setting may have."""
        return (*FORMATS.names(in_events=self.in_events), *self.others)


def reference_names(sections: object) -> list[str]:
    """Return the names of those sections under ``[inputs]`` whose kind is reference data, not a stream.

    Args:
        sections: as they were written, right or wrong.
    """
    if not isinstance(sections, Mapping):
        return []
    return [name for name, section in sections.items() if isinstance(section, Mapping) and _is_reference(section)]


def _is_reference(section: Mapping[str, object]) -> bool:
    kind = section.get("type")
    declared = INPUTS.by_name.get(kind) if isinstance(kind, str) else None
    return declared is not None and not issubclass(declared, StreamInput)


EstimateArrival = Annotated[
    bool,
    Field(description="advance the watermark of an idle input by estimate: the last arrival and the time since then"),
]
IdleAfter = Annotated[float, Field(ge=0, description="how long no event must have come before that begins")]


class InputLimits(Section):
    """Limits on one event or file; one that exceeds a limit counts as an input deserialization error."""

    depth: int = Field(
        default=DEFAULT_LIMITS.depth, ge=1, le=200, description="how deeply values (and Avro schemas) may be nested"
    )
    event_bytes: int = Field(
        default=DEFAULT_LIMITS.event_bytes, ge=1, description="the size of one event's body after decompression"
    )
    file_bytes: int = Field(
        default=DEFAULT_LIMITS.file_bytes, ge=1, description="the size of one file after decompression"
    )
    rows: int = Field(default=DEFAULT_LIMITS.rows, ge=1, description="how many rows one file may have")
    event_rows: int = Field(default=DEFAULT_LIMITS.event_rows, ge=1, description="how many rows one event may have")
    event_values: int = Field(
        default=DEFAULT_LIMITS.event_values,
        ge=1,
        description="how many values one event may have, those inside records and arrays included",
    )

    @property
    def limits(self) -> DecodingLimits:
        """Return the limits for the engine."""
        return DecodingLimits(**self.model_dump())
