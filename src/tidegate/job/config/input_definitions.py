"""The sections of a job file that name its inputs: `[inputs.NAME]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tidegate.blobs import PathPattern, PatternError
from tidegate.engine import Format
from tidegate.job.config.section import Section

Delimiter = Annotated[str, Field(min_length=1, max_length=1, description="the character between the columns of CSV")]
Columns = Annotated[
    tuple[str, ...], Field(description="the columns of CSV whose first line does not name them, in their order")
]
Encoding = Annotated[Literal["utf-8", "utf-16", "latin-1"], Field(description="the encoding of JSON and CSV")]
Compression = Annotated[Literal["none", "gzip", "deflate"], Field(description="how each body is compressed")]
FileCompression = Annotated[
    Literal["auto", "none", "gzip", "deflate"],
    Field(description="how each file is compressed; auto: gzip where its name ends in .gz"),
]
DateFormat = Annotated[str, Field(description="how `{date}` is written, such as YYYY-MM-DD or YYYY/MM/DD")]
TimeFormat = Annotated[str, Field(description="how `{time}` is written, such as HH-mm, HH/mm or HH")]
EstimateArrival = Annotated[
    bool,
    Field(
        description="while nothing comes and nobody says what the clock is, let it go on by estimate "
        "(the last arrival and the time since), so that results leave"
    ),
]
IdleAfter = Annotated[float, Field(ge=0, description="how long nothing must have come before that begins")]


class _Hub(Section):
    """What is read over AMQP."""

    connection_string: str = Field(description="Endpoint=…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…")
    event_hub: str | None = Field(default=None, description="the hub's name, where the string has no EntityPath")
    consumer_group: str = Field(default="$Default", description="the consumer group to read in")
    segments: Literal["auto", "never"] = Field(
        default="auto",
        description="auto: read the hub's files where they are on the reading machine; never: its network",
    )
    format: Literal["json", "csv", "avro"] = Field(default="json", description="what a body is")
    delimiter: Delimiter = ","
    columns: Columns = ()
    encoding: Encoding = "utf-8"
    compression: Compression = "none"
    estimate_arrival: EstimateArrival = True
    idle_after_s: IdleAfter = 1

    @property
    def body_format(self) -> Format:
        """As the engine takes it."""
        return Format(self.format, self.delimiter, self.columns, self.encoding, self.compression)


class EventHubInput(_Hub):
    """An event hub, of this hub or of Azure, named by a connection string with an ``EntityPath``."""

    type: Literal["eventhub"]


class IotHubInput(_Hub):
    """Messages of devices, from the endpoint of an IoT hub that is compatible with Event Hubs; a message has arrived at
    its ``IoTHub.EnqueuedTime``."""

    type: Literal["iothub"]


class RecordedInput(Section):
    """A recorded log: JSON lines, each ``{"partition": …, "arrival": …, "body": …}``, in the order of arrival."""

    type: Literal["recorded"]
    path: Path = Field(description="the file; relative to the job file")


class _Files(Section):
    """What inputs made of files have in common."""

    path: str
    date_format: DateFormat = "YYYY-MM-DD"
    time_format: TimeFormat = "HH-mm"
    format: str = "json"
    delimiter: Delimiter = ","
    columns: Columns = ()
    encoding: Encoding = "utf-8"
    compression: FileCompression = "auto"

    @model_validator(mode="after")
    def _path_is_a_pattern(self) -> _Files:
        try:
            self.pattern()
        except PatternError as error:
            raise ValueError(str(error)) from None
        return self

    def pattern(self) -> PathPattern:
        """The names of the files."""
        return PathPattern.parse(self.path, self.date_format, self.time_format)

    def file_format(self, name: str) -> Format:
        """That of a file, as the engine takes it."""
        compression = self.compression
        if compression == "auto":
            compression = "gzip" if name.lower().endswith(".gz") else "none"
        kind: Literal["json", "csv", "avro", "parquet"]
        match self.format:
            case "csv" | "avro" | "parquet" as kind:
                pass
            case _:
                kind = "json"
        return Format(kind, self.delimiter, self.columns, self.encoding, compression)


class FilesInput(_Files):
    """Files of a folder or an object store, each row of them an event that arrived when its file was last modified;
    files come in the order of that time, then of their names."""

    type: Literal["files"]
    path: str = Field(
        description="a file, a folder, or a pattern with `*`, `**`, `?`, `{date}`, `{time}` and `{partition}`; "
        "relative to the job file, or `az://CONTAINER/…`, `s3://…`, `gs://…`"
    )
    format: Literal["json", "csv", "avro", "parquet", "capture"] = Field(
        default="json", description="what a file is; capture: the files that an event hub's Capture writes"
    )
    body: Literal["json", "csv", "avro"] = Field(
        default="json", description="what the bodies in the files of Capture are"
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=2048,
        description="how many there are, where names or files of Capture say of which an event is; default: those that "
        "have files when the job begins",
    )
    arrival_column: str | None = Field(
        default=None, description="a column that says when a row arrived, instead of the time of its file"
    )
    watch: bool = Field(
        default=True,
        description="take in files that appear while the job runs; false: what is there at the beginning is all",
    )
    settle_s: float = Field(
        default=2, ge=0, description="how old a file of a folder must be before it is taken for whole"
    )
    changed_files: Literal["stop", "ignore"] = Field(
        default="stop", description="when a file that was taken in has changed: end the job, or leave the change out"
    )
    estimate_arrival: EstimateArrival = True
    idle_after_s: IdleAfter = 1

    @model_validator(mode="after")
    def _capture_has_its_own_times(self) -> FilesInput:
        if self.format == "capture" and self.arrival_column is not None:
            raise ValueError("files of Capture say themselves when an event arrived; leave arrival_column out")
        return self


class ReferenceInput(_Files):
    """A table to join streams to. With ``{date}`` and ``{time}`` in the path each file is the table from that time on;
    without, a file that changes is a new table from the time of the change on."""

    type: Literal["reference"]
    path: str = Field(
        description="a file, or a pattern with `{date}` and `{time}`; relative to the job file, or `az://CONTAINER/…` …"
    )
    format: Literal["json", "csv", "avro", "parquet"] = Field(default="json", description="what a file is")
    refresh_s: float = Field(default=10, gt=0, description="how often to look for a new table")


INPUT_SECTIONS: tuple[type[Section], ...] = (EventHubInput, IotHubInput, FilesInput, ReferenceInput, RecordedInput)

StreamDefinition = EventHubInput | IotHubInput | FilesInput | RecordedInput

InputDefinition = Annotated[
    EventHubInput | IotHubInput | FilesInput | ReferenceInput | RecordedInput, Field(discriminator="type")
]
