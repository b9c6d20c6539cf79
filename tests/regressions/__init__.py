"""What `make fuzz` has found: the suite replays all of it (test_regressions.py), so no found defect comes back.

    examples/NAME.json        an example of a Hypothesis test: the test, Hypothesis's blob, and what it looked like
    inputs/TARGET/DIGEST      bytes that a target of tests/fuzz failed for
    seeds.json                seeds that a seeded check of tests/fuzz failed for

Commit new files together with the fix.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

# A test of the search itself keeps what it finds elsewhere.
FOLDER = Path(os.environ.get("TIDEGATE_REGRESSIONS", Path(__file__).parent))
_BLOB = re.compile(r"@reproduce_failure\('[^']*', b'([A-Za-z0-9+/=]+)'\)")
_LOOK = re.compile(r"(?:Failing|Falsifying) [a-z ]+: (.*?)\n[E ]*You can reproduce", re.DOTALL)
_LONGEST_LOOK = 4_000


@dataclass(frozen=True)
class Example:
    """An example of a Hypothesis test, by the test's pytest id."""

    test: str
    blob: str
    looks_like: str

    def is_shown_in(self, report: str) -> bool:
        """Return whether Hypothesis reported this example, not another that the same choices now lead to."""
        return _plain(self.looks_like) in _plain(report)


def _plain(text: str) -> str:
    """Return a call as Hypothesis prints it, without its remarks and layout."""
    return "".join(re.sub(r"#.*$", "", text, flags=re.MULTILINE).split()).replace(",)", ")")


def examples() -> Mapping[str, Example]:
    """Return the saved examples of Hypothesis tests by their file names."""
    return {
        path.stem: Example(**json.loads(path.read_text(encoding="utf-8")))
        for path in sorted((FOLDER / "examples").glob("*.json"))
    }


def inputs(target: str) -> list[bytes]:
    """Return the saved inputs of a target of tests/fuzz."""
    return [path.read_bytes() for path in sorted((FOLDER / "inputs" / target).glob("*"))]


def seeds() -> Mapping[str, list[int]]:
    """Return the saved seeds by check."""
    path = FOLDER / "seeds.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def save_examples(test: str, report: str) -> list[Path]:
    """Save the examples that a failure report of pytest names.

    Args:
        test: the pytest id of the failed test.
        report: the report's text, with Hypothesis's blobs.

    Returns:
        The files written: none if the report names no blob, as for a state machine, whose steps it prints instead.
    """
    look = _LOOK.search(report)
    looks_like = re.sub(r"^E {1,3}", "", look[1], flags=re.MULTILINE)[:_LONGEST_LOOK] if look else ""
    paths = []
    for blob in dict.fromkeys(_BLOB.findall(report)):
        example = Example(test, blob, looks_like)
        name = re.sub(r"\W+", "-", test.rpartition("/")[2]).strip("-")
        path = FOLDER / "examples" / f"{name}-{hashlib.sha256(blob.encode()).hexdigest()[:8]}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(example), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        paths.append(path)
    return paths


def save_input(target: str, data: bytes) -> Path:
    """Save bytes that a target failed for."""
    path = FOLDER / "inputs" / target / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def save_seed(check: str, seed: int) -> Path:
    """Save a seed that a check failed for."""
    path = FOLDER / "seeds.json"
    found = {name: list(numbers) for name, numbers in seeds().items()}
    found[check] = sorted({*found.get(check, []), seed})
    path.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return path
