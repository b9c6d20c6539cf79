"""The official emulator's Config.json, read as it is, and what a namespace is made of.

https://learn.microsoft.com/azure/event-hubs/overview-emulator says what the file holds; its ten-hub limit is not kept.
The emulator is a .NET program, whose readers of JSON are lenient, and so is this one: keys in any case, comments, a
comma after the last, null for what might be left out.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.lenient_json import strict_json
from tidegate.hub.throughput import MAX_UNITS

_logger = logging.getLogger(__name__)
DEFAULT_CONSUMER_GROUP = "$Default"
MAX_PARTITIONS = 32
MAX_CONSUMER_GROUPS = 20
MAX_USER_METADATA_CHARACTERS = 1024
MS_PER_HOUR = 3_600_000
MAX_RETENTION_HOURS = 90 * 24
_HUB_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,254}[A-Za-z0-9])?")
_GROUP_NAME = re.compile(r"[A-Za-z0-9$](?:[A-Za-z0-9._-]{0,48}[A-Za-z0-9])?")


class ConfigError(Exception):
    """A configuration that cannot be used: says where, what was found, and what was expected."""


class Tier(Enum):
    """A pricing tier; here it only says how large a publication may be."""

    BASIC = "basic"
    STANDARD = "standard"
    PREMIUM = "premium"

    @property
    def max_message_bytes(self) -> int:
        """Of one publication, a batch included."""
        return 256 << 10 if self is Tier.BASIC else 1 << 20


def _whole_number(value: object) -> object:
    """The emulator takes numbers in quotes too."""
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", value):
        return int(value)
    return value


def _without_nothing(value: object) -> object:
    return () if value is None else value


PartitionCount = Annotated[int, BeforeValidator(_whole_number), Field(strict=True, ge=1, le=MAX_PARTITIONS)]


def check_hub_name(name: str) -> str:
    """Raises ValueError for what cannot name an event hub, a namespace or an access rule."""
    if not _HUB_NAME.fullmatch(name):
        raise ValueError("1 to 256 letters, digits, '.', '-' or '_', beginning and ending with a letter or digit")
    return name


def check_group_name(name: str) -> str:
    """Raises ValueError for what cannot name a consumer group."""
    if name.lower() != DEFAULT_CONSUMER_GROUP.lower() and not _GROUP_NAME.fullmatch(name):
        raise ValueError("1 to 50 letters, digits, '.', '-' or '_', beginning and ending with a letter or digit")
    return name


def check_groups(names: Iterable[str]) -> list[str]:
    """The names without `$Default`. Raises ValueError for too many, for two of a name, and for what is no name."""
    named = [check_group_name(name) for name in names if name.lower() != DEFAULT_CONSUMER_GROUP.lower()]
    _check_distinct("consumer group", named)
    if len(named) > MAX_CONSUMER_GROUPS:
        raise ValueError(f"at most {MAX_CONSUMER_GROUPS} consumer groups, not {len(named)}")
    return named


class EventHubConfig(BaseModel):
    """One event hub. Retention None: events are kept for ever."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    partition_count: PartitionCount = 1
    consumer_groups: tuple[str, ...] = ()
    retention_ms: int | None = Field(default=None, gt=0)
    retention_bytes: int | None = Field(default=None, gt=0)
    capture: CaptureDescription | None = None
    user_metadata: str = Field(default="", max_length=MAX_USER_METADATA_CHARACTERS)
    """The operator's own words; they mean nothing to the hub. So below, by the consumer group's name in lower case."""
    group_metadata: Mapping[str, str] = {}

    _name_is_one = field_validator("name")(check_hub_name)

    @field_validator("consumer_groups")
    @classmethod
    def _complete(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        """`$Default` is always there."""
        return (DEFAULT_CONSUMER_GROUP, *check_groups(groups))

    @model_validator(mode="before")
    @classmethod
    def _with_default_group(cls, values: object) -> object:
        return {"consumer_groups": (), **values} if isinstance(values, dict) else values


class Limits(BaseModel):
    """What a namespace takes and gives."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tier: Tier = Tier.STANDARD
    throughput_units: int | None = Field(default=None, ge=1, le=MAX_UNITS)
    """None: no limit."""
    auto_inflate_to: int | None = Field(default=None, ge=1, le=MAX_UNITS)

    @model_validator(mode="after")
    def _inflates_upwards(self) -> Self:
        if self.auto_inflate_to is not None and self.auto_inflate_to < (self.throughput_units or MAX_UNITS + 1):
            raise ValueError("auto-inflate goes up from the throughput units there are: name those too, and more here")
        return self

    @property
    def max_message_bytes(self) -> int:
        """Of one publication."""
        return self.tier.max_message_bytes


class NamespaceConfig(Limits):
    """What a namespace holds at least; hubs that its data directory knows beside these stay."""

    name: str
    event_hubs: tuple[EventHubConfig, ...] = ()

    @property
    def limits(self) -> Limits:
        """Of it, the limits alone."""
        return Limits(tier=self.tier, throughput_units=self.throughput_units, auto_inflate_to=self.auto_inflate_to)

    @field_validator("event_hubs")
    @classmethod
    def _are_distinct(cls, hubs: tuple[EventHubConfig, ...]) -> tuple[EventHubConfig, ...]:
        _check_distinct("event hub", [hub.name for hub in hubs])
        return hubs


def _check_distinct(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise ValueError(f"names that differ: the {what} {name!r} is there twice (names compare without case)")
        seen.add(name.lower())


# -- the emulator's file


class _FileModel(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _ConsumerGroup(_FileModel):
    name: str = Field(alias="Name")

    _name_is_one = field_validator("name")(check_group_name)


class _Entity(_FileModel):
    """The retentions are ours: the emulator keeps events for an hour whatever its file says."""

    name: str = Field(alias="Name")
    partition_count: PartitionCount = Field(alias="PartitionCount")
    retention_hours: int | float | None = Field(
        alias="RetentionTimeInHours", default=None, ge=1, le=MAX_RETENTION_HOURS
    )
    retention_bytes: int | None = Field(alias="RetentionSizeInBytes", default=None, gt=0)
    consumer_groups: tuple[_ConsumerGroup, ...] = Field(alias="ConsumerGroups", default=())

    _name_is_one = field_validator("name")(check_hub_name)
    _groups_may_be_null = field_validator("consumer_groups", mode="before")(_without_nothing)

    @field_validator("retention_hours", "retention_bytes", mode="before")
    @classmethod
    def _is_a_number(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("a number")
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
    _entities_may_be_null = field_validator("entities", mode="before")(_without_nothing)

    @field_validator("type")
    @classmethod
    def _is_event_hubs(cls, value: str) -> str:
        if value.lower() not in ("eventhub", "eventhubs"):
            raise ValueError("'EventHub'")
        return value

    @field_validator("entities")
    @classmethod
    def _are_distinct(cls, entities: tuple[_Entity, ...]) -> tuple[_Entity, ...]:
        _check_distinct("event hub", [entity.name for entity in entities])
        return entities


class _UserConfig(_FileModel):
    namespaces: tuple[_Namespace, ...] = Field(alias="NamespaceConfig")
    logging: Any = Field(alias="LoggingConfig", default=None)

    @field_validator("namespaces")
    @classmethod
    def _is_one(cls, namespaces: tuple[_Namespace, ...]) -> tuple[_Namespace, ...]:
        if len(namespaces) != 1:
            raise ValueError("exactly one namespace")
        return namespaces


class _File(_FileModel):
    user_config: _UserConfig = Field(alias="UserConfig")


def load_config(path: Path) -> NamespaceConfig:
    """Read the official emulator's Config.json. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return parse_config(text, str(path))


def parse_config(text: str, source: str = "Config.json") -> NamespaceConfig:
    """The same from text. Raises ConfigError."""
    try:
        document = json.loads(strict_json(text))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{source}: not JSON that can be read: {error}") from None
    document = _with_our_keys(document, source)
    try:
        namespace = _File.model_validate(document).user_config.namespaces[0]
        hubs = tuple(entity.config() for entity in namespace.entities)
        return NamespaceConfig(name=namespace.name, event_hubs=hubs)
    except ValidationError as error:
        raise ConfigError("\n".join(_describe(error, source))) from None


_EXPECTED = {"tuple_type": "a list", "model_type": "an object"}


def _describe(error: ValidationError, source: str) -> Iterator[str]:
    for item in error.errors(include_url=False):
        place = ""
        for step in item["loc"]:
            place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else str(step)
        if item["type"] == "missing":
            yield f"{source}: {place} is missing"
            continue
        got = repr(item["input"])
        if len(got) > 60:
            got = got[:57] + "..."
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


def _with_our_keys(document: Any, source: str, model: type[BaseModel] = _File, place: str = "") -> Any:
    """The document with keys spelled as the emulator's documents spell them. Raises ConfigError.

    A key that is nearly one of them is a mistake; others may be a newer emulator's and are only mentioned.
    """
    if isinstance(document, list):
        return [_with_our_keys(item, source, model, f"{place}[{number}]") for number, item in enumerate(document)]
    if not isinstance(document, dict):
        return document
    known = _KEYS[model]
    by_case = {key.lower(): key for key in known}
    ours: dict[str, Any] = {}
    for key, value in document.items():
        where = f"{place}.{key}" if place else key
        name = by_case.get(key.lower())
        if name is None:
            if near := difflib.get_close_matches(key, known, n=1, cutoff=0.75):
                raise ConfigError(f"{source}: {where}: unknown key, did you mean {near[0]!r}?")
            _logger.warning("%s: %s is not known here and is passed over", source, where)
            continue
        if name in ours:
            raise ConfigError(f"{source}: {where} is there twice (keys compare without case)")
        inner = known[name]
        ours[name] = value if inner is None else _with_our_keys(value, source, inner, where)
    return ours
