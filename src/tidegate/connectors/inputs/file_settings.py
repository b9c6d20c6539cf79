"""The settings that inputs made of files have in common."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tidegate.blobs import Blob, PathPattern, PatternError
from tidegate.connectors.inputs.deserializer import DeserializerName, Prefix, deserializer_of, problem_of
from tidegate.connectors.inputs.kinds import InputSection
from tidegate.connectors.model.kinds import StorageAccountSection
from tidegate.connectors.model.section import Public
from tidegate.engine import DecodingLimits, Format
from tidegate.ordering import TICKS_PER_SECOND

Delimiter = Annotated[Public, Field(min_length=1, max_length=1, description="the character between the columns of CSV")]
Columns = Annotated[
    tuple[Public, ...], Field(description="the columns of CSV whose first line does not name them, in their order")
]
Encoding = Annotated[Literal["utf-8", "utf-16", "latin-1"], Field(description="the encoding of JSON and CSV")]
FileCompression = Annotated[
    Literal["auto", "none", "gzip", "deflate"],
    Field(description="how each file is compressed; auto: gzip where its name ends in .gz"),
]
DateFormat = Annotated[Public, Field(description="how `{date}` is written, such as YYYY-MM-DD or YYYY/MM/DD")]
TimeFormat = Annotated[Public, Field(description="how `{time}` is written, such as HH-mm, HH/mm or HH")]


class FileSettings(StorageAccountSection, InputSection):
    """Which files to read, and their format."""

    date_format: DateFormat = "YYYY-MM-DD"
    time_format: TimeFormat = "HH-mm"
    format: Public = "json"
    delimiter: Delimiter = ","
    columns: Columns = ()
    encoding: Encoding = "utf-8"
    compression: FileCompression = "auto"
    deserializer: DeserializerName = None
    message_prefix: Prefix = "none"

    @model_validator(mode="after")
    def _path_is_a_pattern(self) -> FileSettings:
        try:
            self.pattern()
        except PatternError as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _format_and_deserializer_fit(self) -> FileSettings:
        if (problem := problem_of(self.format, self.deserializer, self.message_prefix)) is not None:
            raise ValueError(problem)
        return self

    def pattern(self) -> PathPattern:
        """Return the pattern that the names of the files match."""
        return PathPattern.parse(self.path, self.date_format, self.time_format)

    def file_format(self, name: str, limits: DecodingLimits) -> Format:
        """Return the format in which the engine reads a file of this name."""
        compression = self.compression
        if compression == "auto":
            compression = "gzip" if name.lower().endswith(".gz") else "none"
        custom = deserializer_of(self.deserializer, self.message_prefix)
        return Format(self.format, self.delimiter, self.columns, self.encoding, compression, limits, custom)


def has_settled(root: str, blob: Blob, settle_s: float) -> bool:
    """Return whether a file below a folder is old enough to be complete; objects of a store always are.

    A modification time in the future says nothing.
    """
    age = time.time_ns() // 100 - blob.modified
    return "://" in root or not 0 <= age < settle_s * TICKS_PER_SECOND
