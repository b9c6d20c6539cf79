"""Let Spark start its Python workers with the Python that runs this program, and let them start quickly.

Spark looks for `python3` on the PATH. If a virtual environment is used without being activated, that is another Python,
without Tidegate in it, and Spark says DATA_SOURCE_NOT_FOUND. The wheel therefore installs a `.pth` file, which imports
this module whenever a Python with Tidegate starts. It sets PYSPARK_PYTHON, unless that is set or the first `python3` on
the PATH belongs to this environment: an activated environment and a cluster keep what they have.

Spark also puts archives of PySpark and py4j before everything else on the path of each Python that it starts. They hold
source alone, so every process would compile it anew, which takes more than half a second. Where the path has the
installed packages of which they are copies, this module takes them out.

Every start of Python runs this, so it imports nothing but what is loaded then.
"""

from __future__ import annotations

import os
import sys

_VARIABLE = "PYSPARK_PYTHON"
# Where an installed PySpark has its archives, below the folder of packages.
_ARCHIVES = os.path.join(os.sep, "pyspark", "python", "lib", "")


def set_default() -> None:
    """Set PYSPARK_PYTHON to this Python if Spark would start another."""
    if _VARIABLE in os.environ or not sys.executable:
        return
    found = _first_on_path("python3")
    if found is None or os.path.realpath(os.path.dirname(found)) != os.path.realpath(os.path.dirname(sys.executable)):
        os.environ[_VARIABLE] = sys.executable


def drop_archives(path: list[str]) -> None:
    """Take the archives of PySpark out of a search path that has the installed packages of which they are copies."""
    archives = [entry for entry in path if _ARCHIVES in entry and entry.endswith(".zip")]
    if not archives:
        return
    folders = {os.path.realpath(entry) for entry in path}
    for archive in archives:
        packages, _, name = os.path.realpath(archive).rpartition(_ARCHIVES)
        # pyspark.zip, py4j-0.10.9.9-src.zip
        package = name.removesuffix(".zip").partition("-")[0]
        if packages in folders and os.path.isfile(os.path.join(packages, package, "__init__.py")):
            path.remove(archive)


def _first_on_path(name: str) -> str | None:
    """Return what `shutil.which` would, without importing it."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


set_default()
drop_archives(sys.path)
