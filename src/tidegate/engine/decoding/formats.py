"""Formats of event bodies and files, and what every format must declare.

A format is one module of this package: a `FormatKind` that registers itself with `FORMATS`. The job file, the decoders
and the readers of files use the registry; nothing else lists formats. A body is first decompressed and transcoded to
UTF-8 (`content`), then decoded by its format. A body or row that cannot be read affects no other; it is reported under
the service's name for it (article "Azure Stream Analytics data errors").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from tidegate.engine.decoding.limits import DEFAULT_LIMITS, DecodingLimits
from tidegate.extensions import import_modules, load_group

if TYPE_CHECKING:
    # Spark's source names a format in processes of its own, which decode nothing.
    from tidegate.engine.decoding.decoded import Decoded, Problem, Wanted

Compression = Literal["none", "gzip", "deflate"]


Deserializer = Callable[[bytes], Iterable[Mapping[str, Any]]]
"""Returns the rows of a body, each a record."""


@dataclass(frozen=True, slots=True)
class Format:
    """The format of an input's bodies or files.

    Attributes:
        kind: the name of a registered format.
        delimiter: the character between the columns of CSV.
        columns: the names of the columns of CSV without a header; empty if the first line has them.
        encoding: of text, by Python's name for it.
        compression: how the whole body is compressed.
        limits: what decoding accepts.
        deserializer: reads the rows of a body of the format `custom`; it can be pickled and hashed.
    """

    kind: str = "json"
    delimiter: str = ","
    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"
    compression: Compression = "none"
    limits: DecodingLimits = field(default=DEFAULT_LIMITS)
    deserializer: Deserializer | None = None

    @property
    def is_packed(self) -> bool:
        """Whether a body must be decompressed or transcoded before its format can be decoded."""
        return self.compression != "none" or (self.encoding != "utf-8" and FORMATS.kind(self.kind).is_text)

    @property
    def may_inflate(self) -> bool:
        """Whether a body's rows may be much larger than the body."""
        return self.compression != "none" or FORMATS.kind(self.kind).compresses


JSON = Format()


class Unreadable(Exception):
    """No row of a content can be read."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class BodyDecoder(Protocol):
    """Decodes batches of one input."""

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Return the rows of m bodies, and which bodies were rejected."""


class FormatKind(ABC):
    """A format: its name, where it may occur, and how its rows are found.

    Attributes:
        name: its name in the job file.
        is_text: whether it consists of characters, so that an encoding applies.
        compresses: whether the format has compression of its own.
        in_events: whether the body of one event may have it; False for a format of files only.
    """

    name: ClassVar[str]
    is_text: ClassVar[bool] = False
    compresses: ClassVar[bool] = False
    in_events: ClassVar[bool] = True

    @abstractmethod
    def decoder(self, wanted: Wanted, format_: Format) -> BodyDecoder:
        """Return a decoder of event bodies."""

    @abstractmethod
    def file_rows(self, content: bytes, format_: Format) -> Sequence[bytes]:
        """Return the rows of a file as bodies of one event each: JSON texts, or `TableBodies`.

        Args:
            content: the file, decompressed, text in UTF-8.

        Raises:
            Unreadable: no row of it can be read.
        """


Kind = TypeVar("Kind", bound=FormatKind)


class Formats:
    """The registered formats, by name."""

    def __init__(self, package: str, group: str) -> None:
        self._package = package
        self._group = group
        self._kinds: dict[str, FormatKind] = {}

    def register(self, kind: type[Kind]) -> type[Kind]:
        """Add a format; used as a class decorator."""
        if kind.name in self._kinds:
            raise ValueError(f"the format {kind.name} is registered twice")
        self._kinds[kind.name] = kind()
        return kind

    def kind(self, name: str) -> FormatKind:
        """Return the format with a name.

        Raises:
            ValueError: there is no such format.
        """
        found = self._all().get(name)
        if found is None:
            raise ValueError(f"'{name}' is not a format; expected one of {', '.join(self.names())}")
        return found

    def names(self, *, in_events: bool = False) -> tuple[str, ...]:
        """Return the names of all formats, or of those that the body of one event may have; JSON, the default, first.

        Args:
            in_events: leave out formats of files only.
        """
        found = [name for name, kind in self._all().items() if kind.in_events or not in_events]
        return tuple(sorted(found, key=lambda name: (name != JSON.kind, name)))

    def _all(self) -> dict[str, FormatKind]:
        import_modules(self._package)
        load_group(self._group)
        return self._kinds


FORMATS = Formats(__package__, "tidegate.formats")


@lru_cache(maxsize=64)
def decoder_of(wanted: Wanted, format_: Format = JSON) -> BodyDecoder:
    """Return the decoder of a format, the same one for the lifetime of the worker.

    The decoder learns how producers spell names.
    """
    return FORMATS.kind(format_.kind).decoder(wanted, format_)
