"""The project's own source as data, for the tests that hold it to its rules."""

import ast
import gc
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from scripts.structure import statements, tree_of

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"


@dataclass(frozen=True)
class Module:
    """One file of the source."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        return ".".join(self.path.relative_to(SOURCE).with_suffix("").parts)

    @property
    def dotted(self) -> str:
        """Return the name by which other modules import this one."""
        return self.name.removesuffix(".__init__")

    @property
    def folder(self) -> str:
        """Return `sql/plan` for tidegate/sql/plan/*.py, "" for tidegate/*.py, or `pyspark_tidegate`."""
        parts = self.path.relative_to(SOURCE).parts[:-1]
        return "/".join(parts[1:] if parts[0] == "tidegate" else parts)

    @property
    def package(self) -> str:
        """Return the first part of the folder: `job` for all of tidegate.job."""
        return self.folder.partition("/")[0]

    @cached_property
    def tree(self) -> ast.Module:
        found = tree_of(self.path)
        # It stays, and looking for garbage in all of them again and again takes four times as long as parsing them.
        gc.freeze()
        return found

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """Return all statements of the tree, in no particular order."""
        return statements(self.tree)


@cache
def modules() -> tuple[Module, ...]:
    return tuple(Module(path, path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py")))


def files(folder: Path, *suffixes: str) -> Iterator[Path]:
    """Yield the files below a folder with one of the suffixes, without those that npm or Python put there."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - {"node_modules", "__pycache__"})
        yield from (Path(place, name) for name in sorted(names) if name.endswith(suffixes))


@cache
def _by_dotted_name() -> Mapping[str, Module]:
    return {module.dotted: module for module in modules()}


def imports(module: Module) -> Iterator[tuple[str, int]]:
    """Yield the dotted names that a module imports, anywhere in it, with their lines; relative ones made absolute."""
    here = module.path.relative_to(SOURCE).with_suffix("").parts
    for node in module.statements:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            # One dot is the module's own package, whether the module is its __init__ or not.
            base = list(here[: len(here) - node.level]) if node.level else []
            origin = ".".join([*base, node.module] if node.module else base)
            for alias in node.names:
                yield f"{origin}.{alias.name}", node.lineno


@cache
def module_imports(module: Module) -> tuple[Module, ...]:
    """Return this project's modules that a module imports, for types only or not, without itself."""
    known = _by_dotted_name()
    found = []
    for name, _ in imports(module):
        other = known.get(name) or known.get(name.rpartition(".")[0])
        if other is not None and other is not module and other not in found:
            found.append(other)
    return tuple(found)


@cache
def runtime_imports(module: Module) -> tuple[Module, ...]:
    """Return this project's modules that a module imports when it runs, and not for types alone."""
    for_types = {
        line
        for node in module.statements
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    known = _by_dotted_name()
    found = [
        known.get(name) or known.get(name.rpartition(".")[0]) for name, line in imports(module) if line not in for_types
    ]
    return tuple(other for other in found if other is not None and other is not module)


@cache
def folder_imports() -> Mapping[str, set[str]]:
    """Return for each folder the other folders that its modules import."""
    graph: dict[str, set[str]] = {module.folder: set() for module in modules()}
    for module in modules():
        graph[module.folder] |= {other.folder for other in module_imports(module)} - {module.folder}
    return graph


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return one circle of the graph, sorted, or nothing if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [sorted(set(error.args[1]))]
    return []
