"""Where the parts of a connection put what they report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, SupportsIndex, TypeVar

EventT_contra = TypeVar("EventT_contra", contravariant=True)


class EventList(Protocol[EventT_contra]):
    """A list of events, among them those of a link (or session), which alone its parts know."""

    def __len__(self) -> int:
        """Return how many events there are."""

    def __getitem__(self, index: SupportsIndex, /) -> object:
        """Return the event at an index."""

    def append(self, event: EventT_contra, /) -> None:
        """Add an event."""

    def extend(self, events: Iterable[EventT_contra], /) -> None:
        """Add events in order."""
