"""Settings of Python's cyclic garbage collector for a process that only runs a hub.

Nearly all of a hub's objects are freed with their last reference; only rare exceptions leave cycles to collect. By
default the collector still runs whenever a few hundred more objects were allocated than freed, as happens with a few
publications in flight, and its full collections pause every client for some ten milliseconds. So objects that exist
after the start, which live until the end, are exempt, and the rest is examined less often.
"""

from __future__ import annotations

import gc

_NEW_OBJECTS = 20_000
"""Net allocations between two collections."""


def look_less_often() -> None:
    """Make collections rarer in the whole process. Call when the server has started."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
