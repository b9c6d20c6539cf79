"""Test results as JUnit XML, which every build server shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class JunitCase:
    """One test: its name, its class, its duration, and what is wrong (a line each; none: it passed)."""

    name: str
    group: str
    seconds: float
    differences: Sequence[str] = ()


def write_junit(path: Path, suite: str, tests: Sequence[JunitCase]) -> None:
    """Write the results.

    Raises:
        OSError: the file cannot be written.
    """
    failed = str(sum(bool(test.differences) for test in tests))
    counts = {"tests": str(len(tests)), "failures": failed, "errors": "0", "skipped": "0"}
    seconds = f"{sum(test.seconds for test in tests):.3f}"
    root = ElementTree.Element("testsuites", {**counts, "time": seconds})
    parent = ElementTree.SubElement(root, "testsuite", {"name": suite, **counts, "time": seconds})
    for test in tests:
        attributes = {"name": test.name, "classname": test.group, "time": f"{test.seconds:.3f}"}
        node = ElementTree.SubElement(parent, "testcase", {key: _clean(value) for key, value in attributes.items()})
        if test.differences:
            failure = ElementTree.SubElement(node, "failure", {"message": _clean(test.differences[0])})
            failure.text = _clean("\n".join(test.differences))
    ElementTree.indent(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _clean(text: str) -> str:
    """Replace the characters that XML cannot contain."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
