"""Memory that a worker shares with the store: large frames lie in it, and only where they lie goes over the stream.

A stream copies every byte into the system and out of it again. A frame in shared memory is copied once, by the worker,
and the store reads it where it lies. It stays there until the store has reported what became of the request, since the
store has then written the events to the log and does not look at them again.
"""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict

RING_BYTES = 4 << 20


def make_memory() -> int | None:
    """Return the handle of new memory, None on a system that cannot share any without a file."""
    if not hasattr(os, "memfd_create"):
        return None
    handle = os.memfd_create("tidegate-worker", os.MFD_CLOEXEC)
    os.ftruncate(handle, RING_BYTES)
    return handle


def map_memory(handle: int) -> mmap.mmap:
    """Return the memory of a handle."""
    return mmap.mmap(handle, RING_BYTES)


class Ring:
    """The writing end. Frames follow one another, and begin anew at the front where room has become free."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._next = 0
        self._taken: OrderedDict[int, int] = OrderedDict()
        """Where each frame begins that is still needed, by its request, in the order in which they lie."""
        self._done: set[int] = set()

    def put(self, request: int, data: bytes) -> int | None:
        """Place a frame, and return where it is; None without room for it."""
        size = len(data)
        if self._taken:
            first = next(iter(self._taken.values()))
            if self._next > first:  # what is taken is between the two
                if self._next + size > RING_BYTES:
                    if size >= first:
                        return None
                    self._next = 0
            elif self._next + size >= first:
                return None
        else:
            self._next = 0
            if size > RING_BYTES:
                return None
        at = self._next
        self._memory[at : at + size] = data
        self._taken[request] = at
        self._next = at + size
        return at

    def free(self, request: int) -> None:
        """Note that a request is done, whether its frame was placed here or not."""
        taken = self._taken
        if request not in taken:
            return
        self._done.add(request)
        while taken and (first := next(iter(taken))) in self._done:
            self._done.remove(first)
            del taken[first]
