"""Lazy packages: they say the same to Python as to type checkers, and Spark's look-up of the source imports little."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source import Module, modules

LAZY = [module for module in modules() if "lazy_names(" in module.text and module.package != "lazy"]
# What a plan of the source needs nothing of: it reads no query, runs no job, decodes no event, and asks a hub.
HEAVY = (
    "tidegate.engine.decoding.decoded",
    "tidegate.engine.program",
    "tidegate.engine.functions",
    "tidegate.sql.compiler",
    "tidegate.hub.namespace",
    "tidegate.job.config",
    "tidegate.connectors.outputs",
    "tidegate.job.prepare",
    "tidegate.job.run",
    "tidegate.kafka",
    "tidegate.log",
    "tidegate.store",
)
LOADED = """
import sys
import {name}
packages = ("tidegate", "pydantic", "shapely", "regex", "pyspark", "numpy", "pyarrow")
print(*[name for name in sys.modules if name.partition(".")[0] in packages])
"""


def imported(module: Module) -> dict[str, set[str]]:
    """Return what a package imports for type checkers: names by module."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "tidegate.lazy"):
            found.setdefault(str(node.module), set()).update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("module", LAZY, ids=lambda module: module.dotted)
def test_a_package_gives_the_names_that_type_checkers_see(module: Module) -> None:
    package = importlib.import_module(module.dotted)
    assert set(dir(package)) >= set(package.__all__)
    homes = {name: home for home, names in imported(module).items() for name in names}
    for name in package.__all__:
        home = homes.get(name, module.dotted)
        assert getattr(package, name) is getattr(importlib.import_module(home), name)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'tidegate\.engine' has no attribute 'Programme'"):
        _ = importlib.import_module("tidegate.engine").Programme


def loaded_by(name: str) -> set[str]:
    code = LOADED.format(name=name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
def test_a_look_up_of_the_source_imports_what_pyspark_does() -> None:
    found = loaded_by("pyspark_tidegate")
    assert "tidegate.spark.source" in found
    assert not found & {"numpy", "pyarrow", "tidegate.client", "tidegate.engine"}


@pytest.mark.slow
def test_a_reader_of_the_source_imports_neither_the_engine_nor_a_job() -> None:
    found = loaded_by("tidegate.spark.source_reader")
    assert "tidegate.client" in found
    assert not {name for name in found if name.startswith(HEAVY)}
    assert not found & {"pydantic", "shapely", "regex"}


def test_the_package_for_spark_imports_nothing_before_it_is_used() -> None:
    # An installed Tidegate names the Python of executors as the interpreter starts.
    found = loaded_by("tidegate.spark") - loaded_by("tidegate")
    assert found == {"tidegate.lazy", "tidegate.spark"}


def test_an_older_pyspark_is_named_with_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.5.7"\n')
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from tidegate.spark import sql"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("tidegate.spark.PySparkTooOld: PySpark 3.5.7 is installed, and Tidegate needs 4.0 to 4.3")
