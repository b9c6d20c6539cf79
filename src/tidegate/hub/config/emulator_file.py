"""The official emulator's Config.json.

https://learn.microsoft.com/azure/event-hubs/overview-emulator says what the file holds; its limit of ten hubs does not
apply here. The emulator is a .NET program, whose JSON readers are lenient, and so is this one: it accepts keys in any
case, comments, a trailing comma, and null for what may be left out.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tidegate.hub.config.model import (
    MAX_RETENTION_HOURS,
    MS_PER_HOUR,
    ConfigError,
    EventHubConfig,
    NamespaceConfig,
    PartitionCount,
    check_distinct,
    check_group_name,
    check_groups,
    check_hub_name,
)

_logger = logging.getLogger(__name__)

# A string or comment that never ends matches up to the end of the text, so that no part is searched twice.
_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|(?P<left_out>//[^\n]*|/\*.*?\*/)|/\*.*', re.DOTALL)
_COMMA = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|(?P<left_out>,)(?=\s*[}\]])', re.DOTALL)


def strict_json(text: str) -> str:
    """Return the text with comments and trailing commas replaced by spaces, so that lines and columns stay.

    Strings are left alone. Takes time proportional to the length of the text.
    """
    for pattern in (_COMMENT, _COMMA):
        text = pattern.sub(_blank, text)
    return text


def _blank(found: re.Match[str]) -> str:
    return found[0] if found["left_out"] is None else re.sub(r"[^\n]", " ", found[0])


MAX_FILE_BYTES = 16 << 20


def _without_null(value: object) -> object:
    return () if value is None else value


class _FileModel(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _ConsumerGroup(_FileModel):
    name: str = Field(alias="Name")

    _name_is_one = field_validator("name")(check_group_name)


class _Entity(_FileModel):
    """An event hub. The retentions are Tidegate's own: the emulator keeps events for an hour."""

    name: str = Field(alias="Name")
    partition_count: PartitionCount = Field(alias="PartitionCount")
    retention_hours: int | float | None = Field(
        alias="RetentionTimeInHours", default=None, ge=1, le=MAX_RETENTION_HOURS
    )
    retention_bytes: int | None = Field(alias="RetentionSizeInBytes", default=None, gt=0)
    consumer_groups: tuple[_ConsumerGroup, ...] = Field(alias="ConsumerGroups", default=())

    _name_is_one = field_validator("name")(check_hub_name)
    _groups_may_be_null = field_validator("consumer_groups", mode="before")(_without_null)

    @field_validator("retention_hours", "retention_bytes", mode="before")
    @classmethod
    def _is_a_number(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("a number, without quotes")
        return value

    @field_validator("consumer_groups")
    @classmethod
    def _are_few_and_distinct(cls, groups: tuple[_ConsumerGroup, ...]) -> tuple[_ConsumerGroup, ...]:
        check_groups([group.name for group in groups])
        return groups

    def config(self) -> EventHubConfig:
        groups = tuple(group.name for group in self.consumer_groups)
        return EventHubConfig(
            name=self.name,
            partition_count=self.partition_count,
            consumer_groups=groups,
            retention_ms=None if self.retention_hours is None else round(self.retention_hours * MS_PER_HOUR),
            retention_bytes=self.retention_bytes,
        )


class _Namespace(_FileModel):
    type: str = Field(alias="Type", default="EventHub")
    name: str = Field(alias="Name")
    entities: tuple[_Entity, ...] = Field(alias="Entities", default=())

    _name_is_one = field_validator("name")(check_hub_name)
    _entities_may_be_null = field_validator("entities", mode="before")(_without_null)

    @field_validator("type")
    @classmethod
    def _is_event_hub(cls, value: str) -> str:
        if value.lower() != "eventhub":
            raise ValueError('"EventHub", the only type of namespace there is')
        return value

    @field_validator("entities")
    @classmethod
    def _are_distinct(cls, entities: tuple[_Entity, ...]) -> tuple[_Entity, ...]:
        check_distinct("event hub", [entity.name for entity in entities])
        return entities


class _UserConfig(_FileModel):
    namespaces: tuple[_Namespace, ...] = Field(alias="NamespaceConfig")
    logging: Any = Field(alias="LoggingConfig", default=None)

    @field_validator("namespaces")
    @classmethod
    def _is_one(cls, namespaces: tuple[_Namespace, ...]) -> tuple[_Namespace, ...]:
        if len(namespaces) != 1:
            raise ValueError("a list of exactly one namespace")
        return namespaces


class _File(_FileModel):
    user_config: _UserConfig = Field(alias="UserConfig")


def load_config(path: Path) -> NamespaceConfig:
    """Read the official emulator's Config.json. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB, which is not a configuration")
    return parse_config(text, str(path))


def parse_config(text: str, source: str = "Config.json") -> NamespaceConfig:
    """Read the text of a Config.json; `source` names it in messages. Raises ConfigError."""
    try:
        document = json.loads(strict_json(text))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise ConfigError(f"{source}: not a configuration: its values are nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise ConfigError(f"{source}: not JSON that can be read: {error}") from None
    document = _with_canonical_keys(document, source)
    try:
        namespace = _File.model_validate(document).user_config.namespaces[0]
        hubs = tuple(entity.config() for entity in namespace.entities)
        return NamespaceConfig(name=namespace.name, event_hubs=hubs)
    except ValidationError as error:
        raise ConfigError("\n".join(_describe(error, source))) from None


_EXPECTED = {"tuple_type": "a list", "model_type": "an object", "string_type": "a text in quotes"}
_REPR = reprlib.Repr()  # of a part only, however deep and long a value is
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother = 3, 60, 60


def _describe(error: ValidationError, source: str) -> Iterator[str]:
    for item in error.errors(include_url=False):
        place = ""
        for step in item["loc"]:
            place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else str(step)
        if item["type"] == "missing":
            yield f"{source}: {place} is missing"
            continue
        got = _REPR.repr(item["input"])[:100]
        expected = _EXPECTED.get(item["type"]) or item["msg"].removeprefix("Value error, ").removeprefix(
            "Input should be "
        )
        yield f"{source}: {place or 'the document'}: got {got}, expected {expected}"


_KEYS: Mapping[type[BaseModel], Mapping[str, type[BaseModel] | None]] = {
    _File: {"UserConfig": _UserConfig},
    _UserConfig: {"NamespaceConfig": _Namespace, "LoggingConfig": None},
    _Namespace: {"Type": None, "Name": None, "Entities": _Entity},
    _Entity: {
        "Name": None,
        "PartitionCount": None,
        "ConsumerGroups": _ConsumerGroup,
        "RetentionTimeInHours": None,
        "RetentionSizeInBytes": None,
    },
    _ConsumerGroup: {"Name": None},
}


def _with_canonical_keys(document: Any, source: str, model: type[BaseModel] = _File, place: str = "") -> Any:
    """Return the document with keys spelled as the emulator's documentation spells them. Raises ConfigError.

    A key that is nearly one of them is a mistake. Others may be a newer emulator's and only cause a warning.
    """
    if isinstance(document, list):  # one level of it: a list in a list is wrong wherever it is
        return [
            _with_canonical_keys(item, source, model, f"{place}[{number}]") if isinstance(item, dict) else item
            for number, item in enumerate(document)
        ]
    if not isinstance(document, dict):
        return document
    known = _KEYS[model]
    by_case = {key.lower(): key for key in known}
    canonical: dict[str, Any] = {}
    for key, value in document.items():
        where = f"{place}.{key}" if place else key
        name = by_case.get(key.lower())
        if name is None:
            if near := difflib.get_close_matches(key, known, n=1, cutoff=0.75):
                raise ConfigError(f"{source}: {where}: unknown key; did you mean {near[0]!r}?")
            _logger.warning("%s: unknown key %s is ignored", source, where)
            continue
        if name in canonical:
            raise ConfigError(f"{source}: {where} appears twice (keys compare without case)")
        inner = known[name]
        canonical[name] = value if inner is None else _with_canonical_keys(value, source, inner, where)
    return canonical
