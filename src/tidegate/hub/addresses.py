"""Addresses of entities: `hub`, `hub/Partitions/0`, `hub/Publishers/name`, `hub/ConsumerGroups/group/Partitions/0`.

They are paths or URLs of any scheme. The host of a URL is ignored: one process serves one namespace under whatever name
it is reached by. Names compare case-insensitively, as in the service.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from tidegate.hub.errors import ArgumentError, entity_not_found

Path = tuple[str, ...]
"""The segments of an address in lower case."""

MAX_ADDRESS_CHARACTERS = 2048
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[\w.~:@\[\]-]*(?:/(?P<path>.*))?", re.DOTALL)
_NOT_IN_NAMES = frozenset('/\\%?#"\N{KELVIN SIGN}')
"""Characters that double decoding or other parsers would read differently; the last lower-cases to a k."""


def split_address(address: str) -> list[str]:
    """Return the decoded segments of an address in their original case.

    Raises ArgumentError for an ambiguous address.
    """
    if len(address) > MAX_ADDRESS_CHARACTERS:
        raise ArgumentError(f"an address has at most {MAX_ADDRESS_CHARACTERS} characters")
    path = address.removeprefix("/")
    if "://" in address:
        url = _URL.fullmatch(address)
        if url is None:
            raise ArgumentError(f"the address {address[:100]!r} is no URL of a scheme, a host and a path")
        path = url["path"] or ""
    path = path.removesuffix("/")
    if not path:
        return []
    segments = [unquote(segment) for segment in path.split("/")]
    for segment in segments:
        if segment in ("", ".", "..") or any(c in _NOT_IN_NAMES or not c.isprintable() for c in segment):
            raise ArgumentError(f"an address cannot hold the segment {segment!r}")
    return segments


def path_of(address: str) -> Path:
    """Return the segments of an address for comparison. Raises ArgumentError."""
    return tuple(segment.lower() for segment in split_address(address))


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """The target of a publisher's link: a hub, one of its partitions, or a publisher's own endpoint."""

    hub: str
    partition_id: str | None = None
    publisher: str | None = None

    @property
    def path(self) -> Path:
        """What a grant must cover."""
        if self.partition_id is not None:
            return (self.hub.lower(), "partitions", self.partition_id.lower())
        if self.publisher is not None:
            return (self.hub.lower(), "publishers", self.publisher.lower())
        return (self.hub.lower(),)


@dataclass(frozen=True, slots=True)
class ReceiveSource:
    """The source of a reader's link."""

    hub: str
    consumer_group: str
    partition_id: str

    @property
    def path(self) -> Path:
        """What a grant must cover."""
        return (
            self.hub.lower(),
            "consumergroups",
            self.consumer_group.lower(),
            "partitions",
            self.partition_id.lower(),
        )


def publish_target(address: str) -> PublishTarget:
    """Read a target address. Raises ArgumentError, NotFound."""
    match split_address(address):
        case [hub]:
            return PublishTarget(hub)
        case [hub, kind, name] if kind.lower() == "partitions":
            return PublishTarget(hub, partition_id=name)
        case [hub, kind, name] if kind.lower() == "publishers":
            return PublishTarget(hub, publisher=name)
    reason = "publish to hub, hub/Partitions/N or hub/Publishers/NAME"
    raise entity_not_found(address[:100], reason)


def receive_source(address: str) -> ReceiveSource:
    """Read a source address. Raises ArgumentError, NotFound."""
    match split_address(address):
        case [hub, groups, group, partitions, partition] if (
            groups.lower() == "consumergroups" and partitions.lower() == "partitions"
        ):
            return ReceiveSource(hub, group, partition)
    raise entity_not_found(address[:100], "read from hub/ConsumerGroups/GROUP/Partitions/N")
