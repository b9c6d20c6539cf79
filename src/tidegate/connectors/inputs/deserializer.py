"""Deserializers: functions in Python that read the rows of bodies in a format of one's own; messages of Protobuf."""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import Field

from tidegate.connectors.inputs.protobuf import SUFFIXES, ProtobufDeserializer, protobuf_deserializer
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.section import Public, TextPattern


@functools.cache
def load_module(name: str, source: bytes | None) -> ModuleType:
    """Return a module, imported once per process; a module from text gets a name that no other text has."""
    if source is None:
        return importlib.import_module(name)
    path = Path(name)
    module = ModuleType(f"_tidegate_{path.stem}_{hashlib.sha256(source).hexdigest()[:16]}")
    module.__file__ = name
    folder = str(path.parent)
    if folder not in sys.path and path.parent.is_dir():
        # At the end, so that a module in the function's folder never hides an installed one.
        sys.path.append(folder)
    code = compile(source, name, "exec")
    sys.modules[module.__name__] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


CUSTOM = "custom"
PROTOBUF = "protobuf"
DeserializerName = Annotated[
    Public | None,
    TextPattern(r"^.+:[A-Za-z_][\w.]*$", "FILE.py:NAME, MODULE:NAME, or FILE:MESSAGE for the format protobuf"),
    Field(
        description="for the format custom: `FILE.py:NAME` (relative to the job file) or `MODULE:NAME`, a function "
        "that takes the bytes of a body and returns its rows, or a class with such a method `deserialize`; for the "
        "format protobuf: `FILE:MESSAGE`, a .proto file or a descriptor set (.desc, .pb, .binpb, .protoset)",
    ),
]
Prefix = Annotated[
    Literal["none", "base128", "fixed32"],
    Field(description="the length before each message of Protobuf; without one, a body or file is one message"),
]


@dataclass(frozen=True)
class PythonDeserializer:
    """A deserializer by its name, with the text of its module; it can be pickled and hashed."""

    module: str
    name: str
    source: bytes | None = field(repr=False)

    def __call__(self, body: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the rows of a body. Raises whatever the function raises."""
        return self.target(body)

    @cached_property
    def target(self) -> Callable[[bytes], Iterable[Mapping[str, Any]]]:
        """Return the function, imported on first use."""
        found = getattr(load_module(self.module, self.source), self.name)
        function: Callable[[bytes], Iterable[Mapping[str, Any]]]
        function = found().deserialize if isinstance(found, type) else found
        return function

    def __str__(self) -> str:
        return f"deserializer {self.module}:{self.name}"

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self.module, "name": self.name, "source": self.source}


def problem_of(
    format_: str, deserializer: str | None, prefix: str = "none", *, has_registry: bool = False
) -> str | None:
    """Return what is wrong with the settings of a format and its deserializer; None if they fit.

    `has_registry` is whether bodies name their schema in a registry, and which of its messages they are.
    """
    if format_ == PROTOBUF and has_registry:
        wrong = "deserializer" if deserializer is not None else "message_prefix" if prefix != "none" else None
        return None if wrong is None else f"'{wrong}' is not for bodies whose schema is in a registry"
    if format_ not in (CUSTOM, PROTOBUF):
        wrong = "deserializer" if deserializer is not None else "message_prefix" if prefix != "none" else None
        return None if wrong is None else f"'{wrong}' is not for format = \"{format_}\""
    if deserializer is None:
        return f"format = \"{format_}\" needs a 'deserializer'"
    is_message = deserializer.rpartition(":")[0].endswith(SUFFIXES)
    if format_ == PROTOBUF and not is_message:
        return f"format = \"protobuf\" needs a 'deserializer' FILE:MESSAGE, a file {', '.join(SUFFIXES)}"
    if format_ == CUSTOM and (is_message or prefix != "none"):
        return 'messages of Protobuf need format = "protobuf"'
    return None


@lru_cache(maxsize=64)
def deserializer_of(written: str | None, prefix: str = "none") -> PythonDeserializer | ProtobufDeserializer | None:
    """Return the deserializer that a setting names; None if it names none.

    Raises:
        InputError: it cannot be imported, or is not a function; see `protobuf_deserializer` too.
    """
    if written is None:
        return None
    module, _, name = written.rpartition(":")
    if module.endswith(SUFFIXES):
        return protobuf_deserializer(module, name, prefix)
    try:
        source = Path(module).read_bytes() if module.endswith(".py") else None
        found = PythonDeserializer(module, name, source)
        target = found.target
    except OSError as error:
        raise InputError(f"deserializer {written}: cannot read {module}: {error.strerror}") from error
    except Exception as error:  # whatever the module raises
        raise InputError(f"deserializer {written} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(target):
        raise InputError(f"deserializer {written} is not a function")
    return found
