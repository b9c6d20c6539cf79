"""What commands ask of the operating system, where POSIX and Windows differ.

Windows has no `resource` module, no signal handlers on an event loop, and no SIGTERM that a process could handle: a
process is stopped in order by CTRL_BREAK, which arrives as SIGBREAK and reaches only process groups of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_logger = logging.getLogger(__name__)


def on_stop_signals(loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
    """Call `action` on the loop when Ctrl-C, SIGTERM or, on Windows, CTRL_BREAK asks the process to stop.

    Python's own handlers are used, as no event loop of Windows has any; waking the loop from them works everywhere.
    """

    def from_handler(_number: int, _frame: FrameType | None) -> None:
        # Once the loop has closed, the process is ending.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(action)

    for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, from_handler)


def wait_for_stop_signal() -> None:
    """Return when Ctrl-C, SIGTERM or, on Windows, CTRL_BREAK asks the process to stop."""

    async def wait() -> None:
        stop = asyncio.Event()
        on_stop_signals(asyncio.get_running_loop(), stop.set)
        await stop.wait()

    asyncio.run(wait())


def allow_open_files(wanted: int) -> None:
    """Raise the limit of open files towards `wanted`, as far as the system allows; Windows has no such limit."""
    try:
        import resource
    except ModuleNotFoundError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            _logger.warning("no more than %d connections and partitions are possible: %s", soft, error)


def own_group() -> dict[str, Any]:
    """Return the options of Popen for a child that the terminal's Ctrl-C does not reach."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def ask_to_stop(process: subprocess.Popen[str]) -> None:
    """Ask a child that was started with own_group() to stop in order."""
    if sys.platform == "win32":
        process.send_signal(signal.CTRL_BREAK_EVENT)
    else:
        process.terminate()
