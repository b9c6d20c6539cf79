"""How actual rows differ from expected ones, arranged so that a person sees where to look.

Rows are compared as bags. Those left over on either side are paired with the most similar one, and for a pair only the
fields that differ are shown.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.job.testing.case import instant_of, same_value

Row = Mapping[str, Any]

_ABSENT = object()
# With more pairs than this, leftover rows are shown without pairing.
_MOST_PAIRS = 100_000
_MOST_SHOWN = 20
_LARGEST = 1e300


@dataclass(frozen=True, slots=True)
class Differing:
    """A row that got with other values than expected.

    Attributes:
        number: its position among the expected rows, from 1.
        fields: name, the expected and the actual value; `_ABSENT` shows as "no such field".
    """

    number: int
    expected: Row
    actual: Row
    fields: tuple[tuple[str, Any, Any], ...]


@dataclass(frozen=True, slots=True)
class RowDifference:
    """The difference of two bags of rows; numbers count from 1 among the expected and the actual rows."""

    equal: int
    differing: tuple[Differing, ...] = ()
    missing: tuple[tuple[int, Row], ...] = ()
    unexpected: tuple[tuple[int, Row], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether the rows are the same."""
        return not (self.differing or self.missing or self.unexpected)

    def summary(self) -> str:
        """Return the difference in one line."""
        counted = [
            (self.equal, "as expected"),
            (len(self.differing), "different"),
            (len(self.missing), "missing"),
            (len(self.unexpected), "unexpected"),
        ]
        return ", ".join(f"{count} {what}" for count, what in counted if count) or "no rows, as expected"

    def lines(self) -> list[str]:
        """Return the whole difference: `~` marks a row that differs, `-` a missing one, `+` an unexpected one."""
        lines = []
        for row in self.differing[:_MOST_SHOWN]:
            lines.append(f"~ row {row.number}: {_shown(_without(row.expected, row.fields))}")
            width = max(len(name) for name, _, _ in row.fields)
            lines += [
                f"    {name.ljust(width)}  expected {_shown(expected)}, got {_shown(actual)}"
                for name, expected, actual in row.fields
            ]
        lines += [f"- row {number}: {_shown(row)}" for number, row in self.missing[:_MOST_SHOWN]]
        lines += [f"+ {_shown(row)}" for _, row in self.unexpected[:_MOST_SHOWN]]
        shown = sum(min(len(part), _MOST_SHOWN) for part in (self.differing, self.missing, self.unexpected))
        left = len(self.differing) + len(self.missing) + len(self.unexpected) - shown
        return [*lines, f"… and {left} more"] if left else lines

    def as_json(self) -> dict[str, Any]:
        """Return the difference as a JSON object."""
        return {
            "equal": self.equal,
            "different": [
                {
                    "row": row.number,
                    "expected": row.expected,
                    "actual": row.actual,
                    "fields": [name for name, _, _ in row.fields],
                }
                for row in self.differing
            ],
            "missing": [row for _, row in self.missing],
            "unexpected": [row for _, row in self.unexpected],
        }


def compare_rows(
    expected: Sequence[Any], actual: Sequence[Row], *, without_case: bool = False, ignored: Sequence[str] = ()
) -> RowDifference:
    """Compare two bags of rows.

    Args:
        without_case: match the names of fields regardless of case.
        ignored: fields that are not compared, as "name" or "record.name", without case.
    """
    wanted = [_stripped(row, ignored) for row in expected]
    got = [_stripped(row, ignored) for row in actual]
    left_wanted, left_got = _left_over(wanted, got, without_case)
    equal = len(wanted) - len(left_wanted)
    differing = _paired(wanted, got, left_wanted, left_got, without_case)
    return RowDifference(
        equal,
        tuple(differing),
        tuple((place + 1, wanted[place]) for place in left_wanted),
        tuple((place + 1, got[place]) for place in left_got),
    )


def _left_over(wanted: Sequence[Any], got: Sequence[Row], without_case: bool) -> tuple[list[int], list[int]]:
    """Return the positions of rows on either side that have no equal on the other."""
    waiting: dict[str, list[int]] = {}
    for place, row in enumerate(got):
        waiting.setdefault(_likely(row, without_case), []).append(place)
    left_wanted = []
    for place, row in enumerate(wanted):
        near = waiting.get(_likely(row, without_case), [])
        same = next((other for other in near if same_value(row, got[other], without_case=without_case)), None)
        if same is None:
            left_wanted.append(place)
        else:
            near.remove(same)
    left_got = sorted(place for places in waiting.values() for place in places)
    if len(left_wanted) * len(left_got) <= _MOST_PAIRS:
        # Numbers that differ only in their last digits may round apart.
        for place in list(left_wanted):
            for other in left_got:
                if same_value(wanted[place], got[other], without_case=without_case):
                    left_wanted.remove(place)
                    left_got.remove(other)
                    break
    return left_wanted, left_got


def _likely(row: Any, without_case: bool) -> str:
    """Return a text that equal rows share and that different rows almost never do."""
    return json.dumps(_rounded(row, without_case), sort_keys=True)


def _rounded(value: Any, without_case: bool) -> Any:
    if isinstance(value, Mapping):
        return {name.lower() if without_case else name: _rounded(inner, without_case) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner, without_case) for inner in value]
    if isinstance(value, str) and (instant := instant_of(value)) is not None:
        return f"the time {instant}"
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST:
        return f"{value:.8g}"
    return value


def _paired(
    wanted: Sequence[Row], got: Sequence[Row], left_wanted: list[int], left_got: list[int], without_case: bool
) -> list[Differing]:
    """Pair each leftover row with the one it is most like, and remove the pairs from both lists."""
    if len(left_wanted) * len(left_got) > _MOST_PAIRS:
        return []
    likeness = [
        (len(fields), place, other, fields)
        for place in left_wanted
        for other in left_got
        if (fields := _fields(wanted[place], got[other], without_case)) is not None
    ]
    pairs = []
    for _, place, other, fields in sorted(likeness, key=lambda one: one[:3]):
        if place in left_wanted and other in left_got:
            left_wanted.remove(place)
            left_got.remove(other)
            pairs.append(Differing(place + 1, wanted[place], got[other], fields))
    return sorted(pairs, key=lambda pair: pair.number)


def _fields(expected: Any, actual: Any, without_case: bool) -> tuple[tuple[str, Any, Any], ...] | None:
    """Return the fields that differ; None if the rows have too little in common to be paired."""
    if not isinstance(expected, Mapping) or not isinstance(actual, Mapping):
        return None
    spelled = {name.lower() if without_case else name: name for name in (*actual, *expected)}
    given = {name.lower() if without_case else name: value for name, value in expected.items()}
    got = {name.lower() if without_case else name: value for name, value in actual.items()}
    differing = tuple(
        (name, given.get(key, _ABSENT), got.get(key, _ABSENT))
        for key, name in spelled.items()
        if key not in given or key not in got or not same_value(given[key], got[key], without_case=without_case)
    )
    return differing if len(spelled) == 1 or 2 * len(differing) <= len(spelled) else None


def _stripped(row: Any, ignored: Sequence[str]) -> Any:
    if not ignored or not isinstance(row, Mapping):
        return row
    here = {name.lower() for name in ignored if "." not in name}
    inner: dict[str, list[str]] = {}
    for path in ignored:
        name, dot, rest = path.lower().partition(".")
        if dot:
            inner.setdefault(name, []).append(rest)
    return {
        name: _stripped(value, inner.get(name.lower(), ())) for name, value in row.items() if name.lower() not in here
    }


def _without(row: Row, fields: Sequence[tuple[str, Any, Any]]) -> dict[str, Any]:
    names = Counter(name for name, _, _ in fields)
    return {name: value for name, value in row.items() if name not in names}


def _shown(value: Any) -> str:
    return "no such field" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
