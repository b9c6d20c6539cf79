"""The project's own source as data, for the tests that hold it to its rules."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"


@dataclass(frozen=True)
class Module:
    """One file of the source; `name` is dotted, without `tidegate`."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        return ".".join(self.path.relative_to(SOURCE).with_suffix("").parts)

    @property
    def package(self) -> str:
        """`amqp` for all of tidegate.amqp, an empty name for tidegate's own two files, or pyspark_tidegate."""
        parts = self.path.relative_to(SOURCE).parts
        return parts[0] if parts[0] != "tidegate" else (parts[1] if len(parts) > 2 else "")

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


@cache
def modules() -> tuple[Module, ...]:
    return tuple(Module(path, path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py")))


def imports(module: Module) -> Iterator[tuple[str, int]]:
    """The dotted names that a module imports, anywhere in it, with their lines; relative ones made absolute."""
    here = module.path.relative_to(SOURCE).with_suffix("").parts
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            # One dot is the module's own package, whether the module is its __init__ or not.
            base = list(here[: len(here) - node.level]) if node.level else []
            origin = ".".join([*base, node.module] if node.module else base)
            for alias in node.names:
                yield f"{origin}.{alias.name}", node.lineno
