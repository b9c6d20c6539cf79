"""`python -m tests.fuzz.slice NAME SEED SECONDS TRIED [--seeded | --guided]`: one target or check, for a while.

Every input is written to the file TRIED before it is tried, and the file is removed at the end: if it is still there,
it holds what the process failed for, or died of.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.fuzz.mutation import mutations
from tests.fuzz.seeded import CHECKS

_BATCH = 1_000
_LENGTH_BYTES = 8
_MOST_MB = 512
"""How much more memory than for a good input a target may take for any."""


def read_tried(path: Path) -> bytes:
    """Return the input that was tried last."""
    content = path.read_bytes()
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    return content[_LENGTH_BYTES : _LENGTH_BYTES + length]


def main() -> None:
    """Try inputs until the time is up; a failure raises."""
    name, seed, seconds, tried = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
    logging.disable()
    with tried.open("wb", buffering=0) as file:

        def note(data: bytes) -> None:
            os.pwrite(file.fileno(), len(data).to_bytes(_LENGTH_BYTES, "little") + data, 0)

        if "--guided" in sys.argv:
            _guided(name, seed, seconds, note)
        else:
            attempts = _seeded(name, seed, note) if "--seeded" in sys.argv else _mutated(name, seed, note)
            next(attempts)
            before_mb, ends = _resident_mb(), time.monotonic() + seconds
            count, longest_s, began_s = 1, 0.0, time.monotonic()
            for _ in attempts:
                ended_s = time.monotonic()
                count, longest_s, began_s = count + 1, max(longest_s, ended_s - began_s), ended_s
                if ended_s > ends:
                    break
            peak_mb = _resident_mb()
            print(f"{count:,} inputs, longest {longest_s:.2f} s, {peak_mb} MB, {peak_mb - before_mb} MB more memory")
            assert name in CHECKS or peak_mb - before_mb < _MOST_MB, f"{peak_mb - before_mb} MB for a small input"
    tried.unlink()


def _seeded(name: str, seed: int, note: Callable[[bytes], None]) -> Iterator[None]:
    """Run a check on one seed after another."""
    # Rounds have neighbouring seeds, so each starts far from the next.
    for number in itertools.count(seed * 1_000_003 % 2**40):
        note(str(number).encode())
        CHECKS[name](number)
        yield


def _mutated(name: str, seed: int, note: Callable[[bytes], None]) -> Iterator[None]:
    """Run a target on one mutation after another."""
    from tests.fuzz.targets import TARGETS, run

    target = TARGETS[name]
    for part in itertools.count(seed * 1_000_003):
        for data in mutations(target.seeds, _BATCH, part):
            note(data)
            run(target, data)
            yield


def _guided(name: str, seed: int, seconds: float, note: Callable[[bytes], None]) -> None:
    """Let atheris choose the inputs by what they reach."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["tidegate"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]

    def run(data: bytes) -> None:
        note(data)
        target.run(data)

    with tempfile.TemporaryDirectory() as corpus:
        for number, example in enumerate(target.seeds):
            (Path(corpus) / str(number)).write_bytes(example)
        options = [
            f"-max_total_time={max(1, round(seconds))}",
            f"-seed={seed % 2**31 + 1}",
            "-max_len=4096",
            "-timeout=20",
        ]
        atheris.Setup([sys.argv[0], *options, "-rss_limit_mb=1024", corpus], run)
        atheris.Fuzz()


def _resident_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    main()
