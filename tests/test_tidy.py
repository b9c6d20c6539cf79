"""Size, names and words: the rules of the house that a machine can check."""

import ast
import re
from functools import cache
from pathlib import Path

from scripts.structure import constructor_parameters
from tests.source import ROOT, files, modules

MOST_LINES = 900
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
    r"\bit is looked\b|\bis looked at by itself\b": "is checked",
    r"\bnobody is there\b": "there is no terminal",
    r"\bmay also stand in\b|\b[Ss]tand in the next\b": "can also be set in; load the next",
    r"\bsomebody else's\b": "third-party, another user's",
    r"\b[Ww]hereabouts\b": "location",
}

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b|type: ?ignore|# ?noqa|pytest\.(mark\.)?(skip|xfail)")


def test_a_module_is_one_noun() -> None:
    lengths = {module.name: len(module.text.splitlines()) for module in modules()}
    assert not {name: length for name, length in lengths.items() if length > MOST_LINES}


def test_a_function_fits_a_screen() -> None:
    lengths = {
        f"{module.name}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.body[0].lineno + 1
        for module in modules()
        for node in module.statements
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not {name: length for name, length in lengths.items() if length > MOST_LINES_OF_A_FUNCTION}


def test_every_exported_name_is_documented() -> None:
    """Public classes and functions of a package's `__all__`, where they are defined."""
    undocumented = [
        f"{module.name}.{node.name}"
        for module in modules()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name in exported(module.package)
        and not ast.get_docstring(node)
    ]
    assert not undocumented


@cache
def exported(package: str) -> set[str]:
    """Return the names in `__all__` of a package and of its subpackages."""
    return {
        element.value
        for module in modules()
        if module.package == package and module.path.name == "__init__.py"
        for node in module.tree.body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
        for element in getattr(node.value, "elts", [])
        if isinstance(element, ast.Constant)
    }


def test_nothing_is_left_unfinished_or_silenced() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("src", "tests", "scripts", "benchmarks")
        for path in files(ROOT / folder, ".py", ".js")
        if path.name != "test_tidy.py"
        for text in [path.read_text(encoding="utf-8")]
        if UNFINISHED.search(text)
        for number, line in enumerate(text.splitlines(), start=1)
        if UNFINISHED.search(line)
    ]
    assert not found


def test_tests_mirror_the_source() -> None:
    """tests/<layer>/… for every layer that has code."""
    layers = {module.package for module in modules() if module.package and module.text.strip()} - {"pyspark_tidegate"}
    assert not [layer for layer in layers if not list((ROOT / "tests" / layer).rglob("test_*.py"))]


def test_a_constructor_takes_few_parameters() -> None:
    counts = {
        f"{module.name}.{node.name}": constructor_parameters(node)
        for module in modules()
        for node in module.statements
        if isinstance(node, ast.ClassDef)
    }
    assert not {name: count for name, count in counts.items() if count > MOST_PARAMETERS}


def test_docstrings_are_google_s() -> None:
    """No sections of other conventions, which ruff takes for text, and each section indented below its name."""
    wrong = [
        f"{module.name}.{getattr(node, 'name', '')}: {line.strip()}"
        for module in modules()
        for node in (module.tree, *module.statements)
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
    # Nearly no text has any. Looked for without their anchors they have a first letter, which is many times as quick.
    likely = re.compile("|".join(TRANSLATED).replace(r"\b", ""), re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}, better: {better}"
        for path in prose()
        for text in [path.read_text(encoding="utf-8")]
        if likely.search(text)
        for phrase, better in TRANSLATED.items()
        for match in re.finditer(phrase, text, re.MULTILINE)
    ]
    assert not found, "\n".join(found)


def prose() -> list[Path]:
    sources = [path for folder in ("src", "tests", "scripts", "benchmarks") for path in files(ROOT / folder, ".py")]
    scripts = [ROOT / "Makefile", ROOT / "scripts" / "need", ROOT / "scripts" / "fill"]
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *scripts]
    return [path for path in sorted([*sources, *documents]) if path.name != "test_tidy.py"]
