"""The list in which the parts of a connection report events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, SupportsIndex, TypeVar

EventT_contra = TypeVar("EventT_contra", contravariant=True)


class EventList(Protocol[EventT_contra]):
    """A list of events, of which a link (or session) only knows its own types."""

    def __len__(self) -> int:
        """Return how many events there are."""

    def __getitem__(self, index: SupportsIndex, /) -> object:
        """Return the event at an index."""

    def append(self, event: EventT_contra, /) -> None:
        """Add an event."""

    def extend(self, events: Iterable[EventT_contra], /) -> None:
        """Add events in order."""
