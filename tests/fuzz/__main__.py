"""`python -m tests.fuzz TARGET --runs N`: one target for long."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.mutation import mutations


def main() -> None:
    """With atheris where it is there, which looks where it gets; else blindly."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", nargs="?")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--blindly", action="store_true", help="without atheris")
    given = parser.parse_args()
    logging.disable()
    guided = importlib.util.find_spec("atheris") is not None and not given.blindly
    if guided and given.target:
        atheris = importlib.import_module("atheris")
        with atheris.instrument_imports(include=["tidegate"]):
            from tests.fuzz.targets import TARGETS
    else:
        from tests.fuzz.targets import TARGETS
    if given.target not in TARGETS:
        raise SystemExit("targets: " + ", ".join(TARGETS))
    target = TARGETS[given.target]
    if guided:
        with tempfile.TemporaryDirectory() as corpus:
            for number, seed in enumerate(target.seeds):
                (Path(corpus) / str(number)).write_bytes(seed)
            options = [
                f"-runs={given.runs}",
                f"-seed={given.seed}",
                "-max_len=4096",
                "-timeout=20",
                "-rss_limit_mb=1024",
            ]
            atheris.Setup([sys.argv[0], *options, "-print_final_stats=1", corpus], target.run)
            atheris.Fuzz()
        return
    began, before = time.monotonic(), _resident_mb()
    for data in mutations(target.seeds, given.runs, given.seed):
        try:
            target.run(data)
        except BaseException:
            print(f"{given.target} fails for {data.hex()}")
            raise
    took = time.monotonic() - began
    print(f"{given.target}: {given.runs:,} inputs in {took:.0f} s, {_resident_mb() - before} MB more memory")


def _resident_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    main()
