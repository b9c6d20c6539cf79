"""Lowering of the ON of a JOIN: its time bounds, equality keys and remaining condition.

Rows of two streams join only within a bounded time. A DATEDIFF over the *names* of the sources, ANDed with the rest,
sets it: `DATEDIFF(minute, a, b) BETWEEN 0 AND 15`. DATEDIFF counts boundaries crossed, so 0 … 15 minutes reach just
short of 16. https://learn.microsoft.com/stream-analytics-query/join-azure-stream-analytics
"""

from __future__ import annotations

from tidegate.sql.lowering.context import Context
from tidegate.sql.lowering.expressions import unit_word
from tidegate.sql.lowering.scope import Source
from tidegate.sql.lowering.temporal import RowLowerer
from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.syntax import Node, Span
from tidegate.sql.plan import units
from tidegate.sql.plan.nodes import Call, Column, Expr, TimeBound
from tidegate.sql.plan.walking import fold, same, sources_in

MAX_TICKS = 7 * units.DAY

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_EXAMPLE = "AND DATEDIFF(minute, {left}, {right}) BETWEEN 0 AND 15"


class JoinCondition:
    """The ON of one JOIN, split into its parts."""

    def __init__(self, context: Context, rows: RowLowerer, left: list[Source], right: Source) -> None:
        self._context = context
        self._report = context.report
        self._rows = rows
        self._left = left
        self._right = right
        self._others: list[Expr] = []
        self._over_columns: Span | None = None
        self._refused = False
        self.bounds: list[TimeBound] = []
        self.keys: list[tuple[Expr, Expr]] = []

    def split(self, node: Node) -> None:
        """Split a condition at its ANDs into bounds, keys and the rest."""
        if isinstance(node, syntax.Connective) and node.word == "AND":
            for part in node.conditions:
                self.split(part)
        elif not self._time_bound(node):
            self._condition(node)

    def residual(self) -> Expr | None:
        """Return the conditions that are neither bounds nor keys."""
        if len(self._others) < 2:
            return self._others[0] if self._others else None
        return Call("and", tuple(self._others), self._others[0].position)

    # Keys -------------------------------------------------------------------------------------------------------------

    def _condition(self, node: Node) -> None:
        condition = self._rows.condition(node)
        if isinstance(condition, Call) and condition.function == "equal":
            one, other = condition.args
            right = {self._right.alias.lower()}
            for left_side, right_side in ((one, other), (other, one)):
                read = sources_in(left_side)
                if sources_in(right_side) == right and read and not read & right:
                    self.keys.append((left_side, right_side))
                    return
        self._others.append(condition)

    # Bounds -----------------------------------------------------------------------------------------------------------

    def _time_bound(self, node: Node) -> bool:
        """Return whether the condition is over a DATEDIFF of sources, in which case it has been handled."""
        limits: tuple[Node, ...]
        match node:
            case syntax.Between():
                call, sign, limits = node.value, "NOT BETWEEN" if node.negated else "BETWEEN", (node.low, node.high)
            case syntax.Binary() if _is_datediff(node.left):
                call, sign, limits = node.left, node.sign, (node.right,)
            case syntax.Binary() if _is_datediff(node.right):
                call, sign, limits = node.right, _FLIPPED.get(node.sign, node.sign), (node.left,)
            case _:
                return False
        if not isinstance(call, syntax.Function) or not _is_datediff(call):
            return False
        aliases = [self._alias(arg) for arg in call.args[1:]]
        one, other = aliases
        if one is None or other is None:
            self._over_columns = call.span
            return False
        numbers = [
            limit.value for limit in limits if isinstance(limit, syntax.Constant) and isinstance(limit.value, int)
        ]
        if len(numbers) != len(limits) or sign not in ("BETWEEN", *_FLIPPED):
            return self._refuse(node, "a bound in time is DATEDIFF(…) BETWEEN n AND m, with constant whole numbers")
        low, high = _range(sign, numbers)
        unit = unit_word(self._context, call.args[0], tuple(units.TICKS))
        if other is not self._right:
            one, other = other, one
            low, high = (None if high is None else -high), (None if low is None else -low)
        if other is not self._right or one is self._right:
            return self._refuse(node, f"this bounds other sources than {self._right.alias}")
        self._add(node, one, unit, low, high)
        return True

    def _alias(self, node: Node) -> Source | None:
        """Return the source that a name in DATEDIFF means, also where a column has the same name."""
        if not isinstance(node, syntax.Path) or len(node.words) != 1:
            return None
        return self._rows.scope.find(node.words[0].text)

    def _refuse(self, node: Node, message: str) -> bool:
        self._refused = True
        hint = _EXAMPLE.format(left=self._left[0].alias, right=self._right.alias).removeprefix("AND ")
        self._report.error(node.span, message, hint)
        return True

    def _add(self, node: Node, left: Source, unit: str, low: int | None, high: int | None) -> None:
        """Add a bound, narrowing one over the same sources and unit."""
        ticks = units.TICKS[unit]
        if any(limit is not None and abs(limit) * ticks > MAX_TICKS for limit in (low, high)):
            self._refuse(node, "the range of DATEDIFF in a JOIN is at most 7 days")
            return
        for index, bound in enumerate(self.bounds):
            if bound.left == left.alias and bound.unit == unit:
                low = bound.low if low is None else low if bound.low is None else max(low, bound.low)
                high = bound.high if high is None else high if bound.high is None else min(high, bound.high)
                del self.bounds[index]
                break
        if low is not None and high is not None and low > high:
            self._refuse(node, "no time is in this range")
            return
        position = self._report.position(node.span)
        self.bounds.append(TimeBound(left.alias, self._right.alias, unit, ticks, low, high, position))

    def lookback_ticks(self, *, outer: bool = False) -> int:
        """Return how far before a result the rows it depends on may be. DATEDIFF n reaches just short of n + 1 units.

        A pair is emitted at the later of its times, so this is the largest distance of the two. A left row without a
        match is emitted at the end of its range, which may also reach back before its own time.
        """
        spans = []
        for alias in {bound.left for bound in self.bounds}:
            of_alias = [bound for bound in self.bounds if bound.left == alias]
            lows = [(abs(bound.low) + 1) * bound.unit_ticks for bound in of_alias if bound.low is not None]
            highs = [(abs(bound.high) + 1) * bound.unit_ticks for bound in of_alias if bound.high is not None]
            if lows and highs:
                spans.append(max(min(lows), min(highs)))
                if outer:
                    back = [max(1 - one.low, 0) * one.unit_ticks for one in of_alias if one.low is not None]
                    ahead = [(max(one.high, 0) + 1) * one.unit_ticks for one in of_alias if one.high is not None]
                    spans[-1] = max(spans[-1], min(back) + min(ahead))
        return min(spans, default=0)

    # Restrictions -----------------------------------------------------------------------------------------------------

    def check_reference(self, span: Span) -> None:
        """Report time bounds, which a JOIN with reference data cannot have."""
        if self.bounds:
            message = f"a bound in time with the reference data {self._right.alias}: it has no time"
            self._report.error(span, message, "leave DATEDIFF out of ON")

    def check_stream(self, span: Span) -> None:
        """Report a JOIN of streams that lacks bounds, or the keys of their timelines and partitions."""
        if not self.lookback_ticks() and not self._refused:
            self._report_unbounded(span)
        self._check_over_keys(span)
        partitions = [source.partition_by for source in self._left if source.partition_by]
        mine = self._right.partition_by
        if partitions and mine and not any(same(pair[0], partitions[0]) and same(pair[1], mine) for pair in self.keys):
            self._report.error(
                span,
                "a JOIN of partitioned sources must have their partition keys in ON",
                f"AND {self._left[0].alias}.{_named(partitions[0])} = {self._right.alias}.{_named(mine)}",
            )

    def _check_over_keys(self, span: Span) -> None:
        """Report keys of TIMESTAMP BY … OVER, of the right side and one left source, that are not join keys."""
        lefts = [source for source in self._left if source.has_over]
        missing = [self._not_joined(source, 0) for source in lefts]
        for key in self._not_joined(self._right, 1) or min(missing, key=len, default=[]):
            message = f"TIMESTAMP BY … OVER {_named(key)}: every JOIN must have it in ON"
            left = (lefts or self._left)[0].alias
            hint = f"AND {left}.{_named(key)} = {self._right.alias}.{_named(key)}"
            self._report.error(span, message, hint)

    def _not_joined(self, source: Source, side: int) -> list[Expr]:
        joined = [fold(pair[side]) for pair in self.keys]
        return [key for key in source.over if source.has_over and fold(key) not in joined]

    def _report_unbounded(self, span: Span) -> None:
        left, right = self._left[-1].alias, self._right.alias
        example = _EXAMPLE.format(left=left, right=right)
        if self._over_columns is not None:
            message = "in ON, DATEDIFF takes the names of the sources, not columns: it compares their System.Timestamp"
            self._report.error(self._over_columns, message, example.removeprefix("AND "))
        elif self.bounds:
            self._report.error(span, f"the JOIN with {right} is bounded in time on one side only", example)
        else:
            hint = example
            if self._context.inputs is None or not self._context.reference_inputs:
                hint += f"; if {right} is reference data, declare it so in the job"
            self._report.error(
                span, f"the JOIN with {right} has no bound in time: ON needs a DATEDIFF of the two sources", hint
            )


def _is_datediff(node: Node) -> bool:
    return isinstance(node, syntax.Function) and node.key == "datediff" and len(node.args) == 3


def _range(sign: str, numbers: list[int]) -> tuple[int | None, int | None]:
    """Return the least and the greatest value that a condition allows, None for unbounded."""
    first = numbers[0]
    ranges: dict[str, tuple[int | None, int | None]] = {
        "BETWEEN": (first, numbers[-1]),
        "=": (first, first),
        "<": (None, first - 1),
        "<=": (None, first),
        ">": (first + 1, None),
        ">=": (first, None),
    }
    return ranges[sign]


def _named(key: Expr) -> str:
    return ".".join(key.path) if isinstance(key, Column) else "the key"
