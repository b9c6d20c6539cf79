"""Random jobs: a query, the logs of its inputs and a policy, each drawn from a seed.

Times are a few seconds apart and often exactly at a bound or one tick beside it, so that ties and edges are common.
Keys come from palettes in which neighbours are easily confused: case, accents, composed characters, 1 and 1.0, −0.0.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.oracle.queries import (
    Aggregate,
    AsText,
    Before,
    Both,
    Column,
    Comparison,
    Condition,
    Expression,
    Group,
    Input,
    IsNull,
    Join,
    Match,
    Plus,
    Query,
    ReferenceJoin,
    Relation,
    Select,
    Source,
    StepName,
    Timestamp,
    Union,
    Window,
)
from tests.oracle.semantics import Event
from tests.oracle.values import TICKS_PER_SECOND
from tidegate.ordering import format_time, parse_time

EPOCH = parse_time("2026-01-01T00:00:00Z")
_HALF = TICKS_PER_SECOND // 2
_BOTH = ("k", "PartitionId")

# Keys of the first palettes may be compared with `=` as well.
COMPARABLE: dict[str, tuple[Any, ...]] = {
    "plain": ("a", "b", "c"),
    "case": ("a", "A", "b", "B"),
    "accents": ("é", "e\u0301", "É", "e", "E"),
    "numbers": (1, 1.0, 2, 0, 0.0, -0.0, -1),
    "null": ("a", None, "A"),
    "long": ("x" * 300, "X" * 300, "x" * 299 + "y"),
}
PALETTES: dict[str, tuple[Any, ...]] = {
    **COMPARABLE,
    "mixed": (1, 1.0, True, "x", "X", 2**53, 2.0**53, 2**53 + 1, 0, False, -0.0),
    "kinds": ("1", 1, 1.0, True, None, "true", ""),
    "records": ({"x": 1}, {"x": 1.0}, {"X": 1}, {"x": 1, "y": "a"}, {"y": "A", "x": 1}, [1], [1.0], [1, 2], None),
}


@dataclass(frozen=True)
class Job:
    """One random job.

    Attributes:
        policy: early (None: off), late (−1: for ever) and out of order in seconds, and the action.
        names: the rows of the reference table `names`.
        max_events_per_step: two cuts of the log into steps.
        features: what the job combines, for the table of a long run.
    """

    seed: int
    query: Query
    events: dict[str, list[Event]]
    policy: tuple[float | None, float, float, str]
    names: list[dict[str, Any]]
    max_events_per_step: tuple[int, int]
    features: tuple[str, ...]


@dataclass(frozen=True)
class _Rows:
    """What a relation offers to the one above: its columns by kind, and whether its rows have one order."""

    source: Source
    columns: dict[str, str]
    has_order: bool = True
    over: tuple[str, ...] = ()
    by_time: bool = True


def job_of(seed: int) -> Job:
    """Return the job of a seed."""
    return _Generator(random.Random(seed)).job(seed)


class _Generator:
    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._features: set[str] = set()
        self._steps: list[tuple[str, Relation]] = []

    def job(self, seed: int) -> Job:
        dice = self._dice
        palette = dice.choice(list(PALETTES))
        self._features.add(f"keys: {palette}")
        self._compares = palette in COMPARABLE
        # OVER is used for all inputs or for none.
        readings = [((), True), ((), True), ((), False)] if dice.random() < 0.5 else [(("k",), True), (_BOTH, True)]
        self._over, self._by_time = dice.choice(readings)
        outputs: list[Any] = []
        for number in range(dice.choice([1, 1, 2, 3])):
            if outputs and dice.random() < 0.15:
                self._over, self._by_time = dice.choice(readings)
            outputs.append((f"out{number}", self._output()))
        query = Query(tuple(self._steps), tuple(outputs))
        if len(outputs) > 1:
            self._features.add("several outputs")
        keys = PALETTES[palette]
        return Job(
            seed,
            query,
            {name: self._log(keys) for name in ("i", "j")},
            self._policy(),
            self._names(keys),
            (dice.randint(1, 12), dice.choice([1, 3, 1_000_000])),
            tuple(sorted(self._features)),
        )

    # Relations ---------------------------------------------------------------------------------------------------

    def _input(self, name: str = "") -> _Rows:
        dice = self._dice
        over = self._over if self._by_time else ()
        self._features.add("arrival time" if not self._by_time else f"over {', '.join(over)}" if over else "event time")
        columns = {"k": "key", "v": "number", "s": "text", "c": "code", "PartitionId": "partition"}
        return _Rows(Input(name or dice.choice("iiij"), self._by_time, over), columns, over=over, by_time=self._by_time)

    def _source(self) -> _Rows:
        """An input, or a step made of one."""
        if self._dice.random() < 0.6:
            return self._input()
        make = self._dice.choice([self._select, self._union, self._join, self._select])
        return self._step(*make())

    def _step(self, relation: Relation, rows: _Rows) -> _Rows:
        name = f"s{len(self._steps) + 1}"
        self._steps.append((name, relation))
        self._features.add("steps")
        return replace(rows, source=StepName(name))

    def _output(self) -> Relation:
        makers = [self._select, self._group, self._group, self._group_of_step, self._before, self._join, self._match]
        makers += [self._reference_join, self._before_of_group, self._union]
        return self._dice.choice(makers)()[0]

    def _select(self) -> tuple[Relation, _Rows]:
        rows = self._input()
        self._features.add("projection")
        items: list[tuple[str, Expression]] = [("k", Column("k")), ("v", Column("v")), ("s", Column("s"))]
        if self._dice.random() < 0.3:
            items.append(("v1", Plus("v", 1)))
        is_cast = self._dice.random() < 0.5
        items.append(("c", AsText("c") if is_cast else Column("c")))
        relation = Select(rows.source, tuple(items), self._condition(rows))
        columns = {"k": "key", "v": "number", "s": "text", "c": "cast" if is_cast else "code"}
        return relation, replace(rows, columns=columns)

    def _union(self) -> tuple[Relation, _Rows]:
        self._features.add("union")
        left, right = self._input(), self._input()
        return Union(left.source, right.source), replace(left, columns={"k": "key", "v": "number"}, has_order=False)

    def _join(self) -> tuple[Relation, _Rows]:
        dice = self._dice
        left, right = self._input(), self._input()
        low = dice.randint(-3, 3)
        high = low + dice.randint(0, 4)
        if left.over and not self._compares:
            return self._select()
        keyed = self._compares and (bool(left.over) or dice.random() < 0.85)
        is_left = dice.random() < 0.5
        self._features.add("left join" if is_left else "join")
        relation = Join(
            left.source,
            right.source,
            is_left,
            low,
            high,
            ("k", *left.over[1:]) if keyed else (),
            only_unmatched=is_left and dice.random() < 0.3,
        )
        columns = {"k": "key", "v": "number", "rk": "key", "w": "number"}
        return relation, replace(left, columns=columns, has_order=False)

    def _reference_join(self) -> tuple[Relation, _Rows]:
        rows = self._input()
        if rows.over or not self._compares:
            return self._select()
        self._features.add("reference join")
        relation = ReferenceJoin(rows.source, self._dice.random() < 0.5)
        return relation, replace(rows, columns={"k": "key", "v": "number", "label": "text"})

    def _group_of_step(self) -> tuple[Relation, _Rows]:
        return self._group(self._source())

    def _group(self, rows: _Rows | None = None) -> tuple[Relation, _Rows]:
        dice = self._dice
        rows = rows or self._input()
        keys = ["k"] if dice.random() < 0.75 or rows.over else []
        if "PartitionId" in rows.columns and (dice.random() < 0.15 or "PartitionId" in rows.over):
            keys.append("PartitionId")
        if "s" in rows.columns and dice.random() < 0.15:
            keys.append("s")
        windows = self._windows()
        aggregates = tuple((f"a{n}", one) for n, one in enumerate(self._aggregates(rows), start=1))
        relation = Group(
            rows.source,
            tuple(keys),
            windows,
            aggregates,
            self._condition(rows) if dice.random() < 0.3 else None,
            dice.choice([None, None, None, 2]),
        )
        columns = {key: rows.columns[key] for key in keys} | {"n": "number"}
        return relation, replace(rows, columns=columns, has_order=False)

    def _windows(self) -> tuple[Window, ...]:
        dice = self._dice
        if dice.random() < 0.12:
            self._features.add("Windows()")
            kinds = dice.sample(["tumbling", "hopping", "sliding", "session", "snapshot"], 2)
            return tuple(replace(self._window(kind), id=f"w{n}") for n, kind in enumerate(kinds))
        return (self._window(dice.choice(["tumbling", "hopping", "sliding", "session", "snapshot"])),)

    def _window(self, kind: str) -> Window:
        dice = self._dice
        self._features.add(kind)
        match kind:
            case "tumbling":
                return Window(kind, dice.randint(1, 7), offset=dice.choice([0, 0, 0, 1, -1]))
            case "hopping":
                return Window(kind, dice.randint(1, 8), dice.randint(1, 5), offset=dice.choice([0, 0, 0, 1]))
            case "sliding":
                return Window(kind, dice.randint(1, 5))
            case "session":
                timeout = dice.randint(1, 5)
                return Window(kind, timeout, dice.randint(timeout, 12))
        return Window(kind)

    def _aggregates(self, rows: _Rows) -> list[Aggregate]:
        dice = self._dice
        choices = [
            Aggregate("COUNT"),
            Aggregate("COUNT", "v"),
            *(Aggregate(name, "v") for name in ("SUM", "AVG", "MIN", "MAX", "STDEV", "VARP")),
            Aggregate("COUNT", "k", distinct=True),
            Aggregate("COUNT", "v", distinct=True),
            Aggregate("SUM", "v", distinct=True),
        ]
        if "c" in rows.columns:
            self._features.add("text MIN/MAX")
            is_text = rows.columns["c"] == "cast"
            choices += [Aggregate(name, "c", as_text=is_text) for name in ("MIN", "MAX")]
            if not is_text:
                choices += [Aggregate(name, "c", as_text=True, is_cast=True) for name in ("MIN", "MAX")]
        if rows.has_order:
            choices.append(Aggregate("COLLECT", "v"))
        if rows.has_order and isinstance(rows.source, StepName):
            down = dice.random() < 0.5
            choices += [
                Aggregate("TopOne", order=(("v", down),)),
                Aggregate("CollectTop", order=(("v", down),), limit=2),
            ]
        chosen = [Aggregate("COUNT"), *dice.sample(choices[1:], dice.randint(1, 3))]
        self._features.update(f"{'distinct ' if one.distinct else ''}{one.function}" for one in chosen)
        return chosen

    def _before(self, rows: _Rows | None = None) -> tuple[Relation, _Rows]:
        dice = self._dice
        rows = rows or (self._input() if dice.random() < 0.7 else self._step(*self._select()))
        number = "v" if "v" in rows.columns else "n"
        calls: list[tuple[str, Expression]] = [("ts", Timestamp()), ("k", Column("k"))]
        for place in range(dice.randint(1, 3)):
            by = ("k",) if dice.random() < 0.8 or "v" not in rows.columns else ()
            function = dice.choice(["LAG", "LAG", "LAST", "ISFIRST", "SUM", "COUNT", "MIN", "MAX", "AVG"])
            self._features.add(f"{function} OVER")
            when = self._condition(rows, number) if dice.random() < 0.3 else None
            call = Before(function, number, by, dice.randint(1, 9), dice.randint(1, 3), when)
            if function in ("MIN", "MAX", "LAG", "LAST") and "c" in rows.columns and dice.random() < 0.5:
                is_text = rows.columns["c"] == "cast"
                call = replace(call, column="c", as_text=True, is_cast=not is_text)
            calls.append((f"b{place}", call))
        relation = Select(rows.source, tuple(calls), self._condition(rows, number) if dice.random() < 0.3 else None)
        return relation, rows

    def _before_of_group(self) -> tuple[Relation, _Rows]:
        """Functions of the rows before over a window's results, of which each key has one at a time."""
        rows = self._input()
        keys = ("k",) if "PartitionId" not in rows.over else ("k", "PartitionId")
        window = self._window(self._dice.choice(["tumbling", "hopping", "session"]))
        group = Group(rows.source, keys, (window,), (("n", Aggregate("COUNT")),))
        if len(keys) > 1:
            return group, rows
        self._features.add("chain")
        return self._before(self._step(group, replace(rows, columns={"k": "key", "n": "number"})))

    def _match(self) -> tuple[Relation, _Rows]:
        dice = self._dice
        rows = self._input()
        self._features.add("MATCH_RECOGNIZE")
        names = "ABC"[: dice.randint(2, 3)]
        pattern = [(name, dice.choice(["", "", "+", "*", "?"])) for name in names]
        pattern[dice.randrange(len(pattern))] = (pattern[0][0], "")
        pattern = [(name, quantifier) for name, (_, quantifier) in zip(names, pattern, strict=True)]
        if all(quantifier in ("*", "?") for _, quantifier in pattern):
            pattern[0] = (pattern[0][0], "")
        define = tuple((name, self._number_condition("v")) for name in names if dice.random() < 0.8)
        if not define:
            define = (("A", self._number_condition("v")),)
        by = ("k",) if dice.random() < 0.8 or rows.over else ()
        if "PartitionId" in rows.over:
            by = (*by, "PartitionId")
        return Match(rows.source, by, dice.randint(1, 8), tuple(pattern), define), rows

    def _condition(self, rows: _Rows, number: str = "v") -> Condition | None:
        dice = self._dice
        roll = dice.random()
        if roll < 0.4:
            return None
        if roll < 0.6 and number in rows.columns:
            return self._number_condition(number)
        if roll < 0.75 and "s" in rows.columns:
            return Comparison("s", dice.choice(["=", "<>"]), dice.choice(["x", "X", "y"]))
        if roll < 0.9:
            return IsNull(dice.choice([number, "k"]), dice.random() < 0.7)
        return Both(dice.choice(["AND", "OR"]), self._number_condition(number), IsNull("k", True))

    def _number_condition(self, column: str) -> Comparison:
        return Comparison(column, self._dice.choice([">", "<", ">=", "="]), self._dice.choice([-1, 0, 1, 2.5, 3]))

    # Logs --------------------------------------------------------------------------------------------------------

    def _policy(self) -> tuple[float | None, float, float, str]:
        dice = self._dice
        policy = (
            dice.choice([300, 300, 2, 0, None]),
            dice.choice([10, 5, 5, 0, 3600, -1]),
            dice.choice([0, 0, 1, 2, 30]),
            dice.choice(["adjust", "adjust", "drop"]),
        )
        self._features.add(f"policy: {policy[3]}")
        return policy

    def _log(self, keys: Sequence[Any]) -> list[Event]:
        dice = self._dice
        partitions = dice.randint(1, 3)
        clock, events = EPOCH, []
        counts = [0] * partitions
        for _ in range(dice.randint(1, 30)):
            clock += dice.choice(
                [0, 0, 0, 1, _HALF, _HALF, TICKS_PER_SECOND, 2 * TICKS_PER_SECOND, 9 * TICKS_PER_SECOND]
            )
            partition = dice.randrange(partitions)
            body: dict[str, Any] = {"k": dice.choice(keys), "v": dice.choice([-1, 0, 2.5, 7, 1000, None])}
            body["s"] = dice.choice(["x", "X", "y", None])
            body["c"] = dice.choice(["7", "007", "06", "10", "2.5", None])
            time: int | None = clock - dice.randint(-2, 12) * _HALF + dice.choice([0, 0, 0, -1, 1])
            if dice.random() < 0.05:
                time = None
            events.append(Event(partition, counts[partition], clock, time, _body(dice, time, body)))
            counts[partition] += 1
        return events

    def _names(self, keys: Sequence[Any]) -> list[dict[str, Any]]:
        count = self._dice.randint(0, 3)
        return [{"k": self._dice.choice(keys), "label": f"label {number}"} for number in range(count)]


def _body(dice: random.Random, time: int | None, body: dict[str, Any]) -> dict[str, Any]:
    """Add the time; one that cannot be read is absent, NULL or no time at all."""
    if time is not None:
        return {"t": format_time(time), **body}
    return dice.choice([body, {"t": None, **body}, {"t": "not a time", **body}])
