"""A pytest plugin that takes away what Windows does not have, before anything of Tidegate is imported.

It shows that nothing needs what is missing, not that Windows itself works.
"""

import os
import sys
import types
from typing import Any, cast

MODULES = ("fcntl", "resource", "grp", "pwd", "termios")
FUNCTIONS = ("pread", "pwrite", "preadv", "pwritev", "fdatasync", "sync", "O_CLOEXEC", "O_DIRECTORY")


def _locking_module() -> types.ModuleType:
    """Return an `msvcrt` whose `locking` is this machine's."""
    import fcntl

    def locking(fd: int, mode: int, size: int) -> None:
        assert (mode, size) == (msvcrt.LK_NBLCK, 1)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    msvcrt = types.ModuleType("msvcrt")
    msvcrt.__dict__.update(LK_NBLCK=2, locking=locking)
    return msvcrt


# Python itself imports the one module that an installed tidegate names in its .pth file.
assert {name for name in sys.modules if name.startswith("tidegate.")} <= {"tidegate.spark_python"}
sys.modules["msvcrt"] = _locking_module()
for name in MODULES:
    cast(Any, sys.modules)[name] = None  # importing it raises ImportError
for name in FUNCTIONS:
    delattr(os, name)
