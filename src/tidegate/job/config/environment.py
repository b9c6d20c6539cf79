"""Values from the environment: ``${NAME}`` in a job file, so that it can be committed without its secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def filled(content: Any, without: Callable[[str], str]) -> Any:
    """Return the content of a file with every reference filled in.

    Args:
        without: returns the value for a variable that is not set, by its name; it may raise.
    """

    def value_of(found: re.Match[str]) -> str:
        value = os.environ.get(found[1])
        return without(found[1]) if value is None else value

    if isinstance(content, str):
        return _REFERENCE.sub(value_of, content)
    if isinstance(content, Mapping):
        return {key: filled(value, without) for key, value in content.items()}
    if isinstance(content, list):
        return [filled(value, without) for value in content]
    return content


def kept(content: Any) -> Any:
    """Return the content of a file, with references filled in only where the variable is set."""
    return filled(content, reference_to)


def reference_to(name: str) -> str:
    """Return the reference by which a file names a variable."""
    return f"${{{name}}}"


def not_set(content: Any) -> Iterator[str]:
    """Yield the names of unset variables that a file's content refers to, each once."""
    found: dict[str, None] = {}

    def note(name: str) -> str:
        found[name] = None
        return ""

    filled(content, note)
    yield from found
