"""Runs many worlds: `python -m tests.simulation [--runs N] [--from SEED] [--seed SEED] [--steps N]`."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.simulation.world import run_world


def main() -> int:
    """Run the worlds of consecutive seeds, or replay one."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="how many worlds")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--steps", type=int, default=120, help="how many things happen in each")
    parser.add_argument("--seed", type=int, help="replay one world and print what happened")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    happened: Counter[str] = Counter()
    failed = 0
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.runs)
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            try:
                world = run_world(seed, Path(folder) / "world", given.steps)
            except AssertionError as error:
                failed += 1
                print(error, file=sys.stderr)
                continue
            if given.seed is not None:
                print("\n".join(world.history))
            happened.update(line.split("ms  ")[-1].partition(":")[0] for line in world.history)
    for name, count in sorted(happened.items()):
        print(f"{count:7}  {name}")
    print(f"{len(seeds)} worlds, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
