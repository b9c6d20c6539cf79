"""Queries, events and reference data by chance: queries of the grammar, and known ones with their words changed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from tests.sql.examples import examples
from tidegate.engine import CATALOG
from tidegate.sql.plan.catalog import Form

CASES = Path(__file__).parent.parent / "cases"
KNOWN = [json.loads(path.read_text(encoding="utf-8"))["query"] for path in sorted(CASES.glob("*.json"))]
KNOWN += [example.sql for name in ("plans", "refusals") for example in examples(name)]
WORDS = [re.findall(r"\w+|'[^']*'|\s+|.", query) for query in KNOWN]
POOL = sorted({word for words in WORDS for word in words})

ARGUMENTS = {
    "unit": ["second", "mi", "hh", "day", "month", "year"],
    "text": ["s", "'x'", "UPPER(s)", "t", "v"],
    "datetime": ["t", "System.Timestamp()", "'2026-01-01T00:00:01Z'"],
    "record": ["r", "CreatePoint(v, w)", "r.p"],
    "array": ["l", "r.l"],
    "source": ["a"],
    "fraction": ["0.5"],
    "count": ["2"],
}
WINDOWS = [
    "TumblingWindow(second, 3)",
    "HoppingWindow(second, 6, 2)",
    "HoppingWindow(second, 5, 2)",
    "SlidingWindow(second, 2)",
    "SessionWindow(second, 1, 4)",
    "SessionWindow(second, 2, 5) OVER (PARTITION BY k)",
    "System.Timestamp()",
    "Windows(Window('x', TumblingWindow(second, 2)), Window('y', SlidingWindow(second, 1)))",
]


def mutated(random: Random) -> str:
    """A known query with some of its words changed."""
    words = list(random.choice(WORDS))
    for _ in range(random.randint(1, 5)):
        place = random.randint(0, len(words))
        match random.randint(0, 3):
            case 0:
                del words[place : place + 1]
            case 1:
                words.insert(place, random.choice(POOL))
            case 2:
                words[place : place + 1] = [random.choice(POOL)]
            case _:
                start = random.randint(0, len(words))
                words[place:place] = words[start : start + random.randint(1, 15)]
    return "".join(words)


Option = TypeVar("Option")


class Grammar:
    """Queries over the inputs a and b."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def _one(self, *options: Option) -> Option:
        return self.random.choice(options)

    def value(self, depth: int = 0) -> str:
        """A value of any type."""
        random = self.random
        if depth > 2 or random.random() < 0.4:
            return self._one(
                *("v", "w", "s", "t", "k", "r", "l", "u", "m", "a.v", "r.p", "r.x.y"),
                *("1", "2.5", "'7'", "NULL", "PartitionId"),
            )
        match random.randint(0, 7):
            case 0 | 1:
                return (
                    f"({self.value(depth + 1)} {self._one('+', '-', '*', '/', '%', '&', '|')} {self.value(depth + 1)})"
                )
            case 2:
                type_ = self._one("bigint", "float", "nvarchar(max)", "datetime", "bit")
                return f"{self._one('CAST', 'TRY_CAST', 'TRY_CAST')}({self.value(depth + 1)} AS {type_})"
            case 3:
                one, other = self.value(depth + 1), self.value(depth + 1)
                return f"CASE WHEN {self.condition(depth + 1)} THEN {one} ELSE {other} END"
            case 4:
                return self._one("udf.f(v)", "udf.f(r)", "System.Timestamp()", "GetMetadataPropertyValue(a, 'EventId')")
        return self.call(depth)

    def call(self, depth: int) -> str:
        """A scalar function with arguments that are mostly of the right kinds."""
        name = self.random.choice(sorted(each.name for each in CATALOG.scalars.values() if each.form is Form.CALL))
        signature = CATALOG.scalars[name].signature
        count = signature.least if signature.most is None else self.random.randint(signature.least, signature.most)
        args = []
        for index in range(count + (self.random.random() < 0.1 and signature.most is None)):
            options = ARGUMENTS.get(signature.kind(index).value)
            args.append(self._one(*options) if options and self.random.random() < 0.8 else self.value(depth + 1))
        return f"{CATALOG.spelling(name)}({', '.join(args)})"

    def condition(self, depth: int = 0) -> str:
        """A condition."""
        match self.random.randint(0, 5):
            case 0 | 1:
                return f"{self.value(depth + 1)} {self._one('=', '<>', '<', '>=')} {self.value(depth + 1)}"
            case 2:
                return f"{self.value(depth + 1)} IS {self._one('', 'NOT ')}NULL"
            case 3:
                return f"v {self._one('', 'NOT ')}IN ({self.value(depth + 1)}, 1, '2')"
            case 4:
                return (
                    f"({self.condition(depth + 1)} {self._one('AND', 'OR')} NOT {self.condition(depth + 1)})"
                    if depth < 2
                    else "v = 1"
                )
        return self._one("s LIKE '%x_'", "v BETWEEN 0 AND w", "k = 'x'")

    def aggregate(self) -> str:
        """An aggregate over a window."""
        name = self._one("SUM", "AVG", "MIN", "MAX", "COUNT", "STDEV", "VARP", "Collect", "uda.g")
        distinct = self._one("", "", "DISTINCT ") if name not in ("Collect", "uda.g") else ""
        return self._one(
            f"{name}({distinct}{self.value(1)})",
            "COUNT(*)",
            f"TopOne() OVER (ORDER BY {self._one('v', 'w', 't')} {self._one('', 'DESC')})",
            f"CollectTop(2) OVER (ORDER BY v, {self._one('w', 't')})",
            f"PERCENTILE_{self._one('CONT', 'DISC')}(0.3) OVER (ORDER BY {self._one('v', 'w')})",
        )

    def temporal(self) -> str:
        """A function of the rows before."""
        partition, when = self._one("", "PARTITION BY k "), self._one("", f" WHEN {self.condition(1)}")
        over = f"OVER ({partition}LIMIT DURATION(second, {self._one('1', '3')}){when})"
        return self._one(
            f"LAG({self.value(2)}, {self._one('1', '2')}) {over}",
            f"LAST({self.value(2)}) {over}",
            f"{self._one('SUM', 'MAX', 'COUNT', 'Collect', 'uda.g')}({self.value(2)}) {over}",
            f"ISFIRST(second, 2) OVER (PARTITION BY {self._one('k', 'v')})",
            f"AnomalyDetection_SpikeAndDip(v, 90, 20, 'spikesanddips') {over}",
            f"AnomalyDetection_ChangePoint(w, 80, 10) {over}",
        )

    def source(self) -> str:
        """A FROM."""
        times = self._one(
            "", "", " TIMESTAMP BY t", " TIMESTAMP BY DATEADD(second, w, '2026-01-01')", " TIMESTAMP BY t OVER k"
        )
        pattern = self._one("A B", "A+ B?", "(A | B)+ .", "A{2,3}", "A* B* A")
        return self._one(
            f"a{times}",
            f"a{times}",
            self.joined(times),
            self.joined(times),
            "a CROSS APPLY GetArrayElements(a.l) AS e",
            "a OUTER APPLY GetRecordProperties(a.r) AS e",
            "a MATCH_RECOGNIZE (LIMIT DURATION(second, 4) PARTITION BY k MEASURES Last(A.v) AS v, Max(w) AS w, "
            "First(k) AS k, Last(s) AS s, Classifier() AS l, Last(t) AS t, Last(r) AS r "
            f"PATTERN ({pattern}) DEFINE A AS {self.condition(2)}{self._one('', ', B AS B.v > Last(A.v)')}) AS a",
        )

    def joined(self, times: str) -> str:
        """A FROM over a join, under the names that the rest of the grammar uses."""
        kind, low = self._one("", "LEFT "), self._one("0", "-1")
        other, source = self._one(
            (
                "c.v AS u, c.k AS m",
                f"a{times} {kind}JOIN b AS c ON DATEDIFF(second, a, c) BETWEEN {low} AND 2 AND a.k = c.k",
            ),
            ("b.*", f"a{times} {kind}JOIN b{times} ON DATEDIFF(second, a, b) BETWEEN 0 AND 2 AND a.v > b.v"),
            ("c.s AS u", f"a{times} {kind}JOIN a AS c{times} ON DATEDIFF(second, a, c) BETWEEN 1 AND 3 AND a.k = c.k"),
            ("table.n AS u", f"a{times} {kind}JOIN table ON a.k = table.k"),
            (
                "one.n AS u, other.n AS m",
                f"a{times} JOIN table AS one ON a.k = one.k {kind}JOIN table AS other ON one.n < other.n AND a.w > 3",
            ),
        )
        return f"(SELECT a.*, {other} FROM {source}) AS a"

    def select(self, into: str) -> str:
        """A SELECT."""
        source = self.source()
        where = self._one("", "", f" WHERE {self.condition()}")
        if self.random.random() < 0.4:
            items = ", ".join(f"{self.aggregate()} AS c{place}" for place in range(self.random.randint(1, 3)))
            key = self._one("k", "v", "UPPER(s)", "r")
            having = self._one("", "", " HAVING COUNT(*) > 1")
            window = self._one(*WINDOWS)
            return f"SELECT {key} AS k, {items}{into} FROM {source}{where} GROUP BY {key}, {window}{having}"
        items = ", ".join(
            f"{self.temporal() if self.random.random() < 0.3 else self.value()} AS c{place}"
            for place in range(self.random.randint(1, 3))
        )
        return f"SELECT {self._one('', '', '*, ', 'a.*, ')}{items}{into} FROM {source}{where}"

    def query(self) -> str:
        """A script."""
        steps = ""
        if self.random.random() < 0.3:
            steps = (
                f"WITH a AS ({self.select('')}) " if self.random.random() < 0.2 else f"WITH d AS ({self.select('')}) "
            )
        last = self._one("", "", f" UNION {self.select('')}", f" {self.select(' INTO p')}")
        table = self._one(
            "",
            "",
            "",
            "CREATE TABLE a (v float, w bigint, s nvarchar(max), k nvarchar(max), t datetime, r record, l array); ",
        )
        return f"{table}{steps}{self.select(' INTO o')}{last}"


TABLE: list[dict[str, Any]] = [{"k": "x", "n": 1}, {"k": "y", "n": 2.5}, {"k": "x", "n": "0"}, {"k": None}]
"""Reference data: the rows of table."""

VALUES: list[Any] = [
    None,
    0,
    1,
    -3,
    2.5,
    "7",
    "x",
    "2026-01-01T00:00:03Z",
    True,
    [1, "x"],
    {"p": {"l": [1]}},
    2**62,
    1e300,
    "",
    "7" * 5000,
    "true",
]
RECORDS: list[Any] = [None, {"p": 1, "l": [1, 2], "x": {"y": "z"}}, {"type": "Point", "coordinates": [1, 2]}, {}, 5]


def events(random: Random, count: int) -> list[dict[str, Any]]:
    """Bodies whose fields have mostly, but not always, the types that the grammar thinks of."""
    found = []
    for number in range(count):
        event = {
            "v": random.choice([1, 2, 3.5, -1]),
            "w": random.randint(0, 9),
            "s": random.choice(["x", "yx", "ü"]),
            "k": random.choice("xy"),
            "t": f"2026-01-01T00:00:{number:02}Z",
            "r": random.choice(RECORDS),
            "l": random.choice([[], [1, 2], ["a", None], [{"q": 1}]]),
        }
        for name in list(event):
            chance = random.random()
            if chance < 0.1:
                event[name] = random.choice(VALUES)
            elif chance < 0.14:
                del event[name]
        found.append(event)
    return found
