"""API sketch, being filled in."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel


class EventHubConfig(BaseModel):
    name: str
    partition_count: int = 1
    consumer_groups: tuple[str, ...] = ("$Default",)
    retention_ms: int | None = None
    retention_bytes: int | None = None


class NamespaceConfig(BaseModel):
    """What a namespace holds; partition counts are fixed when a hub is created."""

    name: str
    event_hubs: tuple[EventHubConfig, ...]
    max_message_bytes: int = 1 << 20


class ConfigError(Exception):
    """A Config.json that cannot be used: names the file, the place in it, what was found and what was expected."""


def load_config(path: Path) -> NamespaceConfig:
    """Read the official emulator's Config.json as it is. Raises ConfigError."""


def parse_config(text: str, source: str = "Config.json") -> NamespaceConfig:
    """The same from text."""
