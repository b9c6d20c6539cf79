"""The sections of a job file that name its outputs: `[outputs.NAME]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tidegate.job.section import Section


class FileOutput(Section):
    """A file of JSON lines, each result once, in time order."""

    type: Literal["file"]
    path: Path = Field(description="the file; relative to the job file")


class ConsoleOutput(Section):
    """Results on standard output, as JSON lines."""

    type: Literal["console"]


OUTPUT_SECTIONS: tuple[type[Section], ...] = (FileOutput, ConsoleOutput)

OutputDefinition = Annotated[FileOutput | ConsoleOutput, Field(discriminator="type")]
