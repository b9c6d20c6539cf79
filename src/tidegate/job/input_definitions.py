"""The sections of a job file that name its inputs: `[inputs.NAME]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tidegate.job.section import Section


class EventHubInput(Section):
    """An event hub, of this hub or of Azure, named by a connection string with an ``EntityPath``."""

    type: Literal["eventhub"]
    connection_string: str = Field(description="Endpoint=…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…")
    event_hub: str | None = Field(default=None, description="the hub's name, where the string has no EntityPath")
    consumer_group: str = Field(default="$Default", description="the consumer group to read in")
    segments: Literal["auto", "never"] = Field(
        default="auto",
        description="auto: read the hub's files where they are on the reading machine; never: its network",
    )


class RecordedInput(Section):
    """A recorded log: JSON lines, each ``{"partition": …, "arrival": …, "body": …}``, in the order of arrival."""

    type: Literal["recorded"]
    path: Path = Field(description="the file; relative to the job file")


INPUT_SECTIONS: tuple[type[Section], ...] = (EventHubInput, RecordedInput)

InputDefinition = Annotated[EventHubInput | RecordedInput, Field(discriminator="type")]
