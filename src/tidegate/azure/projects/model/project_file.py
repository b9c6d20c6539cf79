"""A JSON file of a project: how it is read, checked, and what is said of its mistakes."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError, model_validator

from tidegate.connectors.model.errors import ProjectError

_TEXT_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks of UTF-16, as Windows tools write them."""
_NO_BREAK = re.compile(r"[^\n]")
_TEXT_OR_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[\]}])')


class ProjectFile(BaseModel):
    """A JSON file of a project, or a part of one. The names of settings are read regardless of case, as in Azure."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _names_without_case(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        known = {name.lower(): name for name in known_names(cls)}
        written: dict[str, str] = {}
        found: dict[str, Any] = {}
        for key, value in content.items():
            name = known.get(str(key).lower(), str(key))
            if name in found and found[name] != value:
                raise ValueError(f"'{written[name]}' and '{key}' are the same setting with two values; remove one")
            written[name], found[name] = str(key), value
        return found


def known_names(kind: type[ProjectFile]) -> list[str]:
    """Return the names of a file's settings as the tools write them."""
    names: list[str] = []
    for name, field in kind.model_fields.items():
        choices = field.validation_alias
        if isinstance(choices, AliasChoices):
            names += [choice for choice in choices.choices if isinstance(choice, str)]
        else:
            names.append(field.alias or name)
    return names


_File = TypeVar("_File", bound=ProjectFile)


def read_project_file(path: Path, kind: type[_File], what: str) -> tuple[_File, list[str]]:
    """Read a file of a project, and return it with notes on possible typos.

    Args:
        what: what the file should be, for messages: "a job configuration".

    Raises:
        ProjectError: it cannot be read, is not JSON, or lacks required settings; the message names every problem.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise ProjectError(f"{path} is not {what}: expected an object, got {_json_type(content)}")
    return parse_project_file(content, kind, f"{path} is not {what}"), slips_of(str(path), content, kind)


def parse_project_file(content: Any, kind: type[_File], refusal: str, under: str = "") -> _File:
    """Parse the content of a file.

    Args:
        under: the setting of the file that has the content; empty for all of the file.

    Raises:
        ProjectError: it lacks required settings.
    """
    # The tools write null for settings that are not set.
    try:
        return kind.model_validate(_without_nulls(content))
    except ValidationError as error:
        lines = [f"{refusal}:"]
        for problem in error.errors():
            place = ".".join(map(str, [under, *problem["loc"]] if under else problem["loc"]))
            if problem["type"] == "missing":
                lines.append(f"  {place}: missing")
                continue
            message = problem["msg"].removeprefix("Value error, ")
            message = message[:1].lower() + message[1:]
            got = "" if isinstance(problem["input"], dict | list) else f", got {problem['input']!r}"
            lines.append(f"  {place}: {message}{got}" if place else f"  {message}")
        raise ProjectError("\n".join(lines)) from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, which may have a byte order mark, comments, last commas, and texts of several
    lines, as templates do.

    Raises:
        ProjectError: it cannot be read or is not JSON.
    """
    text = read_text(path)
    with suppress(ValueError, RecursionError):
        return json.loads(text, strict=False)
    # The service's tools accept comments and a comma after the last element, so projects contain them.
    text = _TEXT_OR_COMMENT.sub(lambda found: found[1] or _NO_BREAK.sub(" ", found[0]), text)
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        try:
            return json.loads(_TEXT_OR_LAST_COMMA.sub(lambda found: found[1] or "", text), strict=False)
        except (ValueError, RecursionError):
            raise ProjectError(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise ProjectError(f"cannot read {path}: {json_limit(error)}") from error


def json_limit(error: ValueError | RecursionError) -> str:
    """Return in words which limit of the JSON reader a document exceeds."""
    if isinstance(error, RecursionError):
        return "its JSON is nested too deeply"
    return "its JSON has a number with more than 4,300 digits"


def read_text(path: Path) -> str:
    """Return the text of a file, in UTF-8 or, with a byte order mark, UTF-16.

    Raises:
        ProjectError: it cannot be read, or is not such text.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProjectError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ProjectError(f"cannot read {str(path)!r}: this cannot be the name of a file") from error
    encoding = "utf-16" if content.startswith(_UTF_16) else "utf-8-sig"
    try:
        text = content.decode(encoding)
        zero = text.find("\0")
    except UnicodeDecodeError as error:
        named = "UTF-16" if encoding == "utf-16" else "UTF-8"
        raise ProjectError(
            f"cannot read {path}: it is not {named} text (byte {error.start}); save it as UTF-8"
        ) from error
    if zero >= 0:
        raise ProjectError(
            f"cannot read {path}: character {zero} is a zero, so this is another encoding; save it as UTF-8"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _without_nulls(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nulls(value) for key, value in content.items() if value is not None}
    if isinstance(content, list):
        return [_without_nulls(value) for value in content]
    return content


def slips_of(place: str, content: Mapping[str, Any], kind: type[ProjectFile]) -> list[str]:
    """Return notes on settings whose names are close to those of a file.

    Args:
        place: where they are, for messages.
    """
    known = {name.lower(): name for name in known_names(kind)}
    written = {str(key).lower(): key for key in content}
    found = []
    for key in written.keys() - known.keys():
        near = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.85)
        if near and near[0] not in written:
            found.append(f"{place}: there is no setting '{written[key]}'; did you mean '{known[near[0]]}'?")
    return sorted(found)


def _json_type(content: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", type(None): "nothing"}
    return names.get(type(content), "a number")
