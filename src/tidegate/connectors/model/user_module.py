"""Modules of users: imported from the text that the driver read, so that a task on any machine runs the same."""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
from pathlib import Path
from types import ModuleType


@functools.cache
def load_module(name: str, source: bytes | None) -> ModuleType:
    """Return a module, imported once per process; a module from text gets a name that no other text has."""
    if source is None:
        return importlib.import_module(name)
    path = Path(name)
    module = ModuleType(f"_tidegate_{path.stem}_{hashlib.sha256(source).hexdigest()[:16]}")
    module.__file__ = name
    folder = str(path.parent)
    if folder not in sys.path and path.parent.is_dir():
        # At the end, so that a module in the function's folder never hides an installed one.
        sys.path.append(folder)
    code = compile(source, name, "exec")
    sys.modules[module.__name__] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module
