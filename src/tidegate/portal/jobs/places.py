"""Where a job reads and writes, in the words of people: a hub of this namespace with its rate, a table, a folder.

Sections keep most of this in connection strings, which are secret as a whole. What is taken from them here is the host
and the name of the hub, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tidegate.hub.event_hub import EventHub
from tidegate.hub.namespace import Namespace
from tidegate.hub.partition import Partition

_HUB_TYPES = ("eventhub", "iothub")
# In the order in which people name a place: what it is, then what that is in.
_NAMES = ("topic", "queue", "table", "container", "collection", "path", "folder", "pattern", "dataset")
_WITHIN = ("database", "database_name", "bootstrap_servers", "account", "account_name", "host", "url", "workspace")
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Place:
    """Where a section reads or writes: a text, and the page of the hub if it is one of this namespace."""

    text: str
    hub: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the place for a page."""
        return {"text": self.text, "hub": self.hub}


@dataclass(frozen=True, slots=True)
class Places:
    """Describes sections. `endpoint` is the namespace's own, as it stands in its connection strings."""

    namespace: Namespace
    endpoint: Callable[[], str]
    rate: Callable[[Partition], float | None]

    def of(self, shown: Mapping[str, Any], section: Mapping[str, Any]) -> Place:
        """Describe a section.

        Args:
            shown: the section without its secrets.
            section: the same with them, for the hub that a connection string names.
        """
        if shown.get("type") in _HUB_TYPES:
            return self._hub(section)
        found = [str(shown[name]) for name in (*_NAMES, *_WITHIN) if isinstance(shown.get(name), str | int)]
        return Place(", ".join(_shortened(one) for one in found[:2]))

    def own_hub(self, section: Mapping[str, Any]) -> EventHub | None:
        """Return the hub of this namespace that a section names, None for any other place."""
        if section.get("type") not in _HUB_TYPES:
            return None
        parts = _parts(section.get("connection_string"))
        name = section.get("event_hub") or parts.get("entitypath", "")
        is_ours = parts.get("endpoint", "").rstrip("/").lower() == self.endpoint().rstrip("/").lower()
        return self.namespace.event_hubs.get(str(name).lower()) if is_ours else None

    def _hub(self, section: Mapping[str, Any]) -> Place:
        group = str(section.get("consumer_group") or "$Default")
        hub = self.own_hub(section)
        if hub is None:
            parts = _parts(section.get("connection_string"))
            name = section.get("event_hub") or parts.get("entitypath") or "an event hub"
            host = re.sub(r"^\w+://", "", parts.get("endpoint", "")).strip("/")
            return Place(f"{name} · {group}" + (f", at {host}" if host else ""))
        count = len(hub.partitions)
        rates = [rate for rate in map(self.rate, hub.partitions) if rate is not None]
        speed = f", {sum(rates):,.0f} events/s" if rates else ""
        return Place(f"{hub.name} · {group}, {count} partition{'' if count == 1 else 's'}{speed}", hub.name)


def _parts(connection_string: object) -> dict[str, str]:
    """Return the parts of a connection string that are no secrets, by their names in lower case."""
    found = {}
    for part in str(connection_string or "").split(";"):
        name, _, value = part.partition("=")
        if name.strip().lower() in ("endpoint", "entitypath"):
            found[name.strip().lower()] = value.strip()
    return found


def _shortened(text: str) -> str:
    """Return a name without what an address may hide in it: user, password and query."""
    text = re.sub(r"//[^/@]*@", "//", text).partition("?")[0]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def event_link(hub: EventHub, partition: str, sequence_number: int) -> str:
    """Return the explorer's page that begins with an event."""
    begin = f"partition={quote(partition, safe='')}&from=sequence&value={sequence_number}"
    return f"/eventhubs/{quote(hub.name, safe='')}/explorer?{begin}"
