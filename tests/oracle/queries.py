"""Queries as trees that can be evaluated (`semantics`) and written down as SQL."""

from __future__ import annotations

from dataclasses import dataclass, field

# Expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of the row."""

    name: str

    def sql(self) -> str:
        return self.name


@dataclass(frozen=True)
class Timestamp:
    """System.Timestamp()"""

    def sql(self) -> str:
        return "System.Timestamp()"


@dataclass(frozen=True)
class Plus:
    """A number plus a constant."""

    column: str
    constant: int

    def sql(self) -> str:
        return f"{self.column} + {self.constant}"


@dataclass(frozen=True)
class Comparison:
    """A column beside a constant number or text."""

    column: str
    operator: str
    constant: int | float | str

    def sql(self) -> str:
        written = f"'{self.constant}'" if isinstance(self.constant, str) else repr(self.constant)
        return f"{self.column} {self.operator} {written}"


@dataclass(frozen=True)
class IsNull:
    """IS NULL or IS NOT NULL"""

    column: str
    negated: bool

    def sql(self) -> str:
        return f"{self.column} IS {'NOT ' if self.negated else ''}NULL"


@dataclass(frozen=True)
class Both:
    """AND or OR"""

    operator: str
    left: Condition
    right: Condition

    def sql(self) -> str:
        return f"({self.left.sql()} {self.operator} {self.right.sql()})"


Condition = Comparison | IsNull | Both


@dataclass(frozen=True)
class Before:
    """LAG, LAST, ISFIRST or an aggregate OVER the rows before; `seconds` is the limit or the interval."""

    function: str
    column: str
    partition_by: tuple[str, ...]
    seconds: int
    offset: int = 1
    when: Condition | None = None
    as_text: bool = False
    is_cast: bool = False

    def sql(self) -> str:
        over = f"PARTITION BY {', '.join(self.partition_by)}" if self.partition_by else ""
        when = f"WHEN {self.when.sql()}" if self.when else ""
        if self.function == "ISFIRST":
            inner = f"{over} {when}".strip()
            return f"ISFIRST(second, {self.seconds})" + (f" OVER ({inner})" if inner else "")
        value = AsText(self.column).sql() if self.is_cast else self.column
        argument = f"{value}, {self.offset}" if self.function == "LAG" else value
        limit = f"LIMIT DURATION(second, {self.seconds})"
        return f"{self.function}({argument}) OVER ({over} {limit} {when})"


@dataclass(frozen=True)
class AsText:
    """CAST of text to text"""

    column: str

    def sql(self) -> str:
        return f"CAST({self.column} AS nvarchar(max))"


Expression = Column | AsText | Timestamp | Plus | Before

# Relations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """An input with its TIMESTAMP BY (or none: arrival time) and its OVER columns."""

    name: str
    by_time: bool = True
    over: tuple[str, ...] = ()

    def sql(self, alias: str = "") -> str:
        over = f" OVER {', '.join(self.over)}" if self.over else ""
        return f"{self.name}{alias and ' ' + alias}" + (f" TIMESTAMP BY t{over}" if self.by_time else "")


@dataclass(frozen=True)
class StepName:
    """A step of WITH."""

    name: str

    def sql(self, alias: str = "") -> str:
        return f"{self.name}{alias and ' ' + alias}"


Source = Input | StepName


@dataclass(frozen=True)
class Select:
    """SELECT … FROM … WHERE …"""

    source: Source
    items: tuple[tuple[str, Expression], ...]
    where: Condition | None = None

    def sql(self, into: str) -> str:
        items = ", ".join(f"{expression.sql()} AS {name}" for name, expression in self.items)
        where = f" WHERE {self.where.sql()}" if self.where else ""
        return f"SELECT {items}{into} FROM {self.source.sql()}{where}"


@dataclass(frozen=True)
class Window:
    """A window; sizes in seconds. A session's `size` is its timeout and `hop` its longest duration."""

    kind: str
    size: int = 0
    hop: int = 0
    offset: int = 0
    id: str | None = None

    def sql(self, partition_by: tuple[str, ...]) -> str:
        match self.kind:
            case "tumbling":
                offset = f", {self.offset}" if self.offset else ""
                return f"TumblingWindow(second, {self.size}{offset})"
            case "hopping":
                offset = f", {self.offset}" if self.offset else ""
                return f"HoppingWindow(second, {self.size}, {self.hop}{offset})"
            case "sliding":
                return f"SlidingWindow(second, {self.size})"
            case "session":
                over = f" OVER (PARTITION BY {', '.join(partition_by)})" if partition_by else ""
                return f"SessionWindow(second, {self.size}, {self.hop}){over}"
            case "snapshot":
                return "System.Timestamp()"
        raise ValueError(self.kind)


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of GROUP BY.

    `column` is "*" for COUNT(*), `order` the columns of a ranking with DESC or not. `as_text`: the value was
    made text, here (`is_cast`) or by a step.
    """

    function: str
    column: str = "*"
    distinct: bool = False
    order: tuple[tuple[str, bool], ...] = ()
    limit: int = 0
    as_text: bool = False
    is_cast: bool = False

    def sql(self) -> str:
        if self.order:
            order = ", ".join(f"{name}{' DESC' if down else ''}" for name, down in self.order)
            return f"{self.function}({self.limit or ''}) OVER (ORDER BY {order})"
        value = AsText(self.column).sql() if self.is_cast else self.column
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{value})"


@dataclass(frozen=True)
class Group:
    """SELECT keys, aggregates FROM … WHERE … GROUP BY keys, window HAVING COUNT(*) >= n"""

    source: Source
    keys: tuple[str, ...]
    windows: tuple[Window, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    where: Condition | None = None
    having: int | None = None

    def sql(self, into: str) -> str:
        items = [*self.keys, *(f"{aggregate.sql()} AS {name}" for name, aggregate in self.aggregates)]
        if self.windows[0].id is None:
            window = self.windows[0].sql(self.keys)
        else:
            items.append("System.Window().Id AS w")
            window = ", ".join(f"Window('{one.id}', {one.sql(self.keys)})" for one in self.windows)
            window = f"Windows({window})"
        where = f" WHERE {self.where.sql()}" if self.where else ""
        having = f" HAVING COUNT(*) >= {self.having}" if self.having is not None else ""
        by = ", ".join([*self.keys, window])
        return f"SELECT {', '.join(items)}{into} FROM {self.source.sql()}{where} GROUP BY {by}{having}"


@dataclass(frozen=True)
class Join:
    """An inner or left join of two streams on equal `keys` and DATEDIFF(second, l, r) BETWEEN low AND high."""

    left: Source
    right: Source
    is_left: bool
    low: int
    high: int
    keys: tuple[str, ...]
    only_unmatched: bool = False

    def sql(self, into: str) -> str:
        kind = "LEFT JOIN" if self.is_left else "JOIN"
        equal = "".join(f"l.{key} = r.{key} AND " for key in self.keys)
        where = " WHERE r.v IS NULL" if self.only_unmatched else ""
        return (
            f"SELECT l.k AS k, l.v AS v, r.k AS rk, r.v AS w{into} FROM {self.left.sql('l')} {kind} "
            f"{self.right.sql('r')} ON {equal}DATEDIFF(second, l, r) BETWEEN {self.low} AND {self.high}{where}"
        )


@dataclass(frozen=True)
class ReferenceJoin:
    """A join with the table `names` (k, label) on the key."""

    source: Source
    is_left: bool

    def sql(self, into: str) -> str:
        kind = "LEFT JOIN" if self.is_left else "JOIN"
        return (
            f"SELECT l.k AS k, l.v AS v, n.label AS label{into} FROM {self.source.sql('l')} {kind} names n ON l.k = n.k"
        )


@dataclass(frozen=True)
class Union:
    """The columns k and v of two sources."""

    left: Source
    right: Source

    def sql(self, into: str) -> str:
        return f"SELECT k, v{into} FROM {self.left.sql()} UNION SELECT k, v FROM {self.right.sql()}"


@dataclass(frozen=True)
class Match:
    """MATCH_RECOGNIZE with PATTERN (name quantifier …); the quantifiers are "", "*", "+" and "?"."""

    source: Source
    partition_by: tuple[str, ...]
    seconds: int
    pattern: tuple[tuple[str, str], ...]
    define: tuple[tuple[str, Condition], ...]

    def sql(self, into: str) -> str:
        by = f"PARTITION BY {', '.join(self.partition_by)} " if self.partition_by else ""
        names = dict(self.pattern)
        measures = ", ".join(f"First({n}.v) AS f{n}, Last({n}.v) AS l{n}" for n in names)
        items = ", ".join(f"m.f{n} AS f{n}, m.l{n} AS l{n}" for n in names)
        pattern = " ".join(name + quantifier for name, quantifier in self.pattern)
        define = ", ".join(f"{name} AS {_of_event(condition, name).sql()}" for name, condition in self.define)
        return (
            f"SELECT {items}{into} FROM {self.source.sql()} MATCH_RECOGNIZE (LIMIT DURATION(second, {self.seconds}) "
            f"{by}MEASURES {measures} PATTERN ({pattern}) DEFINE {define}) AS m"
        )


def _of_event(condition: Condition, name: str) -> Condition:
    match condition:
        case Comparison(column, operator, constant):
            return Comparison(f"{name}.{column}", operator, constant)
        case IsNull(column, negated):
            return IsNull(f"{name}.{column}", negated)
        case Both(operator, left, right):
            return Both(operator, _of_event(left, name), _of_event(right, name))


Relation = Select | Group | Join | ReferenceJoin | Union | Match


@dataclass(frozen=True)
class Query:
    """Steps by name, each of which may read inputs and earlier steps, and what goes into each output."""

    steps: tuple[tuple[str, Relation], ...] = ()
    outputs: tuple[tuple[str, Relation], ...] = field(default_factory=tuple)

    def sql(self) -> str:
        steps = ",\n     ".join(f"{name} AS ({relation.sql('')})" for name, relation in self.steps)
        outputs = "\n".join(relation.sql(f" INTO {name}") for name, relation in self.outputs)
        return f"WITH {steps}\n{outputs}" if steps else outputs
