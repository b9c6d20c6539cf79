"""What a process of a job asks of the operating system: to end with the service, and to harm neither it nor others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_NAME, _PR_SET_PDEATHSIG = 15, 1
_FIRST_TO_KILL = "800"
_HEADROOM_BYTES = 256 << 20


def end_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent ends, however that happens. Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def name_process(name: str) -> None:
    """Show a name in lists of processes, 15 bytes of it. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def yield_to_others(nice: int) -> None:
    """Lower this process's claim to the processor, and make it the first to go when the machine is out of memory."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(nice)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_KILL)


def limit_memory(memory_bytes: int) -> None:
    """Refuse this process more memory than twice its limit: the service, which looks once a second, may be too late."""
    if sys.platform != "linux":
        return
    import resource

    used = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            used = int(line.split()[1]) << 10
    most = used + 2 * memory_bytes + _HEADROOM_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
