"""Addresses of entities: `hub`, `hub/Partitions/0`, `hub/Publishers/name`, `hub/ConsumerGroups/group/Partitions/0`.

They come as paths or as URLs of any scheme, the host part of which says nothing here (one process serves one namespace
under whatever name it is reached by). Names compare without case, as the service compares them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from tidegate.hub.errors import ArgumentError, entity_not_found

Path = tuple[str, ...]
"""The segments of an address, lower case."""

MAX_ADDRESS_CHARACTERS = 2048
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[\w.~:@\[\]-]*(?:/(?P<path>.*))?", re.DOTALL)
_NOT_IN_NAMES = frozenset('/\\%?#"\N{KELVIN SIGN}')
"""What would be read differently once more decoded, or by others; the last is a K to who compares without case."""


def split_address(address: str) -> list[str]:
    """The decoded segments of an address, as written.

    Raises ArgumentError for anything that could be read in two ways.
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
    """The segments of an address for comparison. Raises ArgumentError."""
    return tuple(segment.lower() for segment in split_address(address))


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """Where a publisher's link leads: the hub, one partition of it, or a publisher's own door."""

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
    """Where a reader's link comes from."""

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
    reason = "one publishes to hub, hub/Partitions/N or hub/Publishers/NAME"
    raise entity_not_found(address[:100], reason)


def receive_source(address: str) -> ReceiveSource:
    """Read a source address. Raises ArgumentError, NotFound."""
    match split_address(address):
        case [hub, groups, group, partitions, partition] if (
            groups.lower() == "consumergroups" and partitions.lower() == "partitions"
        ):
            return ReceiveSource(hub, group, partition)
    raise entity_not_found(address[:100], "one reads from hub/ConsumerGroups/GROUP/Partitions/N")
