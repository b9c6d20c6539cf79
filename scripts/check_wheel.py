"""Check what `make wheel` has built: what is in it, and that it runs where nothing else is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEEDED = (
    "tidegate/py.typed",
    "tidegate/portal/static/portal.js",
    "tidegate/portal/templates/base.html",
    "tidegate/__main__.py",
    "pyspark_tidegate/__init__.py",
)
UNWANTED = ("tests/", "benchmarks/", "docs/", ".hypothesis", "__pycache__")


def main() -> None:
    """Check the newest wheel and source archive of dist/."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    (archive,) = (ROOT / "dist").glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    _expect(not [name for name in NEEDED if name not in names], f"{wheel.name} lacks one of {NEEDED}")
    strays = [name for name in names if name.startswith(UNWANTED) or "__pycache__" in name]
    _expect(not strays, f"{wheel.name} has {strays[:3]}")
    modules = {str(path.relative_to(ROOT / "src").as_posix()) for path in (ROOT / "src").rglob("*.py")}
    _expect(modules <= set(names), f"{wheel.name} lacks {sorted(modules - set(names))[:3]}")
    with tarfile.open(archive) as packed:
        contents = {name.partition("/")[2] for name in packed.getnames()}
    _expect({"pyproject.toml", "LICENSE", "README.md"} <= contents, f"{archive.name} is not complete")
    with tempfile.TemporaryDirectory() as folder:
        _try(wheel, Path(folder))
    print(f"{wheel.name}: {len(names)} files, installed and started")


def _try(wheel: Path, folder: Path) -> None:
    """Install the wheel without extras, and see the version, the help, and the answer to a missing extra."""
    venv.create(folder / "venv", with_pip=True)
    scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    _run([str(scripts / "python"), "-m", "pip", "install", "--quiet", str(wheel)], folder)
    version = wheel.name.split("-")[1]
    said = _run([str(scripts / "tidegate"), "--version"], folder)
    _expect(version in said, f"--version says {said!r}")
    _run([str(scripts / "tidegate"), "up", "--help"], folder)
    _run(
        [str(scripts / "python"), "-c", "import tidegate.server, tidegate.client; assert tidegate.__version__"], folder
    )
    refused = subprocess.run(
        [str(scripts / "tidegate"), "job", "check", "x.toml"], cwd=folder, capture_output=True, text=True, check=False
    )
    _expect('pip install "tidegate[spark]"' in refused.stderr, f"without the extra a job says {refused.stderr!r}")


def _run(command: list[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    _expect(done.returncode == 0, f"{' '.join(command)} ends with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        sys.exit(f"check_wheel: {otherwise}")


if __name__ == "__main__":
    main()
