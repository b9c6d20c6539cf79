"""What a registry consists of: Tidegate's own modules, and the entry points of other installed packages.

A distribution adds an input, say, by naming the module or class that defines it below an entry point group in its
``pyproject.toml``::

    [project.entry-points."tidegate.inputs"]
    mqtt = "tidegate_mqtt.source"

An entry point is called what a job file calls the thing. The groups are ``tidegate.inputs``, ``tidegate.outputs``,
``tidegate.formats``, ``tidegate.functions`` (scalar functions), ``tidegate.aggregates``, ``tidegate.analytics`` and
``tidegate.windows``. Entry points: https://packaging.python.org/specifications/entry-points/
"""

from __future__ import annotations

import importlib
import inspect
import logging
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

__all__ = ["classes_of", "import_modules", "load_group", "why_missing"]

_logger = logging.getLogger(__name__)


@cache
def import_modules(package: str) -> None:
    """Import every module below a package, so that what they define registers itself."""
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


@cache
def load_group(group: str) -> tuple[Any, ...]:
    """Return what the entry points of a group name, in the order of their names.

    One that cannot be loaded is left out with a warning: it must not keep jobs from running that do without it.
    """
    loaded = (_loaded(entry) for entry in sorted(entry_points(group=group), key=lambda entry: entry.name))
    return tuple(thing for thing, problem in loaded if problem is None)


def why_missing(group: str, name: str) -> str | None:
    """Return why an installed entry point is not there to be used; None if there is none of this name, or it is."""
    return next((problem for _, problem in map(_loaded, entry_points(group=group, name=name)) if problem), None)


def classes_of(package: ModuleType, group: str) -> Iterator[type]:
    """Yield every public class that a package's modules define and that leaves nothing abstract, then the group's.

    Modules come by name, and classes in the order of their definition.
    """
    for found in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        yield from _classes_in(importlib.import_module(f"{package.__name__}.{found.name}"))
    for thing in load_group(group):
        yield from _classes_in(thing) if inspect.ismodule(thing) else [thing]


def _classes_in(module: ModuleType) -> Iterator[type]:
    for name, member in vars(module).items():
        defined = inspect.isclass(member) and member.__module__ == module.__name__
        if defined and not name.startswith("_") and not inspect.isabstract(member):
            yield member


@cache
def _loaded(entry: EntryPoint) -> tuple[Any, str | None]:
    """Return what an entry point names, or why it cannot be loaded."""
    try:
        return entry.load(), None
    except Exception as error:  # a third-party module may raise anything
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
        problem = f"the installed package {package} cannot be loaded: {type(error).__name__}: {error}"
        _logger.warning("%s '%s' is not available: %s; upgrade or uninstall it", entry.group, entry.name, problem)
        return None, problem
