"""Python's cyclic collector in a process that is a hub and nothing else.

Nearly all that a hub makes is gone with the last reference to it; what is left for the collector are the cycles of the
rare exception. Yet it looks whenever some hundreds of objects more were made than given up, as many as a few
publications in flight are, and every so often at all there is, which holds up everybody for some ten milliseconds. So
it does not look at what was there after the start, which stays to the end, and looks less often at the rest.
"""

from __future__ import annotations

import gc

_NEW_OBJECTS = 20_000
"""Made and not given up, before the collector looks at them."""


def look_less_often() -> None:
    """For the whole process; to be called when the server has started."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
