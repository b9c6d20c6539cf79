"""Lowering of expressions over the rows of a FROM: resolves names, checks argument counts and reports certain type
errors.

Nothing here raises for bad SQL: an error is reported and replaced by NULL, so that the rest is checked too.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tidegate.sql.lowering.context import Context
from tidegate.sql.lowering.doubts import note_calculation, note_comparison, note_word
from tidegate.sql.lowering.scope import Scope, SourceKind
from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.diagnostics import did_you_mean, nearest
from tidegate.sql.parsing.syntax import Node, Span
from tidegate.sql.plan import types, units
from tidegate.sql.plan.catalog import AS_ORDERED, WIDENED, ScalarFunction
from tidegate.sql.plan.names import INSTEAD
from tidegate.sql.plan.nodes import (
    AggregateRef,
    Call,
    Cast,
    Column,
    Expr,
    KeyRef,
    Literal,
    Row,
    SystemTimestamp,
    TemporalRef,
    TextPosition,
    Type,
    WindowId,
)
from tidegate.sql.plan.signatures import AggregateSignature, ArgumentKind, Signature

_OPERATORS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "%": "modulo",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_or_equal",
    ">": "greater",
    ">=": "greater_or_equal",
}
_COMPARISONS = frozenset(["=", "<>", "<", "<=", ">", ">="])
_PLACES_OF_NAMES = frozenset(["TIMESTAMP BY", "TIMESTAMP BY … OVER", "PARTITION BY", "GROUP BY"])
"""Clauses in which a string constant would make no sense."""
_KINDS_OF_ROWS = frozenset([ArgumentKind.ANY, ArgumentKind.RECORD, ArgumentKind.DATETIME])
"""Arguments that may be whole rows. A datetime may not, but the error can then name the source."""
_CONDITION_NODES = (syntax.Connective, syntax.Not, syntax.IsNull, syntax.InList, syntax.Between, syntax.Like)


def is_condition(node: Node) -> bool:
    """Return whether the expression is a condition rather than a value."""
    return isinstance(node, _CONDITION_NODES) or (isinstance(node, syntax.Binary) and node.sign in _COMPARISONS)


def as_text(node: Node) -> Node:
    """Return a double-quoted name as a string, where nothing else is allowed."""
    if isinstance(node, syntax.Path) and len(node.words) == 1 and node.words[0].double_quoted:
        return syntax.Constant(node.words[0].text, node.span)
    return node


class ExpressionLowerer:
    """Lowers the expressions of one clause. `place` names the clause in messages."""

    def __init__(self, context: Context, scope: Scope, place: str) -> None:
        self.context = context
        self.catalog = context.catalog
        self.report = context.report
        self.scope = scope
        self.place = place
        # Types of calls by identity; keeping the call keeps its id valid. Without this cache, a long chain would be
        # walked again from each of its parts.
        self._types: dict[tuple[int, bool], tuple[Call, Type]] = {}
        self._takes_rows = False

    def position(self, node: Node) -> TextPosition:
        return self.report.position(node.span)

    def null(self, node: Node, message: str | None = None, hint: str | None = None, span: Span | None = None) -> Expr:
        """Return NULL in place of an error, which is reported if a message is given."""
        if message:
            self.report.error(span or node.span, message, hint)
        return Literal(None, self.position(node))

    # Conditions and values --------------------------------------------------------------------------------------------

    def condition(self, node: Node) -> Expr:
        """Lower a search condition: WHERE, HAVING, ON, WHEN."""
        match node:
            case syntax.Connective():
                parts = tuple(self.condition(part) for part in node.conditions)
                return Call(node.word.lower(), parts, self.position(node))
            case syntax.Not():
                return Call("not", (self.condition(node.condition),), self.position(node))
            case _ if is_condition(node):
                return self._predicate(node)
        self.value(node)
        return self.null(
            node,
            f"{self.report.text(node.span)} is a value, not a condition",
            f"compare it: {self.report.text(node.span)} = 1",
        )

    def _predicate(self, node: Node) -> Expr:
        position = self.position(node)
        match node:
            case syntax.Binary():
                left, right = self.value(node.left), self._compared(node.right, node.left)
                self._check_comparison(node, left, right)
                return Call(_OPERATORS[node.sign], (left, right), position)
            case syntax.IsNull():
                return Call("is_not_null" if node.negated else "is_null", (self.value(node.value),), position)
            case syntax.InList():
                value = self.value(node.value)
                options = tuple(self._compared(option, node.value) for option in node.options)
                for option in options:
                    self._check_comparison(node, value, option)
                return self._negate(Call("in", (value, *options), position), node.negated)
            case syntax.Between():
                value = self.value(node.value)
                low, high = self._compared(node.low, node.value), self._compared(node.high, node.value)
                self._check_comparison(node, value, low)
                self._check_comparison(node, value, high)
                return self._negate(Call("between", (value, low, high), position), node.negated)
            case syntax.Like():
                return self._like(node)
        return self.null(node)

    def _compared(self, node: Node, other: Node) -> Expr:
        """Lower the other side of a comparison: double quotes mean a string (WHERE State = "WA" on the INTO page)."""
        text = as_text(node)
        if text is not node and not isinstance(other, syntax.Constant):
            self._note_text(node)
            node = text
        return self.value(node)

    def _note_text(self, node: Node) -> None:
        text = self.report.text(node.span)
        self.report.notice(node.span, f"{text} is read as text", f"write [{text[1:-1]}] for the field")

    @staticmethod
    def _negate(call: Call, negated: bool) -> Expr:
        return Call("not", (call,), call.position) if negated else call

    def _like(self, node: syntax.Like) -> Expr:
        args = [self._typed(node.value, ArgumentKind.TEXT), self._typed(as_text(node.pattern), ArgumentKind.TEXT)]
        if node.escape is not None:
            escape = self.value(as_text(node.escape))
            if not (isinstance(escape, Literal) and isinstance(escape.value, str) and len(escape.value) == 1):
                self.report.error(node.escape.span, "ESCAPE takes one character", "LIKE '%50!%' ESCAPE '!'")
            args.append(escape)
        return self._negate(Call("like", tuple(args), self.position(node)), node.negated)

    def _check_comparison(self, node: Node, left: Expr, right: Expr) -> None:
        if message := types.comparison_refusal(self.type_of(left), self.type_of(right)):
            self.report.error(node.span, message, "DATEDIFF compares times" if "datetime" in message else None)
        else:
            note_comparison(self.report, node, (left, self.type_of(left)), (right, self.type_of(right)))

    def value(self, node: Node) -> Expr:
        """Lower an expression that is not a condition."""
        position = self.position(node)
        match node:
            case syntax.Constant():
                return Literal(node.value, position)
            case syntax.Path():
                return self.path(node)
            case syntax.Wildcard():
                return self.null(node, "* is not a value", "name a column")
            case syntax.Function():
                return self.function(node)
            case syntax.Member():
                return self._member(node)
            case syntax.Unary():
                return self._unary(node)
            case syntax.Binary() if node.sign not in _COMPARISONS:
                return self._arithmetic(node)
            case syntax.Case():
                return self._case(node)
            case syntax.CastTo():
                return self._cast(node)
        self.condition(node)
        return self.null(
            node,
            "a condition is not a value",
            f"CASE WHEN {self.report.text(node.span)} THEN 1 ELSE 0 END",
        )

    def path(self, node: syntax.Path) -> Expr:
        words = node.words
        if len(words) == 1 and words[0].double_quoted:
            return self._double_quoted(node)
        if words[0].text.lower() == "system" and not words[0].quoted and len(words) > 1:
            if len(words) == 2 and words[1].text.lower() == "timestamp":
                return self.system_timestamp(node)
            return self.null(
                node, f"there is no {self.report.text(node.span)}", "System.Timestamp() or System.Window().Id"
            )
        note_word(self.report, self.scope, node)
        return self._not_the_whole_row(node, self.scope.resolve(node))

    def _double_quoted(self, node: syntax.Path) -> Expr:
        """Lower a double-quoted name: a field if one may exist (SELECT page), else a string (INTO page)."""
        word = node.words[0]
        candidates = self.scope.candidates(word.text)
        if not candidates:
            return Literal(word.text, self.position(node))
        if len(candidates) > 1:
            self._note_text(node)
            return Literal(word.text, self.position(node))
        if self.place not in _PLACES_OF_NAMES:
            message = f'"{word.text}" is read as the field {word.text}'
            self.report.notice(node.span, message, f"write text between single quotes: '{word.text}'")
        return self._not_the_whole_row(node, self.scope.resolve(node))

    def _not_the_whole_row(self, node: syntax.Path, expr: Expr) -> Expr:
        """Return the column that shares its source's name, where a whole row would make no sense."""
        if not isinstance(expr, Row) or self._takes_rows or len(self.scope.sources) > 1:
            return expr
        source = self.scope.find(expr.source or "")
        name = node.words[0].text
        if source is None or source.lacks(name):
            return expr
        message = f"{name} is read as the column {name} of {source.alias}"
        self.report.notice(node.span, message, f"{source.alias}.* is all columns; write {source.alias}.{name} for one")
        return Column(source.alias, (name,), expr.position)

    def system_timestamp(self, node: Node) -> Expr:
        return SystemTimestamp(None, self.position(node))

    def _member(self, node: syntax.Member) -> Expr:
        if isinstance(node.value, syntax.Function) and node.value.key == "system.window":
            if node.field.text.lower() == "id" and not node.value.args:
                return self.window_id(node)
            return self.null(node, f"System.Window() has no field {node.field.text}", "System.Window().Id")
        record = self.value(node.value)
        type_ = self.type_of(record)
        if type_ not in (Type.ANY, Type.RECORD):
            self.report.error(node.value.span, f"a {type_.value} has no fields")
        name = Literal(node.field.text, self.report.position(node.field.span))
        return Call("getrecordpropertyvalue", (record, name), self.position(node))

    def _window_record(self, node: syntax.Function) -> Expr:
        if node.args:
            self.report.error(node.span, "System.Window() takes no argument")
        id_ = self.window_id(node)
        return Call("record", (Literal("Id"), id_), self.position(node))

    def window_id(self, node: Node) -> Expr:
        return self.null(node, "System.Window() is allowed only in the SELECT of a GROUP BY with a window")

    def _unary(self, node: syntax.Unary) -> Expr:
        name = "negate" if node.sign == "-" else "bitwise_not"
        return Call(name, (self._typed(node.value, ArgumentKind.NUMBER),), self.position(node))

    def _arithmetic(self, node: syntax.Binary) -> Expr:
        left, right = self.value(node.left), self.value(node.right)
        type_, message = types.arithmetic(node.sign, self.type_of(left), self.type_of(right))
        if message:
            hint = "DATEADD and DATEDIFF calculate with dates" if "dates" in message else None
            self.report.error(node.span, message, hint)
        else:
            note_calculation(self.report, node, (left, self.type_of(left)), (right, self.type_of(right)))
        # The quotient of two certain bigints is truncated; if only the data determine the types, it is a float.
        name = "divide_bigints" if node.sign == "/" and type_ is Type.BIGINT else _OPERATORS[node.sign]
        return Call(name, (left, right), self.position(node))

    def _case(self, node: syntax.Case) -> Expr:
        args: list[Expr] = []
        operand = None if node.operand is None else self.value(node.operand)
        for condition, value in node.branches:
            if operand is None:
                args.append(self.condition(condition))
            else:
                args.append(self._option(condition, node.operand, operand))
            args.append(self._chosen(value))
        args.append(Literal(None, self.position(node)) if node.otherwise is None else self._chosen(node.otherwise))
        return Call("case", self._widened(args), self.position(node))

    def _option(self, node: Node, operand: Node | None, lowered: Expr) -> Expr:
        """Lower WHEN of a CASE with an operand. An option of another type is no mistake; it never matches."""
        option = self.value(node) if operand is None else self._compared(node, operand)
        types_ = self.type_of(lowered), self.type_of(option)
        if message := types.comparison_refusal(*types_):
            self.report.notice(node.span, f"{message}: this option never matches", "write one of the operand's type")
        else:
            note_comparison(self.report, node, (lowered, types_[0]), (option, types_[1]))
        return Call("matches", (lowered, option), self.position(node))

    def _chosen(self, node: Node) -> Expr:
        """Lower a value of a CASE: in double quotes a field that exists, or a string (THEN "A", query patterns)."""
        text = as_text(node)
        if text is node or not isinstance(text, syntax.Constant):
            return self.value(node)
        if any(source.has(str(text.value)) for source in self.scope.sources):
            return self.value(node)
        self._note_text(node)
        return self.value(text)

    def _widened(self, args: list[Expr]) -> tuple[Expr, ...]:
        """Return the arguments of a CASE with its numbers as floats, if one of its values is certainly a float.

        The result is of "the highest precedence type" of all values (CASE page). Where only the data tell the types,
        the engine compares those of a row.
        """
        places = [*range(1, len(args) - 1, 2), len(args) - 1]
        if Type.FLOAT not in map(self.type_of, (args[place] for place in places)):
            return tuple(args)
        for place in places:
            value = args[place]
            if self.type_of(value) in (Type.BIGINT, Type.BIT):
                args[place] = Cast(value, Type.FLOAT, safe=False, position=value.position)
            elif self.type_of(value) is Type.ANY and not _is_null(value):
                args[place] = Call(WIDENED, (value,), value.position)
        return tuple(args)

    def _cast(self, node: syntax.CastTo) -> Expr:
        value = self.value(node.value)
        type_ = resolve_type(self.context, node.type)
        literal = value.value if isinstance(value, Literal) else None
        if not node.safe and (message := types.cast_refusal(self.type_of(value), type_, literal)):
            self.report.error(node.span, f"this CAST always fails: {message}", "TRY_CAST gives NULL instead")
        return Cast(value, type_, node.safe, self.position(node))

    def value_or_row(self, node: Node) -> Expr:
        """Lower a value, where the name of a source means its whole row."""
        if not isinstance(node, syntax.Path):
            return self.value(node)
        self._takes_rows = True
        try:
            return self.value(node)
        finally:
            self._takes_rows = False

    def _typed(self, node: Node, kind: ArgumentKind) -> Expr:
        """Lower a value that must possibly be of a kind."""
        value = self.value_or_row(node) if kind in _KINDS_OF_ROWS else self.value(node)
        if kind is ArgumentKind.DATETIME and isinstance(value, Row):
            hint = "name a column, or System.Timestamp(); the time bound of a JOIN belongs in ON, not under OR or NOT"
            return self.null(node, f"{self.report.text(node.span)} is a source, not a time", hint)
        literal = value.value if isinstance(value, Literal) else None
        if message := types.refusal(kind, self.type_of(value), literal):
            self.report.error(
                node.span,
                message,
                "name the time: a column, or System.Timestamp()" if kind is ArgumentKind.DATETIME else None,
            )
        return value

    def ordered(self, expr: Expr) -> Expr:
        """Return a value as it is put in order: one that may be text, and was not made text, is converted."""
        known = self.type_of(expr) is not Type.ANY or self.is_text(expr)
        return expr if known else Call(AS_ORDERED, (expr,), expr.position)

    def is_text(self, expr: Expr) -> bool:
        """Return whether the query makes text of a value: by CAST, or by a function of text."""
        return self.type_of(expr, likely=True) is Type.NVARCHAR

    def texts_in(self, expr: Expr) -> frozenset[str]:
        """Return the fields of a record that the query makes text of (`Lowered.texts`)."""
        if isinstance(expr, KeyRef | AggregateRef | TemporalRef):
            return self.reference_texts(expr)
        return self.scope.texts_in(expr) if isinstance(expr, Column | Row) else frozenset()

    # Functions --------------------------------------------------------------------------------------------------------

    def function(self, node: syntax.Function) -> Expr:
        key = node.key
        prefix, _, rest = key.partition(".")
        if key == "system.timestamp":
            if node.args:
                self.report.error(node.span, "System.Timestamp() takes no argument")
            return self.system_timestamp(node)
        if key == "system.window":
            return self._window_record(node)
        if prefix == "udf" and rest:
            return self._registered(node)
        aggregate = self.catalog.aggregate(key)
        if key in self.catalog.analytics or (aggregate is not None and looks_at_rows_before(node, aggregate)):
            return self.temporal(node)
        if aggregate is not None:
            return self.aggregate(node, aggregate)
        if self.catalog.is_window(key) or key == "window":
            return self.null(node, f"{self.catalog.spelling(key)} is allowed only in GROUP BY")
        if (table := self.catalog.table(key)) is not None:
            return self.null(node, f"{table.spelling} is allowed only after CROSS APPLY or OUTER APPLY")
        function = self.catalog.scalar(key)
        if function is None and f"udf.{key}" in {name.lower() for name in self.context.functions or ()}:
            # Queries of 2016 call Machine Learning functions this way.
            prefixed = f"write udf.{node.name[-1].text}"
            self.report.notice(node.span, f"{node.name[-1].text} is read as the function udf.{key}", prefixed)
            return self._registered(replace(node, name=(syntax.Word("udf", node.name[0].span), *node.name)))
        if function is None:
            for arg in node.args:
                if not isinstance(arg, syntax.Wildcard) and not is_condition(arg):
                    with self.report.muted():
                        self.value(arg)
            return self._unknown_function(node)
        return self._scalar(node, function)

    def _scalar(self, node: syntax.Function, function: ScalarFunction) -> Expr:
        if node.over is not None:
            self.report.error(node.over.span, f"{function.spelling} takes no OVER")
        if node.distinct:
            self.report.error(node.span, f"{function.spelling} takes no DISTINCT")
        check_count(self.context, node, function.signature)
        args = tuple(self.argument(arg, function.signature.kind(index)) for index, arg in enumerate(node.args))
        return Call(function.name, args, self.position(node))

    def argument(self, node: Node, kind: ArgumentKind) -> Expr:
        if kind in (ArgumentKind.UNIT, ArgumentKind.PART):
            allowed = units.DATE_PARTS if kind is ArgumentKind.UNIT else units.NAMED_PARTS
            return Literal(unit_word(self.context, node, allowed), self.position(node))
        if kind is ArgumentKind.SOURCE:
            return self._source_argument(node)
        if kind in (ArgumentKind.NAME, ArgumentKind.PROPERTY):
            node = as_text(node)
        if kind is ArgumentKind.PROPERTY and not (isinstance(node, syntax.Constant) and isinstance(node.value, str)):
            self.value(node)
            return self.null(node, "the property must be a constant text", "GetMetadataPropertyValue(input, 'EventId')")
        return self._typed(node, kind)

    def _source_argument(self, node: Node) -> Expr:
        source = self.scope.find(node.words[0].text) if isinstance(node, syntax.Path) and len(node.words) == 1 else None
        if source is None:
            aliases = [source.alias for source in self.scope.sources]
            hint = did_you_mean(self.report.text(node.span), aliases) or (f"write {aliases[0]}" if aliases else None)
            return self.null(node, "expected the name of an input of this FROM", hint)
        if source.kind is not SourceKind.INPUT:
            return self.null(
                node,
                f"{source.alias} is not an input: its rows have no metadata",
                "call it in the step that reads the input",
            )
        return Row(source.alias, self.position(node))

    def _registered(self, node: syntax.Function) -> Expr:
        if len(node.name) != 2:
            return self.null(node, "a registered function is udf.name(…)")
        if not self.check_registered(node):
            return self.null(node)
        if node.over is not None or node.distinct:
            self.report.error(node.span, f"{node.key} takes no OVER and no DISTINCT", "aggregates are uda.name(…)")
        return Call(node.key, tuple(self.value_or_row(arg) for arg in node.args), self.position(node))

    def check_registered(self, node: syntax.Function) -> bool:
        """Return whether a registered function exists, and report it if it does not."""
        known = self.context.functions
        if known is None or node.key in {name.lower() for name in known}:
            return True
        hint = did_you_mean(node.key, known) or _registration(node)
        self.report.error(node.span, f"there is no function {node.key}", hint)
        return False

    def _unknown_function(self, node: syntax.Function) -> Expr:
        key = node.key
        name = ".".join(word.text for word in node.name)
        span = node.name[0].span.to(node.name[-1].span)
        if instead := INSTEAD.get(key):
            return self.null(node, f"there is no function {name}", f"write {instead}", span)
        known = self.catalog.every_name()
        last = node.name[-1].text
        if len(node.name) > 1 and self.catalog.has(last.lower()):
            message = f"a built-in function takes no prefix: {name}"
            return self.null(node, message, f"write {self.catalog.spelling(last)}", span)
        # Of short names even unrelated ones are alike: foo is as near to FLOOR as cnt is to COUNT.
        likeness = 0.7 if len(last) > 3 else 0.8
        near = nearest(name, known, likeness)
        hint = f"did you mean {near}?" if near else None
        if hint is None and "." not in name and (registered := self.context.functions):
            hint = did_you_mean(f"udf.{name}", registered)
        if hint is None and (near := nearest(key.rsplit(".", 1)[-1], known, likeness)):
            hint = f"the nearest there is: {near}"
        return self.null(node, f"there is no function {name}", hint, span)

    # Functions of some clauses only -----------------------------------------------------------------------------------

    def aggregate(self, node: syntax.Function, aggregate: AggregateSignature) -> Expr:
        """Report an aggregate that is not allowed. Overridden for the SELECT and HAVING of a GROUP BY."""
        name = self.catalog.spelling(node.key)
        hint = {
            "WHERE": "HAVING filters groups",
            "an aggregate": "put the inner one in a WITH step",
        }.get(self.place, "put it in a WITH step")
        return self.null(node, f"{name} is an aggregate: it is not allowed in {self.place}", hint)

    def temporal(self, node: syntax.Function) -> Expr:
        """Report an analytic function that is not allowed. Overridden where earlier rows are available."""
        name = self.catalog.spelling(node.key)
        return self.null(node, f"{name} is not allowed in {self.place}", "put it in a WITH step")

    # Types ------------------------------------------------------------------------------------------------------------

    def type_of(self, expr: Expr, *, likely: bool = False) -> Type:
        """Return the type of a value as far as the query determines it.

        Args:
            likely: take for text what the query makes text of, unless a star has such a column (`Lowered.texts`).
        """
        match expr:
            case Column():
                return self.scope.type_of(expr, likely=likely)
            case Row():
                return Type.RECORD
            case Literal():
                return types.of_literal(expr.value)
            case SystemTimestamp():
                return Type.DATETIME
            case WindowId():
                return Type.NVARCHAR
            case Cast():
                return expr.type
            case Call():
                known = self._types.get((id(expr), likely))
                if known is None:
                    known = self._types[id(expr), likely] = (expr, self._call_type(expr, likely))
                return known[1]
            case KeyRef() | AggregateRef() | TemporalRef():
                return self.reference_type(expr, likely=likely)
        return Type.ANY

    def reference_type(self, expr: KeyRef | AggregateRef | TemporalRef, *, likely: bool) -> Type:
        return Type.ANY

    def reference_texts(self, expr: KeyRef | AggregateRef | TemporalRef) -> frozenset[str]:
        return frozenset()

    def _call_type(self, call: Call, likely: bool) -> Type:
        function = self.catalog.scalars.get(call.function)
        if function is None:
            return Type.ANY
        if function.rule is None:
            return function.signature.result
        return function.rule([None if _is_null(arg) else self.type_of(arg, likely=likely) for arg in call.args])


def _is_null(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is None


def looks_at_rows_before(node: syntax.Function, aggregate: AggregateSignature) -> bool:
    """Return whether a call aggregates earlier rows (OVER with LIMIT DURATION) rather than a group."""
    return node.over is not None and (node.over.limit is not None or not aggregate.ranked)


def check_count(context: Context, node: syntax.Function, signature: Signature) -> None:
    """Report a wrong number of arguments."""
    count = len(node.args)
    if signature.least <= count and (signature.most is None or count <= signature.most):
        return
    if signature.most is None:
        expected = f"at least {signature.least}"
    elif signature.least == signature.most:
        expected = str(signature.most) if signature.most else "no"
    else:
        expected = f"{signature.least} to {signature.most}"
    plural = "argument" if expected == "1" else "arguments"
    name = context.catalog.spelling(node.key)
    context.report.error(node.span, f"{name} takes {expected} {plural}, not {count}")


def unit_word(context: Context, node: Node, allowed: tuple[str, ...]) -> str:
    """Return the long form of a unit of time. An unknown unit is reported, and "second" returned."""
    text = context.report.text(node.span)
    if isinstance(node, syntax.Path) and len(node.words) == 1:
        unit = units.long_form(node.words[0].text)
        if unit in allowed:
            return unit
        if unit is not None:
            context.report.error(node.span, f"{unit} cannot be the unit here", "units are " + ", ".join(allowed))
            return "second"
    near = units.INSTEAD.get(text.lower()) or nearest(text, [*allowed])
    hint = f"did you mean {near}?" if near in allowed else "units are " + ", ".join(allowed)
    context.report.error(node.span, f"expected a unit of time, found {text}", hint)
    return "second"


def _registration(node: syntax.Function) -> str:
    """Return what to write so that a function is registered."""
    name = node.name[-1].text
    key = name if re.fullmatch(r"[\w-]+", name, re.ASCII) else f"'{name}'"
    aggregate = ' and aggregate = "CLASS"' if node.key.startswith("uda.") else ""
    section = f'[functions.{key}] with module = "functions.py"{aggregate}'
    return f"add {section} to the job file (of a project: to tidegate.toml; of a Spark program: to functions=)"


def resolve_type(context: Context, node: syntax.TypeName) -> Type:
    """Return the type that a name means. An unknown type is reported, and ANY returned."""
    report = context.report
    word = node.name.text.lower()
    type_ = types.NAMES.get(word)
    if type_ is None:
        instead = types.INSTEAD.get(word)
        hint = (
            f"write {instead}" if instead else did_you_mean(word, types.NAMES) or "types are " + ", ".join(types.NAMES)
        )
        report.error(node.span, f"there is no type {node.name.text}", hint)
        return Type.ANY
    if node.length is not None and not (type_ is Type.NVARCHAR and node.length.text.lower() == "max"):
        message = "nvarchar has no other length than max" if type_ is Type.NVARCHAR else f"{word} takes no length"
        report.error(node.span, message, "write nvarchar(max)" if type_ is Type.NVARCHAR else f"write {word}")
    if type_ is Type.BIT and context.compatibility_level != "1.2":
        report.error(
            node.span,
            f"there is no bit in compatibility level {context.compatibility_level}",
            "bit came with level 1.2",
        )
    return type_
