"""Overrides: other inputs, outputs or settings than those of a job's file, for one run.

An override is written ``inputs.NAME=VALUE``, ``outputs.NAME=VALUE``, or ``outputs.NAME.SETTING=VALUE`` for one setting
of a section.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from tidegate.connectors.inputs.kinds import INPUTS, reference_names
from tidegate.connectors.model.errors import JobError
from tidegate.connectors.outputs.kinds import OUTPUTS
from tidegate.engine import FORMATS

Table = Literal["inputs", "outputs"]

CONNECTION_STRING = "connection_string"
_OF_A_BODY = ("format", "delimiter", "compression")
_SUFFIXES = {"jsonl": "json", "ndjson": "json", "txt": "json"}
_FORMS = (
    'console, a file, an address such as az://CONTAINER/…, a connection string, or a whole section: {type = "file", …}'
)


@dataclass(frozen=True, slots=True)
class Override:
    """What takes the place of an input, an output, or one of their settings.

    Attributes:
        name: the name that the query uses.
        setting: the setting; None if the value takes the place of the whole section.
        value: the text that was given, not yet a section.
        folder: the folder that paths in it are relative to.
    """

    table: Table
    name: str
    setting: str | None
    value: str
    folder: Path

    def __str__(self) -> str:
        return f"--override {self.table}.{self.name}{f'.{self.setting}' if self.setting else ''}"

    @property
    def connection_string(self) -> str | None:
        """The connection string, if that is what is given."""
        if self.setting is None and self.value[:9].lower() == "endpoint=":
            return self.value
        return self.value if self.setting == CONNECTION_STRING else None

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the section that it replaces is needed."""
        return self.setting is None and self.connection_string is None

    def replacing(self, section: Mapping[str, Any] | None, *, is_reference: bool) -> dict[str, Any]:
        """Return the section that takes the place of another.

        Args:
            section: the other one; None if there is none.
            is_reference: whether the query joins the input as reference data.

        Raises:
            JobError: the value is of none of the known forms.
        """
        if self.setting is not None:
            return {**(section or {}), self.setting: self._setting()}
        if (connection := self.connection_string) is not None:
            if section is not None and CONNECTION_STRING in section:
                return {**section, CONNECTION_STRING: connection}
            body = {name: section[name] for name in _OF_A_BODY if name in section} if section is not None else {}
            return {"type": "eventhub", CONNECTION_STRING: connection, **body}
        if self.value.startswith("{"):
            return self._absolute(self._toml(self.value))
        if self.value in (OUTPUTS if self.table == "outputs" else INPUTS).by_name:
            return {"type": self.value}
        if "/" in self.value or "." in self.value or "\\" in self.value:
            return self._file(is_reference)
        raise JobError(f"{self}: expected {_FORMS}, got {self.value!r}")

    def _setting(self) -> Any:
        return self._toml(self.value) if self.value[:1] in ("[", "{") else self.value

    def _toml(self, text: str) -> Any:
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise JobError(f"{self}: {text!r} is not a value of TOML: {error}") from error

    def _file(self, is_reference: bool) -> dict[str, Any]:
        """Return the section for a file, whose format is that of its name."""
        named = Path(self.value.removesuffix(".gz"))
        suffix = named.suffix.lower().removeprefix(".")
        if self.table == "outputs":
            path = f"{self.value}{self.name}.jsonl" if self.value.endswith("/") else self.value
            return self._absolute({"type": "file", "path": path, **({"format": "csv"} if suffix == "csv" else {})})
        format_ = _SUFFIXES.get(suffix, suffix)
        section: dict[str, Any] = {"type": "reference" if is_reference else "files", "path": self.value}
        if format_ in FORMATS.names():
            section["format"] = format_
        if not is_reference and suffix and not any(mark in self.value for mark in "*?{"):
            section["watch"] = False  # one file: nothing will follow it
        return self._absolute(section)

    def _absolute(self, section: dict[str, Any]) -> dict[str, Any]:
        path = section.get("path")
        if not isinstance(path, str) or "://" in path:
            return section
        whole = str(self.folder / path)
        return {**section, "path": f"{whole}/" if path.endswith("/") and not whole.endswith("/") else whole}


def parse_override(text: str, folder: Path) -> Override:
    """Parse an override.

    Args:
        folder: the folder that paths in it are relative to.

    Raises:
        JobError: it is not of the form.
    """
    place, found, value = text.partition("=")
    table, _, name = place.strip().partition(".")
    if not found or table not in get_args(Table) or not name or not value.strip():
        raise JobError(f"--override {text}: expected inputs.NAME=VALUE or outputs.NAME=VALUE; VALUE is {_FORMS}")
    kinds = (OUTPUTS if table == "outputs" else INPUTS).by_name.values()
    before, _, last = name.rpartition(".")
    setting = last if before and any(last in kind.model_fields for kind in kinds) else None
    return Override("outputs" if table == "outputs" else "inputs", before if setting else name, setting, value, folder)


def with_overrides(content: Mapping[str, Any], overrides: Sequence[Override]) -> dict[str, Any]:
    """Return the content of a job file with overrides applied.

    Raises:
        JobError: one is of none of the known forms, or the file has no such input.
    """
    check_overrides(overrides, "inputs", content.get("inputs") or {})
    changed = dict(content)
    for one in overrides:
        table = dict(changed.get(one.table) or {})
        written = next((name for name in table if name.lower() == one.name.lower()), one.name)
        is_reference = one.table == "inputs" and written in reference_names(table)
        table[written] = one.replacing(table.get(written), is_reference=is_reference)
        changed[one.table] = table
    return changed


def check_overrides(overrides: Sequence[Override], table: Table, known: Iterable[str]) -> None:
    """Refuse overrides of inputs or outputs that do not exist.

    Raises:
        JobError: there is no input or output of that name.
    """
    names = sorted(set(known))
    for one in overrides:
        if one.table == table and one.name.lower() not in {name.lower() for name in names}:
            what = table.removesuffix("s")
            raise JobError(f"{one}: there is no {what} {one.name}; there are: {', '.join(names) or 'none'}")
