"""Finding the classes of a package: what a language consists of is what its modules define."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType


def classes_in(package: ModuleType) -> Iterator[type]:
    """Yield every public class that a package's modules define and that leaves nothing abstract.

    Modules come by name, and classes in the order of their definition.
    """
    for found in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        module = importlib.import_module(f"{package.__name__}.{found.name}")
        for name, member in vars(module).items():
            defined = inspect.isclass(member) and member.__module__ == module.__name__
            if defined and not name.startswith("_") and not inspect.isabstract(member):
                yield member
