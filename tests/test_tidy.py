"""Size, names and words: the rules of the house that a machine can check."""

import ast
import re

import pytest

from tests.source import ROOT, Module, modules

MOST_LINES = 600
# An algorithm may be one long story; past this there is a second noun in it.
MOST_LINES_OF_A_FUNCTION = 70

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b|type: ?ignore|# ?noqa|pytest\.(mark\.)?(skip|xfail)")


def label(module: Module) -> str:
    return module.name


@pytest.mark.parametrize("module", modules(), ids=label)
def test_a_module_is_one_noun(module: Module) -> None:
    assert len(module.text.splitlines()) <= MOST_LINES


@pytest.mark.parametrize("module", modules(), ids=label)
def test_a_function_fits_a_screen(module: Module) -> None:
    functions = [node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {
        f"{node.name}, line {node.lineno}": length
        for node in functions
        if (length := (node.end_lineno or node.lineno) - node.body[0].lineno + 1) > MOST_LINES_OF_A_FUNCTION
    }
    assert not long


@pytest.mark.parametrize("module", modules(), ids=label)
def test_a_module_says_what_it_is_for(module: Module) -> None:
    if module.text.strip():
        assert ast.get_docstring(module.tree)


@pytest.mark.parametrize("module", modules(), ids=label)
def test_every_exported_name_is_documented(module: Module) -> None:
    """Public classes and functions of a package's `__all__`, where they are defined."""
    if module.path.name != "__init__.py" or "__all__" not in module.text:
        return
    exported = {
        element.value
        for node in module.tree.body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
        for element in getattr(node.value, "elts", [])
        if isinstance(element, ast.Constant)
    }
    undocumented = [
        f"{other.name}.{node.name}"
        for other in modules()
        if other.package == module.package
        for node in other.tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name in exported
        and not ast.get_docstring(node)
    ]
    assert not undocumented


def test_nothing_is_left_unfinished_or_silenced() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("src", "tests", "scripts", "benchmarks")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".py", ".js") and "node_modules" not in path.parts and path.name != "test_tidy.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if UNFINISHED.search(line)
    ]
    assert not found


def test_tests_mirror_the_source() -> None:
    """tests/<layer>/… for every layer that has code."""
    layers = {module.package for module in modules() if module.package and module.text.strip()} - {"pyspark_tidegate"}
    assert not [layer for layer in layers if not list((ROOT / "tests" / layer).glob("test_*.py"))]
