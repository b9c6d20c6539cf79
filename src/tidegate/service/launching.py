"""Starts processes of jobs in the way that suits this machine, if it has the packages that jobs need."""

from __future__ import annotations

import importlib.util
import sys

from tidegate.service.errors import JobsUnavailable
from tidegate.service.fork_client import ForkingLauncher
from tidegate.service.processes import Launcher
from tidegate.service.spawning import SpawningLauncher

_NEEDED = ("fastavro", "msgspec", "numpy", "pyarrow", "regex")


def launcher_of_this_machine() -> Launcher:
    """Return what starts processes: forks of a server on Linux, new interpreters elsewhere.

    Raises:
        JobsUnavailable: the packages that jobs need are not installed.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise JobsUnavailable(
            f'jobs need packages that are not installed ({", ".join(missing)}): pip install "tidegate[spark]"'
        )
    return ForkingLauncher() if sys.platform == "linux" else SpawningLauncher()
