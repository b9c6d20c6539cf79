"""A JSON file of a project: how it is read, checked, and what is said of its mistakes."""

from __future__ import annotations

import difflib
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tidegate.job.model.errors import ProjectError

_TEXT_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_NO_BREAK = re.compile(r"[^\n]")
_TEXT_OR_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[\]}])')


class ProjectFile(BaseModel):
    """A JSON file of a project, or a part of one."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


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
    return parse_project_file(content, kind, f"{path} is not {what}"), _slips(path, content, kind)


def parse_project_file(content: Any, kind: type[_File], refusal: str) -> _File:
    """Parse the content of a file.

    Raises:
        ProjectError: it lacks required settings.
    """
    # The tools write null for settings that are not set.
    try:
        return kind.model_validate(_without_nulls(content))
    except ValidationError as error:
        lines = [f"{refusal}:"]
        for problem in error.errors():
            place = ".".join(map(str, problem["loc"]))
            if problem["type"] == "missing":
                lines.append(f"  {place}: missing")
                continue
            message = problem["msg"][:1].lower() + problem["msg"][1:]
            got = "" if isinstance(problem["input"], dict | list) else f", got {problem['input']!r}"
            lines.append(f"  {place}: {message}{got}")
        raise ProjectError("\n".join(lines)) from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, which may have a byte order mark, comments, and last commas.

    Raises:
        ProjectError: it cannot be read or is not JSON.
    """
    text = read_text(path)
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    # The service's tools accept comments and a comma after the last element, so projects contain them.
    text = _TEXT_OR_COMMENT.sub(lambda found: found[1] or _NO_BREAK.sub(" ", found[0]), text)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        try:
            return json.loads(_TEXT_OR_LAST_COMMA.sub(lambda found: found[1] or "", text))
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
    """Return the text of a file.

    Raises:
        ProjectError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ProjectError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProjectError(f"cannot read {path}: it is not UTF-8 text") from error
    except ValueError as error:
        raise ProjectError(f"cannot read {str(path)!r}: this cannot be the name of a file") from error


def _without_nulls(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nulls(value) for key, value in content.items() if value is not None}
    if isinstance(content, list):
        return [_without_nulls(value) for value in content]
    return content


def _slips(path: Path, content: dict[str, Any], kind: type[ProjectFile]) -> list[str]:
    known = {field.alias or name for name, field in kind.model_fields.items()}
    found = []
    for key in content.keys() - known:
        near = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.85)
        if near and near[0] not in content:
            found.append(f"{path}: there is no setting '{key}'; did you mean '{near[0]}'?")
    return sorted(found)


def _json_type(content: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", type(None): "nothing"}
    return names.get(type(content), "a number")
