"""Warnings about what a query says but probably does not mean. `job check` shows them; the query still runs."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.sql.parsing.diagnostics import Diagnostic, did_you_mean
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.names import METADATA_PROPERTIES
from tidegate.sql.plan.nodes import (
    Aggregate,
    Call,
    Column,
    Expr,
    Literal,
    Query,
    Relation,
    Temporal,
    TextPosition,
    Window,
    WindowId,
)
from tidegate.sql.plan.walking import expressions_of, fold, parts_in, relations_of

_COMPARISONS = frozenset(["equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal", "matches"])
_DIVISIONS = frozenset(["divide", "divide_bigints", "modulo"])


def lint(query: Query) -> list[Diagnostic]:
    """Return what a query says and hardly ever means, in the order of the text."""
    found = dict.fromkeys(warning for relation in relations_of(query) for warning in _of_relation(relation))
    for notice in query.notices:
        line, column = notice.position.line, notice.position.column
        found[Diagnostic(line, column, notice.message, notice.length, notice.hint)] = None
    return sorted(found, key=lambda one: (one.line, one.column, one.message))


def _of_relation(relation: Relation) -> Iterator[Diagnostic]:
    if isinstance(relation, Aggregate):
        for named in relation.windows:
            if named.window.partitions:
                yield from _of_partitions(named.window, relation.keys)
            if (oddity := named.window.oddity) is not None:
                yield _warning(named.window.position, *oddity)
    for expr in expressions_of(relation):
        for part in parts_in(expr):
            if isinstance(part, Column) and tuple(map(str.lower, part.path)) == ("eventprocessedutctime",):
                yield _warning(
                    part.position,
                    "EventProcessedUtcTime is the time of processing in the service, and the arrival here",
                    "EventEnqueuedUtcTime is the arrival in both",
                )
            if isinstance(part, Call):
                yield from _of_call(part)


def unregistered(query: Query) -> list[Diagnostic]:
    """Return where a query that is checked alone calls functions that a job would have to register."""
    found: dict[str, TextPosition] = {}
    for relation in relations_of(query):
        for expr in expressions_of(relation):
            for part in parts_in(expr):
                if isinstance(part, Call) and part.function.startswith("udf."):
                    found.setdefault(part.function, part.position)
        if isinstance(relation, Aggregate | Temporal):
            for call in relation.aggregates if isinstance(relation, Aggregate) else relation.calls:
                if call.function.startswith("uda."):
                    found.setdefault(call.function, call.position)
    hint = "check the job file or the project that registers it"
    return [
        _warning(position, f"whether there is a function {name} cannot be told from the query alone", hint, len(name))
        for name, position in found.items()
    ]


def _of_call(call: Call) -> Iterator[Diagnostic]:
    function, args = call.function, call.args
    if function in _COMPARISONS or function == "between":
        if any(map(_is_null, args)):
            yield _warning(call.position, "a comparison with NULL is never true", "use IS NULL or IS NOT NULL")
        elif doubt := _of_comparison(call):
            yield _warning(call.position, *doubt)
        elif function == "between" and _is_empty(*args[1:]):
            low, high = map(expression, args[1:])
            yield _warning(call.position, f"nothing is between {low} and {high}", "write the lower limit first")
    elif function == "in" and any(map(_is_null, args)):
        yield _warning(call.position, "a NULL in IN is equal to nothing", "use IS NULL OR … IN (…)")
    elif function == "like" and any(map(_is_null, args)):
        yield _warning(call.position, "LIKE with NULL is never true", "use IS NULL or IS NOT NULL")
    elif function in _DIVISIONS:
        yield from _of_division(call)
    elif function == "and":
        yield from _of_contradiction(call)
    elif function == "or":
        yield from _of_tautology(call)
    elif function == "getmetadatapropertyvalue":
        yield from _of_property(call)


def _of_comparison(call: Call) -> tuple[str, str] | None:
    """Return what is doubtful about a comparison of constants or of certain types, and what to write."""
    constants = [arg.value for arg in call.args if isinstance(arg, Literal)]
    if len(constants) == len(call.args) and not (
        call.function in ("equal", "matches") and constants[0] == constants[1]
    ):
        return "this compares constants: it is the same for every row", "name a column on one side"
    if call.function in _COMPARISONS and isinstance(call.args[0], Column) and fold(call.args[0]) == fold(call.args[1]):
        return f"{expression(call.args[0])} is compared with itself", "name another column, or another source of it"
    return None


def _of_division(call: Call) -> Iterator[Diagnostic]:
    """Yield what fails for every row."""
    last = call.args[-1]
    if isinstance(last, Literal) and last.value in (0, 0.0):
        yield _warning(call.position, "a division by zero fails for every row", "write another divisor")


def _of_contradiction(call: Call) -> Iterator[Diagnostic]:
    """Yield columns that would have to be equal to two constants at once, or above one and below a smaller one."""
    equal: dict[Expr, Literal] = {}
    bounds: dict[tuple[Expr, bool], float] = {}
    for part in call.args:
        if not (isinstance(part, Call) and part.function in _COMPARISONS and len(part.args) == 2):
            continue
        column, constant = part.args
        if not (isinstance(column, Column) and isinstance(constant, Literal)) or constant.value is None:
            continue
        name = expression(column)
        if part.function == "equal":
            other = equal.setdefault(fold(column), constant)
            if _is_other(other, constant):
                message = f"{name} cannot be {expression(other)} and {expression(constant)}: no row has both"
                yield _warning(part.position, message, "use OR, or IN (…)")
        elif isinstance(constant.value, int | float) and part.function != "not_equal":
            is_upper = part.function.startswith("less")
            limit = bounds.setdefault((fold(column), is_upper), constant.value)
            bounds[fold(column), is_upper] = (min if is_upper else max)(limit, constant.value)
    for (column, is_upper), limit in bounds.items():
        if is_upper and (least := bounds.get((column, False))) is not None and least > limit:
            message = f"{expression(column)} cannot be above {least} and below {limit}: no row is"
            yield _warning(call.position, message, "use OR, or exchange the limits")


def _of_tautology(call: Call) -> Iterator[Diagnostic]:
    """Yield columns that are always unlike one of two constants."""
    unlike: dict[Expr, Literal] = {}
    for part in call.args:
        if isinstance(part, Call) and part.function == "not_equal" and isinstance(part.args[0], Column):
            constant = part.args[1]
            if isinstance(constant, Literal) and _is_other(unlike.setdefault(fold(part.args[0]), constant), constant):
                name = expression(part.args[0])
                yield _warning(part.position, f"every {name} is unlike one of these", "use AND, or NOT IN (…)")


def _is_other(one: Literal, other: Literal) -> bool:
    """Return whether no value is equal to both constants: 1 and '1' may be, 'a' and 'A' are."""
    if isinstance(one.value, str) and isinstance(other.value, str):
        return one.value.lower() != other.value.lower()
    return isinstance(one.value, str) is isinstance(other.value, str) and one.value != other.value


def _of_property(call: Call) -> Iterator[Diagnostic]:
    written = call.args[1]
    if not isinstance(written, Literal) or not isinstance(written.value, str):
        return
    name = written.value.strip().replace("[", "").replace("]", "")
    first = name.partition(".")[0].lower()
    if first == "user" or name.lower() in {known.lower() for known in METADATA_PROPERTIES}:
        return
    hint = did_you_mean(name, METADATA_PROPERTIES) or f"properties are {', '.join(METADATA_PROPERTIES)} and User.NAME"
    yield _warning(written.position, f"there is no property {written.value}: it is NULL for every event", hint)


def _of_partitions(window: Window, keys: tuple[Expr, ...]) -> Iterator[Diagnostic]:
    own = {fold(key) for key in window.partition_by}
    across = [expression(key) for key in keys if fold(key) not in own and not isinstance(key, WindowId)]
    if across and not own:
        names = " and ".join(across)
        message = f"one {window.word} for every {names}: an event of any of them keeps it open for all"
        yield _warning(window.position, message, f"{window.names[0]}(…) OVER (PARTITION BY {', '.join(across)})")


def _is_empty(low: Expr, high: Expr) -> bool:
    """Return whether two limits are constant numbers, and the lower one is above the other."""
    if not (isinstance(low, Literal) and isinstance(high, Literal)):
        return False
    return isinstance(low.value, int | float) and isinstance(high.value, int | float) and low.value > high.value


def _is_null(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is None


def _warning(position: TextPosition, message: str, hint: str, length: int = 1) -> Diagnostic:
    return Diagnostic(max(1, position.line), max(1, position.column), message, length, hint)
