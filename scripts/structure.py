"""Print how the source is built: modules per folder, import cycles, and the largest classes and constructors.

python -m scripts.structure              this clone
python -m scripts.structure FOLDER       another one, by its root
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_SHOWN = 5


def main() -> None:
    """Print the figures of a clone."""
    source = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT) / "src"
    trees = trees_of(source)
    folders = Counter(str(path.parent.relative_to(source)) for path in trees)
    layers = Counter(path.relative_to(source).parts[:2] for path in trees if len(path.relative_to(source).parts) > 2)
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in trees)
    print(f"modules: {len(trees)} in {len(folders)} folders, {lines:,} lines")
    _rank("modules in a folder", folders.items())
    _rank("modules in a layer, with its subfolders", (("/".join(layer), count) for layer, count in layers.items()))
    modules = _imports(source, trees)
    by_folder: dict[str, set[str]] = {}
    by_layer: dict[str, set[str]] = {}
    for name, targets in modules.items():
        by_folder.setdefault(_folder(name, trees, source), set()).update(
            _folder(other, trees, source) for other in targets
        )
        by_layer.setdefault(_layer(name), set()).update(_layer(other) for other in targets)
    for what, graph in (("modules", modules), ("folders", by_folder), ("layers", by_layer)):
        circles = list(circles_of({name: targets - {name} for name, targets in graph.items()}))
        print(f"import cycles between {what}: {len(circles)}")
        for circle in circles[:_SHOWN]:
            print(f"  {' ↔ '.join(circle[:6])}{' …' if len(circle) > 6 else ''}")
    classes = [
        (path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    _rank("lines in a class", ((_name(path, node), _length(node)) for path, node in classes))
    _rank("attributes of an object", ((_name(path, node), len(_attributes(node))) for path, node in classes))
    _rank("methods of a class", ((_name(path, node), len(list(_methods(node)))) for path, node in classes))
    _rank("parameters of a constructor", ((_name(path, node), constructor_parameters(node)) for path, node in classes))
    functions = [
        (path, node)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    _rank("lines in a function", ((_name(path, node), _length(node)) for path, node in functions))
    _rank("lines in a module", ((path.stem, len(path.read_text("utf-8").splitlines())) for path in trees))
    names = Counter(node.name for _, node in functions if not node.name.startswith("__"))
    _rank("definitions of a name", names.items())


def package_map() -> str:
    """Return a table of the packages, the importing ones above the imported ones, with what each says it is for."""
    source = ROOT / "src"
    trees = trees_of(source)
    layers: dict[str, set[str]] = {}
    folders: dict[str, set[str]] = {}
    for name, targets in sorted(_imports(source, trees).items()):
        folder, layer = _folder(name, trees, source), _layer(name)
        imported = {_folder(other, trees, source) for other in targets} - {folder}
        folders.setdefault(folder, set()).update(imported)
        layers.setdefault(_layer(folder), set()).update({_layer(other) for other in imported} - {layer})
    order = list(TopologicalSorter({name: sorted(layers[name]) for name in sorted(layers)}).static_order())[::-1]
    inner = list(TopologicalSorter({name: sorted(folders[name]) for name in sorted(folders)}).static_order())[::-1]
    rows = []
    for layer in order:
        if layer in ("tidegate", "pyspark_tidegate"):
            continue
        for folder in [layer, *(name for name in inner if name.startswith(f"{layer}.") and name != layer)]:
            path = source.joinpath(*folder.split("."), "__init__.py")
            rows.append(f"| `{folder.removeprefix('tidegate.').replace('.', '/')}` | {_first_sentence(trees[path])} |")
    return "\n".join(["| package | |", "|---|---|", *rows]) + "\n"


def statements(tree: ast.AST) -> list[ast.stmt]:
    """Return all statements of a tree, among them definitions and imports, without looking into expressions."""
    found: list[ast.stmt] = []
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(node, field, ())
            if isinstance(inner, list):  # a lambda's body is an expression
                found += inner
                waiting += inner
        # They hold statements, and are none themselves.
        waiting += (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))
    return found


def _first_sentence(tree: ast.Module) -> str:
    text = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", text, maxsplit=1)[0].rstrip(".").replace("|", "\\|")


def constructor_parameters(node: ast.ClassDef) -> int:
    """Return how many arguments a class's own constructor takes; 0 where it has none, or a dataclass writes it."""
    for method in _methods(node):
        if method.name == "__init__":
            given = method.args
            return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
    return 0


def circles_of(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield the strongly connected components of more than one node (Tarjan), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph.get(name, ()):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            circle = []
            while True:
                circle.append(stack.pop())
                if circle[-1] == name:
                    break
            if len(circle) > 1:
                found.append(sorted(circle))

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in index:
            visit(name)
    yield from sorted(found, key=len, reverse=True)


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def trees_of(source: Path) -> Mapping[Path, ast.Module]:
    """Return the syntax tree of each module below a folder, in the order of their paths."""
    return {path: tree_of(path) for path in sorted(source.rglob("*.py"))}


def _imports(source: Path, trees: Mapping[Path, ast.Module]) -> dict[str, set[str]]:
    """Return for each module the modules of this project that it imports, for types only or not."""
    known = {_dotted(path, source) for path in trees}
    graph: dict[str, set[str]] = {}
    for path, tree in trees.items():
        here = path.relative_to(source).with_suffix("").parts
        targets = set()
        for node in statements(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = list(here[: len(here) - node.level]) if node.level else []
                origin = ".".join([*base, node.module] if node.module else base)
                names = [f"{origin}.{alias.name}" for alias in node.names]
            for name in names:
                target = name if name in known else name.rpartition(".")[0]
                if target in known:
                    targets.add(target)
        graph[_dotted(path, source)] = targets - {_dotted(path, source)}
    return graph


def _dotted(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def _folder(name: str, trees: Mapping[Path, ast.Module], source: Path) -> str:
    package = source.joinpath(*name.split("."), "__init__.py")
    return name if package in trees else name.rpartition(".")[0]


def _layer(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))


def _attributes(node: ast.ClassDef) -> set[str]:
    """Return what the methods of a class assign to `self`, and the fields it declares."""
    declared = {
        part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    assigned = {
        part.attr
        for method in _methods(node)
        for part in ast.walk(method)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name)
        and part.value.id == "self"
    }
    return declared | assigned


def _length(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _name(path: Path, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return f"{path.parent.name}/{path.stem}.{node.name}"


def _rank(title: str, figures: Iterable[tuple[str, int]]) -> None:
    top = sorted(figures, key=lambda figure: -figure[1])[:_SHOWN]
    print(f"most {title}: {', '.join(f'{name} {count}' for name, count in top)}")


if __name__ == "__main__":
    main()
