"""Exported names: every layer has some, they can be imported, are documented, and have no underscore."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest

from scripts.python_api import MODULES
from tests.source import modules

# One folder deep: subfolders are internal to their layer. `cli` and `pyspark_tidegate` are found by their commands and
# by Spark.
LAYERS = sorted({module.package for module in modules()} - {"", "cli", "pyspark_tidegate"})
EXPORTING = sorted(module.dotted for module in modules() if "\n__all__" in module.text)


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_says_what_it_exports(layer: str) -> None:
    package = importlib.import_module(f"tidegate.{layer}")
    assert package.__doc__
    assert package.__all__


@pytest.mark.parametrize("name", EXPORTING)
def test_exported_names_exist_once_and_are_public(name: str) -> None:
    module = importlib.import_module(name)
    exported = module.__all__
    assert len(exported) == len(set(exported))
    assert not [one for one in exported if not hasattr(module, one)]
    assert not [one for one in exported if one.startswith("_") and one != "__version__"]


@pytest.mark.parametrize("name", EXPORTING)
def test_exported_classes_and_functions_are_documented(name: str) -> None:
    module = importlib.import_module(name)
    found = {one: getattr(module, one) for one in module.__all__}
    assert not [one for one, value in found.items() if is_described_here(value) and not documentation(value)]


def documentation(value: object) -> str | None:
    """Return a docstring that somebody wrote, not one that a base class has or a dataclass makes."""
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    return None if text is None or text.startswith(f"{getattr(value, '__name__', '')}(") else text


def is_described_here(value: object) -> bool:
    """Return whether a docstring of its own is to be expected: not of aliases, constants, and classes of others."""
    described = inspect.isclass(value) or inspect.isfunction(value)
    return described and value.__module__.partition(".")[0] == "tidegate"


def test_whatever_other_layers_use_of_a_python_api_is_exported_there_or_internal() -> None:
    """A name without an underscore in a public module is exported, so that the reference misses nothing."""
    missing = [
        f"{module.__name__}.{name}"
        for module in map(importlib.import_module, MODULES)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name not in module.__all__
        and is_defined_in(module, value)
        and name not in NOT_FOR_USERS
    ]
    assert not missing


NOT_FOR_USERS = {"Handler"}


def is_defined_in(module: ModuleType, value: object) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module.__name__
