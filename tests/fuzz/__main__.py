"""`make fuzz`: search for inputs that break Tidegate, for a given time, and keep what is found.

    python -m tests.fuzz                            everything in turn, for ten minutes
    python -m tests.fuzz --minutes 240              for four hours
    python -m tests.fuzz codec equality             only these
    python -m tests.fuzz tests/ordering             only the Hypothesis tests of a folder or a file

A round tries, in random order and with a new seed: every target of bytes from outside and every seeded check for half a
minute, and every file with Hypothesis tests on 500 examples a test (TIDEGATE_FUZZ_EXAMPLES). Bytes are mutated blindly,
or by atheris where it is installed (pip install atheris), which watches what they reach. Each runs in a process of its
own, so a crash or a hang is found like any other failure. What is found lands in tests/regressions, where the suite
replays it; commit it with the fix. The attacks `live_…` go against a running hub while another client publishes, and
say what it noticed (tests/fuzz/live.py); they are not saved, but a seed repeats them.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests import regressions
from tests.fuzz.live import ATTACKS
from tests.fuzz.seeded import CHECKS
from tests.fuzz.slice import read_tried
from tests.fuzz.targets import TARGETS
from tests.source import ROOT

_LIGHT = "hypothesis and not heavy"
# What is not back by then hangs; a slice itself takes half a minute.
_LONGEST_S = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Search in rounds until the time is up; return how many things were found, at most 100."""
    known = [*TARGETS, *CHECKS, *ATTACKS]
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(known)}, or a test path")
    parser.add_argument("--minutes", type=float, default=10, help="how long to search (10)")
    parser.add_argument("--slice-seconds", type=float, default=30, help="how long each is given in a round (30)")
    parser.add_argument("--seed", type=int, help="the first round's seed, to repeat a search (random)")
    parser.add_argument("--blindly", action="store_true", help="mutate bytes without atheris")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in known and not (ROOT / name).exists()]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}, or a test path")
    names = given.names or [*known, *_hypothesis_tests()]
    first = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    guided = importlib.util.find_spec("atheris") is not None and not given.blindly
    ends = time.monotonic() + 60 * given.minutes
    print(f"seed {first}, {given.minutes:g} minutes{', guided by atheris' if guided else ''}", flush=True)
    found: list[Path] = []
    for seed in itertools.count(first):
        # A short search is over before its first round is, and shall not always see the same part of it.
        for name in random.Random(seed).sample(names, len(names)):
            if (left_s := ends - time.monotonic()) <= 0:
                return _report(found)
            found += _search(name, seed, min(given.slice_seconds, left_s), guided)
    return _report(found)


def _hypothesis_tests() -> list[str]:
    """Return the files with Hypothesis tests, by their paths."""
    paths = (path for path in (ROOT / "tests").rglob("test_*.py") if "@given(" in path.read_text(encoding="utf-8"))
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def _report(found: Sequence[Path]) -> int:
    for path in sorted({*found}):
        print(f"found: {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    print(f"{len({*found})} found" if found else "nothing found")
    return min(100, len(found))


def _search(name: str, seed: int, seconds: float, guided: bool) -> list[Path]:
    """Give one of them its slice of time, and return the files of what was found."""
    before = _files()
    tried = Path(tempfile.gettempdir()) / f"tidegate-fuzz-{os.getpid()}"
    tried.unlink(missing_ok=True)
    if name in TARGETS or name in CHECKS:
        how = ["--seeded"] if name in CHECKS else ["--guided"] * guided
        command = [sys.executable, "-m", "tests.fuzz.slice", name, str(seed), str(seconds), str(tried), *how]
        environment = dict(os.environ)
    elif name in ATTACKS:
        command = [sys.executable, "-m", "tests.fuzz.live", name, str(seed), str(seconds), str(tried)]
        environment = dict(os.environ)
    else:
        command = [sys.executable, "-m", "pytest", "-q", "-m", _LIGHT, name]
        environment = os.environ | {"TIDEGATE_HYPOTHESIS": "search"}
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=_LONGEST_S
        )
        code, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as expired:
        code, said = -1, f"no end after {_LONGEST_S} s: {expired.cmd}"
    lines = said.strip().splitlines() or [""]
    print(f"{name}: seed {seed}, {time.monotonic() - began:.0f} s: {lines[-1]}", flush=True)
    if code == 0:
        return []
    print("\n".join(lines[-40:]), flush=True)
    if tried.exists() and name in ATTACKS:
        # What a hub has come to does not follow from the last of its inputs alone.
        tried.unlink()
        return [Path(f"{name}, seed {seed}")]
    if tried.exists():
        # An input is written down before it is tried, so it is known even if the process died of it.
        data = read_tried(tried)
        _ = regressions.save_input(name, data) if name in TARGETS else regressions.save_seed(name, int(data))
        tried.unlink()
    after = _files()
    return sorted(path for path, stamp in after.items() if before.get(path) != stamp)


def _files() -> dict[Path, int]:
    paths = [path for path in regressions.FOLDER.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    return {path: path.stat().st_mtime_ns for path in paths}


if __name__ == "__main__":
    sys.exit(main())
