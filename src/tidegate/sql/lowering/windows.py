"""Lowering of the windows of GROUP BY: their arguments and documented limits.

The catalog lists the kinds of windows and the lengths that each takes.
https://learn.microsoft.com/stream-analytics-query/windowing-azure-stream-analytics
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.sql.lowering.context import Context
from tidegate.sql.lowering.expressions import as_text, unit_word
from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.syntax import Node
from tidegate.sql.plan import units
from tidegate.sql.plan.catalog import WINDOWS
from tidegate.sql.plan.nodes import Expr, Length, NamedWindow, Window, Windows
from tidegate.sql.plan.walking import fold

MAX_TICKS = 7 * units.DAY
"""The longest size, hop or offset (Windows() page, "Limits")."""

MAX_WINDOWS_OF_AN_EVENT = 100_000
"""A limit on output: each of an event's windows is a separate result."""


def lookback_ticks(window: Window | Windows) -> int:
    """Return how far before its end a window may depend on events."""
    if isinstance(window, Window):
        return window.lookback_ticks
    return max((named.window.lookback_ticks for named in window.windows), default=0)


class WindowLowerer:
    """Lowers windows to the plan.

    `value` lowers an expression over the grouped rows; `partitions` are the keys of PARTITION BY in the FROM.
    """

    def __init__(self, context: Context, value: Callable[[Node], Expr], partitions: Sequence[Expr] = ()) -> None:
        self._context = context
        self._catalog = context.catalog
        self._report = context.report
        self._value = value
        self._partitions = partitions

    def window(self, node: syntax.Function) -> Window | Windows:
        """Return the window that a function of GROUP BY means, and report its errors."""
        kind = self._catalog.windows.get(node.key)
        if kind is None:
            several = self._windows(node)
            window: Window | Windows = several
            count = sum(named.window.windows_of_an_event for named in several.windows)
        else:
            window = simple = self._simple(node, kind)
            count = simple.windows_of_an_event
        if count > MAX_WINDOWS_OF_AN_EVENT:
            self._report.error(
                node.span,
                f"one event would be in {count:,} windows; {MAX_WINDOWS_OF_AN_EVENT:,} is the most",
                "take a shorter window or a longer hop",
            )
        return window

    def _windows(self, node: syntax.Function) -> Windows:
        named: list[NamedWindow] = []
        seen: set[str] = set()
        if node.over is not None:
            self._report.error(node.over.span, "Windows() takes no OVER")
        for arg in node.args:
            id_, definition = None, arg
            if isinstance(arg, syntax.Function) and arg.key == "window":
                id_, definition = self._named(arg, seen)
            kind = self._catalog.windows.get(definition.key) if isinstance(definition, syntax.Function) else None
            if _is_timestamp(definition):
                position = self._report.position(definition.span)
                named.append(NamedWindow(id_, self._catalog.snapshot(position=position)))
            elif isinstance(definition, syntax.Function) and kind is not None:
                named.append(NamedWindow(id_, self._simple(definition, kind)))
            elif isinstance(definition, syntax.Function) and definition.key == WINDOWS.lower():
                self._report.error(definition.span, "Windows() cannot be nested")
            else:
                self._report.error(
                    definition.span, "expected a window", "Windows(Window('10s', TumblingWindow(second, 10)), …)"
                )
        if not node.args:
            self._report.error(node.span, "Windows() needs at least one window")
        if len({item.id is None for item in named}) > 1:
            self._report.error(node.span, "in Windows() either all windows have an id or none has")
        return Windows(tuple(named), self._report.position(node.span))

    def _named(self, node: syntax.Function, seen: set[str]) -> tuple[str | None, Node]:
        """Window('id', definition)"""
        if len(node.args) != 2:
            self._report.error(
                node.span, "Window() takes an id and a window", "Window('10s', TumblingWindow(second, 10))"
            )
            return None, node.args[-1] if node.args else node
        id_node, definition = as_text(node.args[0]), node.args[1]
        if not (isinstance(id_node, syntax.Constant) and isinstance(id_node.value, str)):
            self._report.error(id_node.span, "the id of a window is a text", "Window('10s', …)")
            return "", definition
        if id_node.value.lower() in seen:
            self._report.error(
                id_node.span, f"two windows have the id '{id_node.value}'", "ids are unique without case"
            )
        seen.add(id_node.value.lower())
        return id_node.value, definition

    def _simple(self, node: syntax.Function, kind: type[Window]) -> Window:
        partition_by: tuple[Expr, ...] = ()
        if node.over is not None:
            over = node.over
            if not kind.partitions or over.order_by or over.limit or over.when or not over.partition_by:
                able = dict.fromkeys(each.names[0] for each in self._catalog.windows.values() if each.partitions)
                self._report.error(
                    over.span,
                    f"{kind.names[0]} takes no such OVER",
                    f"only {' and '.join(f'{name}(…)' for name in able)} OVER (PARTITION BY key)",
                )
            else:
                partition_by = tuple(self._value(key) for key in over.partition_by)
        if kind.partitions:
            # PARTITION BY of the FROM makes separate timelines: a session is of one partition's events.
            missing = [key for key in self._partitions if fold(key) not in map(fold, partition_by)]
            partition_by = (*partition_by, *missing)
        ticks = self._lengths(node, kind)
        return kind(*ticks, partition_by=partition_by, position=self._report.position(node.span))

    def _lengths(self, node: syntax.Function, kind: type[Window]) -> list[int]:
        """Return the ticks of each length: (unit, n, n, …), or (Duration(unit, n), Hop(unit, n), …).

        An omitted length is 0. After an error a length is one second, so that no further error is reported about it.
        """
        args, lengths = node.args, kind.lengths
        if not lengths:
            if args:
                self._report.error(node.span, f"{kind.names[0]} takes no argument", f"write {kind.example}")
            return []
        least = sum(not length.optional for length in lengths)
        first = args[0] if args else None
        shorthand = not (isinstance(first, syntax.Function) and first.key in ("duration", "timeout"))
        if not least <= len(args) - (1 if shorthand else 0) <= len(lengths):
            message = f"{kind.names[0]} takes a unit and {_counted(least, len(lengths))}"
            self._report.error(node.span, message, f"write {kind.example}")
            return [units.SECOND] * len(lengths)
        ticks: list[int] = []
        if shorthand:
            unit = unit_word(self._context, args[0], units.WINDOW_UNITS)
            for length, arg in zip(lengths, args[1:], strict=False):
                ticks.append(self._ticks(arg, unit, length))
        else:
            for length, arg in zip(lengths, args, strict=False):
                ticks.append(self._long_form(arg, length))
        return ticks + [0] * (len(lengths) - len(ticks))

    def _long_form(self, node: Node, length: Length) -> int:
        """Return the ticks of a length in the long form, such as Duration(unit, n) or Hop(unit, n)."""
        if not isinstance(node, syntax.Function) or node.key != length.name.lower() or len(node.args) != 2:
            self._report.error(node.span, f"expected {length.name}(unit, n)", f"{length.name}(second, 5)")
            return units.SECOND
        return self._ticks(node.args[1], unit_word(self._context, node.args[0], units.WINDOW_UNITS), length)

    def _ticks(self, node: Node, unit: str, length: Length) -> int:
        number = whole_number(self._context, node, f"the {length.what} of a window", signed=length.signed)
        ticks = number * units.TICKS[unit]
        if abs(ticks) > MAX_TICKS:
            self._report.error(node.span, f"the {length.what} of a window is at most 7 days")
            return units.SECOND
        return ticks


def whole_number(context: Context, node: Node, what: str, signed: bool = False) -> int:
    """Return a constant whole number, greater than 0 unless `signed`. Anything else is reported, and 1 returned."""
    if not isinstance(node, syntax.Constant) or not isinstance(node.value, int):
        context.report.error(node.span, f"{what} must be a constant whole number")
        return 1
    if node.value <= 0 and not signed:
        context.report.error(node.span, f"{what} must be greater than 0")
        return 1
    return node.value


def _is_timestamp(node: Node) -> bool:
    """Return whether a node is System.Timestamp(), or the older form System.Timestamp."""
    if isinstance(node, syntax.Path):
        return [word.text.lower() for word in node.words] == ["system", "timestamp"]
    return isinstance(node, syntax.Function) and node.key == "system.timestamp"


def _counted(least: int, most: int) -> str:
    words = {1: "a number", 2: "two numbers", 3: "three numbers"}
    return words[least] if least == most else f"{words[least]} or {words[most]}"
