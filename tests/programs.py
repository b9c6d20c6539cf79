"""Programs that are not Python and that tests start: databases, brokers, Java, Node.js, a browser.

`program` is how a test finds one, so a test needs programs if its code, or that of a fixture that it asks for, reaches
`program`. tests/conftest.py marks such tests; `program` and `watch` refuse a program to a test that has no mark.
"""

from __future__ import annotations

import glob
import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

# What `make check` has to do without, by the name of the file that is run.
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_JAVA = ("java", "mvn", "spark-class", "spark-submit")
FOREIGN = frozenset((*_BROWSERS, *_JAVA, "initdb", "kcat", "mariadbd", "node", "npm", "pg_ctl", "redis-server"))
# Spark starts the Java of this folder in a test without a mark: it says what is wrong, and ends.
NO_JAVA = Path(__file__).parent / "no_java"

_refusing = [False]


def program(name: str, *others: str, places: Sequence[str] = (), needed: str = "") -> str:
    """Return the path of a program.

    Args:
        name: what it is called.
        others: what else it may be called.
        places: patterns of folders that are looked at after the path.
        needed: the word by which `scripts/need` knows it, if that is another one.
    """
    assert not _refusing[0], f"a test that starts {name} needs a mark: see tests/programs.py"
    for called in (name, *others):
        if found := shutil.which(called):
            return found
    elsewhere = [path for place in places for path in sorted(glob.glob(f"{place}/{name}"))]
    assert elsewhere, f"{name} is needed for this test: `scripts/need {needed or name}` installs it"
    return elsewhere[-1]


def node(folder: Path, package: str) -> str:
    """Return Node.js, with the packages of a folder installed, of which one is named."""
    found = program("node")
    if not (folder / "node_modules" / package).exists():
        subprocess.run([program("npm"), "ci", "--no-audit", "--no-fund"], cwd=folder, check=True, capture_output=True)
    return found


def refuse(refusing: bool) -> None:
    """Refuse programs to the test that begins, or allow them."""
    if refusing != _refusing[0]:
        _refusing[0] = refusing
        if refusing:
            _java_home.append(os.environ.get("JAVA_HOME"))
            os.environ["JAVA_HOME"] = str(NO_JAVA)
        elif (before := _java_home.pop()) is None:
            os.environ.pop("JAVA_HOME", None)
        else:
            os.environ["JAVA_HOME"] = before


_java_home: list[str | None] = []


def watch() -> None:
    """Refuse programs that a test starts without asking `program` where they are."""

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and _refusing[0]:
            path = Path(os.fsdecode(arguments[0] or ""))
            is_foreign = path.name in FOREIGN and path.resolve() != Path(sys.executable).resolve()
            assert not is_foreign, f"a test that starts {path.name} needs a mark: see tests/programs.py"

    sys.addaudithook(audit)


def is_reached_from(functions: Iterable[object]) -> bool:
    """Return whether some of the functions reach `program` through functions and classes of the tests."""
    return any(_reaches_program(_unwrapped(one)) for one in functions)


@cache
def _reaches_program(function: object) -> bool:
    seen: set[object] = set()
    waiting: list[object] = [function]
    while waiting:
        value = waiting.pop()
        if value is program:
            return True
        if isinstance(value, type | FunctionType) and value not in seen and value.__module__.startswith("tests"):
            seen.add(value)
            waiting += _named_in(value)
    return False


@cache
def _named_in(value: type | FunctionType) -> tuple[object, ...]:
    """Return what the code of a function or a class names, as far as it can be known."""
    if isinstance(value, type):
        members = (
            getattr(member, "fget", None) or getattr(member, "__func__", member) for member in vars(value).values()
        )
        return tuple(map(_unwrapped, members))
    names, known = {*_names(value.__code__)}, value.__globals__
    found = [known[name] for name in names & known.keys()]
    of_modules = [
        vars(module)[name] for module in found if inspect.ismodule(module) for name in names & vars(module).keys()
    ]
    return tuple(map(_unwrapped, [*found, *of_modules]))


def _unwrapped(value: object) -> object:
    """Return the function below decorators, if it is one."""
    return inspect.unwrap(value) if callable(value) and hasattr(value, "__wrapped__") else value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
