"""Let Spark start its Python workers with the Python that runs this program.

Spark looks for `python3` on the PATH. If a virtual environment is used without being activated, that is another Python,
without Tidegate in it, and Spark says DATA_SOURCE_NOT_FOUND. The wheel therefore installs a `.pth` file, which imports
this module whenever a Python with Tidegate starts. It sets PYSPARK_PYTHON, unless that is set or the first `python3` on
the PATH belongs to this environment: an activated environment and a cluster keep what they have.

Every start of Python runs this, so it imports nothing but what is loaded then.
"""

from __future__ import annotations

import os
import sys

_VARIABLE = "PYSPARK_PYTHON"


def set_default() -> None:
    """Set PYSPARK_PYTHON to this Python if Spark would start another."""
    if _VARIABLE in os.environ or not sys.executable:
        return
    found = _first_on_path("python3")
    if found is None or os.path.realpath(os.path.dirname(found)) != os.path.realpath(os.path.dirname(sys.executable)):
        os.environ[_VARIABLE] = sys.executable


def _first_on_path(name: str) -> str | None:
    """Return what `shutil.which` would, without importing it."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


set_default()
