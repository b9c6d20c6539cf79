"""Windows of GROUP BY: their arguments, documented limits, and how far back they look.

https://learn.microsoft.com/stream-analytics-query/windowing-azure-stream-analytics
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.saql.lowering.context import Context
from tidegate.saql.lowering.expressions import unit_word
from tidegate.saql.parsing import syntax
from tidegate.saql.parsing.syntax import Node
from tidegate.saql.plan import units, windows
from tidegate.saql.plan.nodes import (
    Expr,
    Hopping,
    NamedWindow,
    Session,
    SimpleWindow,
    Sliding,
    Snapshot,
    Tumbling,
    Window,
    Windows,
)

MAX_TICKS = 7 * units.DAY

_FORMS = {
    "TumblingWindow": "TumblingWindow(second, 10)",
    "HoppingWindow": "HoppingWindow(second, 10, 5)",
    "SlidingWindow": "SlidingWindow(second, 10)",
    "SessionWindow": "SessionWindow(second, 5, 60)",
}


def is_window(node: Node) -> bool:
    """Whether an item of GROUP BY is a window function."""
    return isinstance(node, syntax.Function) and node.key in windows.WINDOWS


def _is_timestamp(node: Node) -> bool:
    """Whether a node is System.Timestamp(), or System.Timestamp as it was written first."""
    if isinstance(node, syntax.Path):
        return [word.text.lower() for word in node.words] == ["system", "timestamp"]
    return isinstance(node, syntax.Function) and node.key == "system.timestamp"


def lookback_ticks(window: Window) -> int:
    """How far before its end a window may depend on events.

    A session depends on where sessions were cut before: after three maxima and a timeout without its own history it
    is back on the grid of maxima, whatever came before.
    """
    match window:
        case Tumbling() | Hopping() | Sliding():
            return window.size_ticks
        case Session():
            return 3 * window.max_ticks + window.timeout_ticks
        case Snapshot():
            return 0
        case Windows():
            return max(lookback_ticks(named.window) for named in window.windows)


class WindowLowerer:
    """`value` lowers an expression over the rows that the window groups (for the keys of a session)."""

    def __init__(self, context: Context, value: Callable[[Node], Expr]) -> None:
        self._context = context
        self._report = context.report
        self._value = value

    def window(self, node: syntax.Function) -> Window:
        if windows.WINDOWS[node.key] == "Windows":
            return self._windows(node)
        return self._simple(node)

    def _windows(self, node: syntax.Function) -> Window:
        named: list[NamedWindow] = []
        seen: set[str] = set()
        if node.over is not None:
            self._report.error(node.over.span, "Windows() takes no OVER")
        for arg in node.args:
            id_, definition = None, arg
            if isinstance(arg, syntax.Function) and arg.key == "window":
                id_, definition = self._named(arg, seen)
            if _is_timestamp(definition):
                named.append(NamedWindow(id_, Snapshot(self._report.position(definition.span))))
            elif not (isinstance(definition, syntax.Function) and definition.key in windows.WINDOWS):
                self._report.error(
                    definition.span, "expected a window", "Windows(Window('10s', TumblingWindow(second, 10)), …)"
                )
            elif windows.WINDOWS[definition.key] == "Windows":
                self._report.error(definition.span, "Windows() cannot be nested")
            else:
                named.append(NamedWindow(id_, self._simple(definition)))
        if not node.args:
            self._report.error(node.span, "Windows() needs at least one window")
        if len({item.id is None for item in named}) > 1:
            self._report.error(node.span, "in Windows() either all windows have an id or none has")
        return Windows(tuple(named) or (NamedWindow(None, Tumbling(units.SECOND)),), self._report.position(node.span))

    def _named(self, node: syntax.Function, seen: set[str]) -> tuple[str | None, Node]:
        """Window('id', definition)"""
        if len(node.args) != 2:
            self._report.error(
                node.span, "Window() takes an id and a window", "Window('10s', TumblingWindow(second, 10))"
            )
            return None, node.args[-1] if node.args else node
        id_node, definition = node.args
        if not (isinstance(id_node, syntax.Constant) and isinstance(id_node.value, str)):
            self._report.error(id_node.span, "the id of a window is a text", "Window('10s', …)")
            return "", definition
        if id_node.value.lower() in seen:
            self._report.error(
                id_node.span, f"two windows have the id '{id_node.value}'", "ids are unique without case"
            )
        seen.add(id_node.value.lower())
        return id_node.value, definition

    def _simple(self, node: syntax.Function) -> SimpleWindow:
        name = windows.WINDOWS[node.key]
        partition_by: tuple[Expr, ...] = ()
        if node.over is not None:
            over = node.over
            if name != "SessionWindow" or over.order_by or over.limit or over.when or not over.partition_by:
                self._report.error(
                    over.span, f"{name} takes no such OVER", "only SessionWindow(…) OVER (PARTITION BY key)"
                )
            else:
                partition_by = tuple(self._value(key) for key in over.partition_by)
        position = self._report.position(node.span)
        match name:
            case "TumblingWindow":
                size, offset = self._sizes(node, ("duration", "offset"), 1)
                return Tumbling(size, offset, position)
            case "HoppingWindow":
                size, hop, offset = self._sizes(node, ("duration", "hop", "offset"), 2)
                return Hopping(size, hop or size, offset, position)
            case "SlidingWindow":
                (size,) = self._sizes(node, ("duration",), 1)
                return Sliding(size, position)
        timeout, longest = self._sizes(node, ("timeout", "maxduration"), 2)
        return Session(timeout, longest, partition_by, position)

    def _sizes(self, node: syntax.Function, parts: tuple[str, ...], least: int) -> list[int]:
        """The ticks of each part: (unit, n, n, …), or (Duration(unit, n), Hop(unit, n), …). A part left out is 0.

        After an error a size is one second, so that nothing else is said about it.
        """
        args = node.args
        name = windows.WINDOWS[node.key]
        shorthand = not (args and isinstance(args[0], syntax.Function) and args[0].key in ("duration", "timeout"))
        if not least <= len(args) - (1 if shorthand else 0) <= len(parts):
            form = _FORMS[name]
            self._report.error(node.span, f"{name} takes a unit and {_counted(least, len(parts))}", f"write {form}")
            return [units.SECOND] * len(parts)
        ticks: list[int] = []
        if shorthand:
            unit = unit_word(self._context, args[0], units.WINDOW_UNITS)
            for part, arg in zip(parts, args[1:], strict=False):
                ticks.append(self._length(arg, unit, part))
        else:
            for part, arg in zip(parts, args, strict=False):
                ticks.append(self._part(arg, part))
        return ticks + [0] * (len(parts) - len(ticks))

    def _part(self, node: Node, part: str) -> int:
        """Duration(unit, n), Hop(unit, n), Offset(unit, n), Timeout(unit, n) or MaxDuration(unit, n)"""
        written = {"maxduration": "MaxDuration"}.get(part, part.capitalize())
        if not isinstance(node, syntax.Function) or node.key != part or len(node.args) != 2:
            self._report.error(node.span, f"expected {written}(unit, n)", f"{written}(second, 5)")
            return units.SECOND
        return self._length(node.args[1], unit_word(self._context, node.args[0], units.WINDOW_UNITS), part)

    def _length(self, node: Node, unit: str, part: str) -> int:
        what = {"hop": "hop", "offset": "offset", "maxduration": "maximum duration"}.get(part, "size")
        number = whole_number(self._context, node, f"the {what} of a window", signed=part == "offset")
        ticks = number * units.TICKS[unit]
        if abs(ticks) > MAX_TICKS:
            self._report.error(node.span, f"the {what} of a window is at most 7 days")
            return units.SECOND
        return ticks


def whole_number(context: Context, node: Node, what: str, signed: bool = False) -> int:
    """A constant whole number, greater than 0 unless `signed`. What is none is reported, and 1."""
    if not isinstance(node, syntax.Constant) or not isinstance(node.value, int):
        context.report.error(node.span, f"{what} must be a constant whole number")
        return 1
    if node.value <= 0 and not signed:
        context.report.error(node.span, f"{what} must be greater than 0")
        return 1
    return node.value


def _counted(least: int, most: int) -> str:
    words = {1: "a number", 2: "two numbers", 3: "three numbers"}
    return words[least] if least == most else f"{words[least]} or {words[most]}"
