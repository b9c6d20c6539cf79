"""The pairs of fixtures/*.txt: a title, a query, and what must be said about it.

    # title
    the query
    ----
    the plan, or the diagnostics

A title that ends with `reference: name` declares that input as reference data.
"""

import re
from dataclasses import dataclass
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(frozen=True)
class Example:
    title: str
    sql: str
    expected: str

    @property
    def reference_inputs(self) -> list[str]:
        return re.findall(r"reference: (\w+)$", self.title)


def examples(name: str) -> list[Example]:
    text = (FIXTURES / f"{name}.txt").read_text(encoding="utf-8")
    found = []
    for block in re.split(r"(?m)^# ", text)[1:]:
        title, _, rest = block.partition("\n")
        sql, _, expected = rest.partition("\n----\n")
        found.append(Example(title, sql, expected.strip("\n")))
    return found
