"""Runs many random jobs: `python -m tests.oracle [--cases N] [--from SEED] [--minutes M] [--seed SEED]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.oracle.differential import difference
from tests.oracle.generation import job_of


def main() -> int:
    """Compare random jobs until the number or the time is reached, and print what they combined."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="how many jobs at most")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--minutes", type=float, default=60.0, help="when to stop at the latest")
    parser.add_argument("--seed", type=int, help="one job only, shown in full")
    parser.add_argument("--show", type=int, default=3, help="how many differences to print in full")
    given = parser.parse_args()
    if given.seed is not None:
        found = difference(given.seed)
        print(found or f"seed {given.seed}: no difference\n{job_of(given.seed).query.sql()}")
        return 1 if found else 0
    started, combined, failed, ran = time.monotonic(), Counter[str](), [], 0
    for seed in range(given.first, given.first + given.cases):
        if time.monotonic() - started > given.minutes * 60:
            break
        features = job_of(seed).features
        combined.update(features)
        combined.update(f"{a} × {b}" for n, a in enumerate(features) for b in features[n + 1 :])
        found = difference(seed)
        ran += 1
        if found:
            failed.append(seed)
            if len(failed) <= given.show:
                print(found, end="\n\n", flush=True)
        if ran % 500 == 0:
            print(f"{ran} jobs, {len(failed)} with differences, {time.monotonic() - started:.0f} s", file=sys.stderr)
    for name, count in sorted(combined.items()):
        if " × " not in name:
            print(f"{count:7}  {name}")
    pairs = sum(" × " in name for name in combined)
    print(
        f"{ran} jobs in {time.monotonic() - started:.0f} s, {pairs} pairs of features; {len(failed)} with differences"
    )
    if failed:
        print("seeds:", *failed[:50])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
