"""The Python API reference, from the docstrings of the packages that Python programs import."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from types import ModuleType
from typing import Any

MODULES = (
    "tidegate.client",
    "tidegate.checkpoints",
    "tidegate.checkpoints.aio",
    "tidegate.checkpoints.consumer",
    "tidegate.spark",
    "tidegate.job.testing",
)
"""The modules with a public Python API, in the order in which the reference lists them."""

_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Attributes|Example|Examples):$")
_ENTRY = re.compile(r"^(\*{0,2}[A-Za-z_][\w.]*(?:, [A-Za-z_]\w*)*(?: \([^)]*\))?): +(.*)$")
_LINE = 100


def python_api() -> str:
    """Return the reference as Markdown: a heading a module, an entry an exported name."""
    return "\n".join(line for name in MODULES for line in _module(importlib.import_module(name)))


def _module(module: ModuleType) -> Iterator[str]:
    yield f"## {module.__name__}\n"
    yield _prose(module.__doc__) + "\n"
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value):
            yield from _class(module, name, value)
        elif callable(value):
            yield f"### {module.__name__}.{name}\n\n{_code(name, value)}\n\n{_prose(value.__doc__)}\n"
        else:
            yield f"### {module.__name__}.{name}\n\n`{value!r}`\n"


def _class(module: ModuleType, name: str, value: type[Any]) -> Iterator[str]:
    yield f"### {module.__name__}.{name}\n"
    if not issubclass(value, BaseException | Enum):
        yield _code(name, value) + "\n"
    yield _prose(value.__doc__) + "\n"
    if issubclass(value, Enum):
        yield "\n".join(f"- `{member.name}`: {member.value!r}" for member in value) + "\n"
    created = vars(value).get("__init__")
    if created is not None and created.__doc__ and not dataclasses.is_dataclass(value):
        yield _prose(created.__doc__) + "\n"
    described = [base for base in value.__mro__[1:] if getattr(module, base.__name__, None) is base and _is_own(base)]
    if described and not issubclass(value, BaseException):
        yield f"It also has everything that {', '.join(f'`{base.__name__}`' for base in described)} has.\n"
    for method, function in _methods(value, described):
        if isinstance(function, property):
            yield f"#### {name}.{method}\n\nA property. {_prose(function.__doc__)}\n"
        else:
            plain = function.__func__ if isinstance(function, classmethod | staticmethod) else function
            how = "" if plain is function else f"@{type(function).__name__}\n"
            yield f"#### {name}.{method}\n\n{_code(method, plain, how)}\n\n{_prose(plain.__doc__)}\n"


def _methods(value: type[Any], without: Sequence[type[Any]]) -> Iterator[tuple[str, Any]]:
    """Yield public methods and properties with a docstring, of the class and of its bases in this project."""
    seen: set[str] = set()
    for base in value.__mro__:
        if base in without or not _is_own(base):
            continue
        for name, found in vars(base).items():
            plain = found.__func__ if isinstance(found, classmethod | staticmethod) else found
            described = isinstance(found, property) or inspect.isfunction(plain)
            # "See …" refers to a class behind the API.
            documented = plain.__doc__ and not plain.__doc__.startswith("See ")
            if described and documented and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, found


def _is_own(base: type[Any]) -> bool:
    return base.__module__.partition(".")[0] == "tidegate"


class _Written:
    """An annotation that is shown as the source has it, without the quotes of a text."""

    def __new__(cls, annotation: Any) -> Any:
        return super().__new__(cls) if isinstance(annotation, str) else annotation

    def __init__(self, annotation: str) -> None:
        self._annotation = annotation

    def __repr__(self) -> str:
        return self._annotation


def _code(name: str, value: Any, decorator: str = "") -> str:
    """Return a signature as a code block, one parameter a line where it is long."""
    signature = inspect.signature(value)
    kept = [
        parameter.replace(annotation=_Written(parameter.annotation))
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=kept, return_annotation=_Written(signature.return_annotation)))
    prefix = "class " if inspect.isclass(value) else "async def " if inspect.iscoroutinefunction(value) else "def "
    if inspect.isclass(value):
        text = text.removesuffix(" -> None")
    # Defaults that are objects would show their addresses.
    text = re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>", r"\1(…)", text)
    text = re.sub(r"<function [^ ]+ at 0x[0-9a-f]+>", "…", text)
    text = re.sub(r"<(\w+)\.(\w+): [^>]*>", r"\1.\2", text).replace("<factory>", "…")
    text = re.sub(r"\b(?:typing|tidegate(?:\.[a-z_]+)+)\.(?=[A-Z])", "", text).replace(str(2**63 - 1), "END_OF_TIME")
    text = re.sub(r"ForwardRef\('([^)]*)'\)", r"\1", text)
    line = f"{prefix}{name}{text}"
    if len(line) > _LINE:
        parts = ",\n    ".join(_parameters(text))
        line = f"{prefix}{name}(\n    {parts},\n){text[text.rindex(')') + 1 :]}"
    return f"```python\n{decorator}{line}\n```"


def _parameters(text: str) -> list[str]:
    """Return the parameters of a signature's text."""
    inside, depth, parts, current = text[1 : text.rindex(")")], 0, [], ""
    for character in inside:
        depth += character in "([{"
        depth -= character in ")]}"
        if character == "," and not depth:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()]


def _prose(doc: str | None) -> str:
    """Return a Google-style docstring as Markdown."""
    lines = inspect.cleandoc(doc or "").replace("``", "`").splitlines()
    out: list[str] = []
    section = ""
    for line in lines:
        if found := _SECTION.match(line):
            section = found[1]
            out += [f"**{section}**", ""]
        elif section and line.startswith("    ") and section in ("Args", "Raises", "Attributes"):
            entry = _ENTRY.match(line[4:])
            out.append(f"- `{entry[1]}`: {entry[2]}" if entry else f"  {line.strip()}")
        elif section and line.startswith("    ") and section in ("Returns", "Yields"):
            out.append(line.strip())
        else:
            section = section if line.startswith("    ") or not line else ""
            out.append(line)
    return "\n".join(out).strip()
