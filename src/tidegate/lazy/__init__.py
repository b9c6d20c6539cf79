"""Packages whose exported names are imported when they are first used.

A package that exports what its modules define imports all of them, even for a caller that wants one. Spark, for
example, imports the data source in a process of its own for every plan, and the source needs neither a job nor most of
the engine. Such a package lists its imports below ``if TYPE_CHECKING:``, for readers and type checkers, and passes the
same names to `lazy_names` (PEP 562).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its name.
        modules: the names that it exports, by the module that defines them.
    """
    homes = {name: module for module, names in modules.items() for name in names}
    space = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        space[name] = getattr(importlib.import_module(homes[name]), name)
        return space[name]

    def names() -> list[str]:
        return sorted({*space, *homes})

    return find, names
