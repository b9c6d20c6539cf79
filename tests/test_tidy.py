"""Size, names and words: the rules of the house that a machine can check."""

import ast
import re
from pathlib import Path

import pytest

from scripts.structure import constructor_parameters
from tests.source import ROOT, Module, modules

MOST_LINES = 600
# An algorithm may be one long story; past this there is a second noun in it.
MOST_LINES_OF_A_FUNCTION = 70

# A constructor with more takes a settings object.
MOST_PARAMETERS = 8

# Phrases that read as translated, with what they usually stand for.
TRANSLATED = {
    r"\bof ours\b": "Tidegate's",
    r"\bis told\b": "is called with, is given, is reported",
    r"\blets? out\b": "emits",
    r"\bin one go\b": "in a single step",
    r"\bfor who (?!,)\w+s\b|\bwho asks\b": "for callers that",
    r"\bis no more (?=are|is|and|$)|\bone no more\b": "no longer exists",
    r"^ *\"\"\"Nothing yet": "Return an empty state",
    r"\b(?:is|are) away\b": "is unavailable",
    r"\bbroken off\b|\bbreaks? (?:it|them|a \w+) off\b": "interrupted",
    r"\bonce all the same\b": "only once",
    r"\bits being there\b": "whether it exists",
}

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


@pytest.mark.parametrize("module", modules(), ids=label)
def test_a_constructor_takes_few_parameters(module: Module) -> None:
    long = {
        node.name: constructor_parameters(node)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and constructor_parameters(node) > MOST_PARAMETERS
    }
    assert not long


@pytest.mark.parametrize("module", modules(), ids=label)
def test_texts_are_not_compared_by_identity(module: Module) -> None:
    """States are enums; `is` on a text is true or not as the interpreter likes."""
    found = [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Compare) and any(isinstance(one, ast.Is | ast.IsNot) for one in node.ops)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Constant) and isinstance(side.value, str)
    ]
    assert not found


@pytest.mark.parametrize("module", modules(), ids=label)
def test_docstrings_are_google_s(module: Module) -> None:
    """A summary on the first line, and sections that are indented below their names."""
    wrong = [
        f"{getattr(node, 'name', 'module')}: {line.strip()}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for line in misshapen(ast.get_docstring(node) or "")
    ]
    assert not wrong


def misshapen(docstring: str) -> list[str]:
    """Return the lines of a docstring that are not in Google's form."""
    lines = docstring.splitlines()
    wrong = [line for line in lines if re.match(r":(param|return|returns|raises|type)\b", line.strip())]
    wrong += [line for line in lines if re.match(r"(Arguments|Parameters|Return|Yield|Throws):$", line)]
    for line, after in zip(lines, [*lines[1:], ""], strict=False):
        if re.match(r"(Args|Returns|Yields|Raises|Attributes):$", line) and not after.startswith("    "):
            wrong.append(line)
    if lines and re.match(r"(Args|Returns|Yields|Raises):$", lines[0]) and len(lines) > 1 and not lines[1].strip():
        wrong.append(lines[0])
    return wrong


def test_prose_is_not_translated() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}, better: {better}"
        for path in prose()
        for text in [path.read_text(encoding="utf-8")]
        for phrase, better in TRANSLATED.items()
        for match in re.finditer(phrase, text, re.MULTILINE)
    ]
    assert not found, "\n".join(found)


def prose() -> list[Path]:
    sources = [path for folder in ("src", "tests", "scripts", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile", ROOT / "scripts" / "need"]
    return [path for path in sorted([*sources, *documents]) if path.name != "test_tidy.py"]
