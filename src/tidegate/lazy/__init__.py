"""Packages whose exported names are imported when they are first used.

A package that exports what its modules define imports all of them, even for a caller that wants one. Spark, for
example, imports the data source in a process of its own for every plan, and the source needs neither a job nor most of
the engine. Such a package lists its imports below ``if TYPE_CHECKING:``, where type checkers and readers look for them,
and `lazy_names` carries them out one by one (PEP 562).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package that is being imported."""
    module = sys.modules[package]
    space = vars(module)

    @cache
    def homes() -> dict[str, str]:
        """Return the modules of the names, which the package imports for type checkers."""
        blocks = [node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.If)]
        imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        return {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names}

    def find(name: str) -> Any:
        # Dunder names are looked up on every module, as by `copy`, `inspect` and the import system itself.
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        space[name] = getattr(importlib.import_module(homes()[name]), name)
        return space[name]

    def names() -> list[str]:
        return sorted({*space, *homes()})

    return find, names
