"""Parts: rows made durable under names that no other attempt uses, before anybody decides that they count.

Writing parts and committing them are separate. A `PartWriter` can be pickled, so any process, such as a Spark task, can
write parts; an attempt that is repeated or was thought dead leaves parts that nobody commits, where nobody looks for
results. Committing is `PartCommitter`'s.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tidegate.connectors.outputs.arrow_tables import Misfit
from tidegate.connectors.outputs.files.file_formats import FormatSettings
from tidegate.connectors.outputs.files.file_place import FilePlace
from tidegate.connectors.outputs.files.path_template import PathTemplate
from tidegate.connectors.outputs.output import rows_at
from tidegate.engine import ResultRows

OWN_FOLDER = "_tidegate"
"""What begins with an underscore is not a result, to Spark, Hive and Tidegate's own inputs."""


@dataclass(frozen=True, slots=True)
class Part:
    """Durable rows of one folder.

    Attributes:
        folder: where they belong, relative to the place. period: its beginning in ticks, 0 without one.
        label: the order of parts in their folder; unique, and the same in every attempt that cuts rows alike.
        name: where they are now, relative to the place.
        rows, bytes, hash: how many, and the size and SHA-256 of the content.
        since: when the oldest row was written, in seconds since 1970.
        whole: it is a file that only has to be moved; otherwise a chunk that files are made of.
    """

    folder: str
    period: int
    label: str
    name: str
    rows: int
    bytes: int
    hash: str
    since: float
    whole: bool = False


@dataclass(frozen=True, slots=True)
class NewPart:
    """A part that is not yet durable."""

    part: Part
    content: bytes


@dataclass(frozen=True, slots=True)
class PartWriter:
    """Writes rows as parts.

    Attributes:
        template: the folders that rows go to.
        own_folder: the output's own folder, where parts are until they are committed.
        minimum_rows: from how many rows of one folder on a part is a whole file.
    """

    template: PathTemplate
    format: FormatSettings
    own_folder: str
    minimum_rows: int
    place: FilePlace = field(compare=False)

    def misfits(self, rows: ResultRows) -> list[Misfit]:
        """Return the values that the format cannot hold."""
        return self.format.opened().misfits(rows)

    def new_parts(self, rows: ResultRows, label: str) -> list[NewPart]:
        """Return rows as parts, without writing them.

        Args:
            label: the order of these rows among all of the output, such as the number of the first with leading zeros.
        """
        format_ = self.format.opened()
        found = []
        for number, one in enumerate(self.template.split(rows)):
            own = rows if len(one.places) == len(rows) else rows_at(rows, one.places)
            whole = len(one.places) >= self.minimum_rows
            content = format_.file_of_rows(own) if whole else format_.chunk(own)
            part = self.described(one.folder, one.period, f"{label}-{number:04d}", len(one.places), content)
            found.append(NewPart(replace(part, whole=whole), content))
        return found

    def described(self, folder: str, period: int, label: str, rows: int, content: bytes) -> Part:
        """Return the description of a part with a name of its own."""
        name = f"{self.own_folder}/parts/{label}-{secrets.token_hex(8)}"
        digest = hashlib.sha256(content).hexdigest()
        return Part(folder, period, label, name, rows, len(content), digest, time.time())

    def store(self, parts: Sequence[NewPart]) -> None:
        """Make parts durable.

        Raises:
            OutputUnavailableError, OutputError: see `FilePlace`.
        """
        self.place.put([(one.part.name, one.content) for one in parts])

    def write_parts(self, rows: ResultRows, label: str) -> list[Part]:
        """Make rows durable, and return the parts for `PartCommitter.commit`; callable in any process."""
        parts = self.new_parts(rows, label)
        self.store(parts)
        return [one.part for one in parts]
