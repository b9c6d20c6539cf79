"""What a namespace is made of: event hubs, consumer groups, tiers and throughput units, with their limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Annotated, Self, assert_never

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tidegate.hub.capture.description import CaptureDescription

DEFAULT_CONSUMER_GROUP = "$Default"
MAX_PARTITIONS = 100
MAX_CONSUMER_GROUPS = 100
MAX_USER_METADATA_CHARACTERS = 1024
MAX_THROUGHPUT_UNITS = 40
MS_PER_HOUR = 3_600_000
MAX_RETENTION_HOURS = 90 * 24
_HUB_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,254}[A-Za-z0-9])?")
_GROUP_NAME = re.compile(r"[A-Za-z0-9$](?:[A-Za-z0-9._-]{0,48}[A-Za-z0-9])?")


class ConfigError(Exception):
    """A configuration that cannot be used. The message says where, what was found, and what was expected."""


class Tier(Enum):
    """A pricing tier.

    Quotas: https://learn.microsoft.com/azure/event-hubs/event-hubs-quotas
    """

    BASIC = "basic"
    STANDARD = "standard"
    PREMIUM = "premium"

    @property
    def max_message_bytes(self) -> int:
        """The largest publication, event or batch."""
        return 256 << 10 if self is Tier.BASIC else 1 << 20

    @property
    def max_partitions(self) -> int:
        """Of an event hub."""
        return MAX_PARTITIONS if self is Tier.PREMIUM else 32

    @property
    def max_consumer_groups(self) -> int:
        """Of an event hub, in addition to `$Default`."""
        match self:
            case Tier.BASIC:
                return 0
            case Tier.STANDARD:
                return 20
            case Tier.PREMIUM:
                return MAX_CONSUMER_GROUPS
            case _:
                assert_never(self)


def _whole_number(value: object) -> object:
    """Accept a number in quotes, as the emulator does."""
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", value):
        return int(value)
    return value


PartitionCount = Annotated[int, BeforeValidator(_whole_number), Field(strict=True, ge=1, le=MAX_PARTITIONS)]


def check_hub_name(name: str) -> str:
    """Return a valid name of an event hub, a namespace or an access rule. Raises ValueError."""
    if not _HUB_NAME.fullmatch(name):
        raise ValueError("1 to 256 letters, digits, '.', '-' or '_', beginning and ending with a letter or digit")
    return name


def check_group_name(name: str) -> str:
    """Return a valid name of a consumer group. Raises ValueError."""
    if name.lower() != DEFAULT_CONSUMER_GROUP.lower() and not _GROUP_NAME.fullmatch(name):
        raise ValueError("1 to 50 letters, digits, '.', '-' or '_', beginning and ending with a letter or digit")
    return name


def check_groups(names: Iterable[str]) -> list[str]:
    """Return the names without `$Default`. Raises ValueError for too many, for duplicates and for invalid names."""
    named = [check_group_name(name) for name in names if name.lower() != DEFAULT_CONSUMER_GROUP.lower()]
    check_distinct("consumer group", named)
    if len(named) > MAX_CONSUMER_GROUPS:
        raise ValueError(f"at most {MAX_CONSUMER_GROUPS} consumer groups, not {len(named)}")
    return named


class EventHubConfig(BaseModel):
    """One event hub. Retention None: events are kept for ever. The user metadata is for people."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    partition_count: PartitionCount = 1
    consumer_groups: tuple[str, ...] = ()
    retention_ms: int | None = Field(default=None, gt=0)
    retention_bytes: int | None = Field(default=None, gt=0)
    capture: CaptureDescription | None = None
    user_metadata: str = Field(default="", max_length=MAX_USER_METADATA_CHARACTERS)
    group_metadata: Mapping[str, str] = {}
    """User metadata of consumer groups, by their names in lower case."""

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


class NamespaceLimits(BaseModel):
    """What a namespace takes in and gives out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tier: Tier = Tier.STANDARD
    throughput_units: int | None = Field(default=None, ge=1, le=MAX_THROUGHPUT_UNITS)
    """None: no limit."""
    auto_inflate_to: int | None = Field(default=None, ge=1, le=MAX_THROUGHPUT_UNITS)

    @model_validator(mode="after")
    def _inflates_upwards(self) -> Self:
        units, most = self.throughput_units, self.auto_inflate_to
        if most is not None and units is None:
            raise ValueError("auto-inflate starts from the throughput units: set these too")
        if most is not None and units is not None and most < units:
            raise ValueError(f"auto-inflate ends at {most} throughput units, and there are {units}: raise the former")
        return self

    @property
    def max_message_bytes(self) -> int:
        """The largest publication."""
        return self.tier.max_message_bytes

    @property
    def max_partitions(self) -> int:
        """Of an event hub; the tier's, if throughput units are enabled."""
        return MAX_PARTITIONS if self.throughput_units is None else self.tier.max_partitions

    @property
    def max_consumer_groups(self) -> int:
        """Of an event hub, in addition to `$Default`; the tier's, if throughput units are enabled."""
        return MAX_CONSUMER_GROUPS if self.throughput_units is None else self.tier.max_consumer_groups

    def check_event_hub(self, hub: EventHubConfig) -> None:
        """Raise ValueError for a hub with more partitions or consumer groups than the limits allow."""
        groups = len(hub.consumer_groups) - 1
        for count, limit, what in (
            (hub.partition_count, self.max_partitions, "partitions"),
            (groups, self.max_consumer_groups, "consumer groups besides $Default"),
        ):
            if count > limit:
                raise ValueError(
                    f"the event hub {hub.name} has {count} {what}; the {self.tier.value} tier allows {limit}"
                )


class NamespaceConfig(NamespaceLimits):
    """What a namespace holds at least. Other hubs that its data directory knows stay."""

    name: str
    event_hubs: tuple[EventHubConfig, ...] = ()
    is_initial: bool = False
    """True: the name and the hubs are for a namespace without hubs; one that has some keeps both."""

    @property
    def limits(self) -> NamespaceLimits:
        """The limits alone."""
        return NamespaceLimits(
            tier=self.tier, throughput_units=self.throughput_units, auto_inflate_to=self.auto_inflate_to
        )

    @field_validator("event_hubs")
    @classmethod
    def _are_distinct(cls, hubs: tuple[EventHubConfig, ...]) -> tuple[EventHubConfig, ...]:
        check_distinct("event hub", [hub.name for hub in hubs])
        return hubs


def check_distinct(what: str, names: Iterable[str]) -> None:
    """Raise ValueError if two of the names are equal when compared without case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise ValueError(f"names that differ: the {what} {name!r} appears twice (names compare without case)")
        seen.add(name.lower())
