"""All benchmarks, one after the other, each in a process of its own: `python -m benchmarks [NAME …]`.

Each prints its own table. Figures are medians and ratios within one run; leave the machine alone meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all; the exit code is 1 if one of them failed."""
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"no benchmark called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or NAMES:
        print(f"\n== {name} ==", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=HERE.parent, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
