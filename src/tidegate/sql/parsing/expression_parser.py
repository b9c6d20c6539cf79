"""The grammar of expressions, by recursive descent. Precedence as in T-SQL, from loose to tight:

OR · AND · NOT · comparison, LIKE, IN, BETWEEN, IS NULL · + - & | ^ · * / % · unary - + ~

https://learn.microsoft.com/sql/t-sql/language-elements/operator-precedence-transact-sql
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.cursor import MAX_NESTING, MAX_OPERANDS, Cursor
from tidegate.sql.parsing.dialect import TokenKind
from tidegate.sql.parsing.syntax import Node, Span, Word
from tidegate.sql.plan.catalog import Catalog
from tidegate.sql.plan.names import PREFIXES

_COMPARISONS = frozenset(["=", "<>", "<", "<=", ">", ">="])
_ADDITIVE = frozenset(["+", "-", "&", "|", "^"])
_MULTIPLICATIVE = frozenset(["*", "/", "%"])
_LARGEST_BIGINT = 2**63


class ExpressionParser(Cursor):
    """`catalog`: the functions there are. `any_prefix`: of a built-in function a prefix is not looked at."""

    catalog: Catalog
    any_prefix = False

    def expression(self) -> Node:
        self.deeper()
        node = self._connective("OR", self._conjunction)
        self.shallower()
        return node

    def expressions(self) -> tuple[Node, ...]:
        """One or more, separated by commas."""
        nodes = [self.expression()]
        while self.accept_sign(","):
            nodes.append(self.expression())
        return tuple(nodes)

    # Conditions -------------------------------------------------------------------------------------------------------

    def _conjunction(self) -> Node:
        return self._connective("AND", self._negation)

    def _connective(self, word: str, operand: Callable[[], Node]) -> Node:
        start = self.token.start
        conditions = [operand()]
        while self.accept(word):
            conditions.append(operand())
        return conditions[0] if len(conditions) == 1 else syntax.Connective(word, tuple(conditions), self.since(start))

    def _negation(self) -> Node:
        if not self.at("NOT"):
            return self._predicate()
        start = self.advance().start
        self.deeper()
        condition = self._negation()
        self.shallower()
        return syntax.Not(condition, self.since(start))

    def _predicate(self) -> Node:
        start = self.token.start
        left = self._additive()
        if self.token.kind is TokenKind.SIGN and self.token.text in _COMPARISONS:
            sign = self.advance().text
            if sign == "=" and self.at_sign("=") and self.tokens[self.index - 1].end == self.token.start:
                raise self.fault("equality is written with one =", "write =")
            return syntax.Binary(sign, left, self._additive(), self.since(start))
        if self.accept("IS"):
            negated = self.accept("NOT")
            self.expect("NULL", why=" after IS")
            return syntax.IsNull(left, negated, self.since(start))
        negated = self.accept("NOT")
        if self.accept("IN"):
            return self._in_list(left, negated, start)
        if self.accept("BETWEEN"):
            low = self._additive()
            self.expect("AND", why=" between the bounds of BETWEEN")
            return syntax.Between(left, low, self._additive(), negated, self.since(start))
        if self.accept("LIKE"):
            pattern = self._additive()
            escape = self._additive() if self.accept("ESCAPE") else None
            return syntax.Like(left, pattern, escape, negated, self.since(start))
        if negated and self.at("NULL"):
            raise self.fault("expected IS before NOT NULL", "write IS NOT NULL")
        if negated:
            raise self.unexpected("IN, LIKE or BETWEEN after NOT")
        return left

    def _in_list(self, left: Node, negated: bool, start: int) -> Node:
        self.expect_sign("(", why=" and a list of values after IN")
        self._refuse_subquery()
        options = self.expressions()
        self.expect_sign(")", why=" at the end of the list")
        return syntax.InList(left, options, negated, self.since(start))

    # Values -----------------------------------------------------------------------------------------------------------

    def _additive(self) -> Node:
        return self._chain(_ADDITIVE, self._multiplicative)

    def _multiplicative(self) -> Node:
        return self._chain(_MULTIPLICATIVE, self._unary)

    def _chain(self, signs: frozenset[str], operand: Callable[[], Node]) -> Node:
        start = self.token.start
        left = operand()
        count = 1
        while self.token.kind is TokenKind.SIGN and self.token.text in signs:
            sign = self.advance().text
            count += 1
            if count > MAX_OPERANDS:
                raise self.fault(
                    f"more than {MAX_OPERANDS} operands in one expression", "name parts of it in WITH steps"
                )
            left = syntax.Binary(sign, left, operand(), self.since(start))
        return left

    def _unary(self) -> Node:
        start = self.token.start
        if self.at_kind(TokenKind.SIGN) and self.token.text in ("-", "+", "~"):
            sign = self.advance().text
            if sign == "-" and self.at_kind(TokenKind.NUMBER):
                # The smallest bigint has no positive counterpart, so the sign belongs to the number.
                value = self._number(negative=True)
                return syntax.Constant(value, self.since(start))
            self.deeper()
            operand = self._unary()
            self.shallower()
            return operand if sign == "+" else syntax.Unary(sign, operand, self.since(start))
        node = self._primary()
        depth = 0
        while self.at_sign("."):
            depth += 1
            if depth > MAX_NESTING:
                raise self.fault(f"this is nested more than {MAX_NESTING} deep")
            self.advance()
            node = syntax.Member(node, self.name("a name of a field after ."), self.since(start))
        return node

    def _number(self, negative: bool) -> int | float:
        token = self.advance()
        if token.text.isdigit():
            # int() of very long digits is slow, and refuses at some length: look at the length first.
            value = int(token.text) if len(token.text) <= 30 else _LARGEST_BIGINT * 2
            value = -value if negative else value
            if -_LARGEST_BIGINT <= value < _LARGEST_BIGINT:
                return value
            raise self.fault(
                "this number does not fit into a bigint",
                "bigint goes from -2^63 to 2^63 - 1; write a decimal point for a float",
                Span(token.start, token.end),
            )
        number = float(token.text)
        if number in (float("inf"), float("-inf")):
            raise self.fault("this number does not fit into a float", None, Span(token.start, token.end))
        return -number if negative else number

    def _primary(self) -> Node:
        token = self.token
        if token.kind is TokenKind.NUMBER:
            value = self._number(negative=False)
            return syntax.Constant(value, Span(token.start, token.end))
        if token.kind is TokenKind.TEXT or (token.kind is TokenKind.DOUBLE_QUOTED and not token.text):
            self.advance()
            return syntax.Constant(token.text, Span(token.start, token.end))
        if self.accept_sign("("):
            self._refuse_subquery()
            node = self.expression()
            self.expect_sign(")", why=" to close the parenthesis")
            return node
        if token.upper == "NULL":
            self.advance()
            return syntax.Constant(None, Span(token.start, token.end))
        if token.upper == "CASE":
            return self._case()
        opens = self.following.kind is TokenKind.SIGN and self.following.text == "("
        if token.upper in ("CAST", "TRY_CAST") and opens:
            return self._cast()
        if token.upper in ("TRUE", "FALSE") and not opens:
            raise self.fault(f"there is no constant {token.text} in this language", "a bit is compared with 1 or 0")
        if token.upper in ("LEFT", "RIGHT") and opens:
            return self._function((self.any_word(),))
        return self._path_or_function()

    def _path_or_function(self) -> Node:
        words = [self.name("a name, a value or (")]
        while self.at_sign("."):
            if self.following.kind is TokenKind.SIGN and self.following.text == "*":
                self.index += 2
                return syntax.Wildcard(tuple(words), self.since(words[0].span.start))
            self.advance()
            # After a dot every word is a name.
            if self.token.kind is not TokenKind.WORD and not self.token.is_quoted:
                raise self.unexpected("a name of a field after .")
            words.append(self.any_word())
        if self.at_sign("("):
            return self._function(tuple(words))
        name = words[0].text.lower()
        if len(words) == 1 and name in self.catalog.windows and name.endswith("window") and not words[0].quoted:
            raise self.unexpected(f"( after {self.catalog.spelling(name)}")
        return syntax.Path(tuple(words), self.since(words[0].span.start))

    def _function(self, name: tuple[Word, ...]) -> Node:
        start = name[0].span.start
        self.expect_sign("(")
        distinct = self.accept("DISTINCT")
        if not distinct and self.at("ALL"):
            self.advance()
        args: list[Node] = []
        if not self.at_sign(")"):
            args.append(self._argument())
            while self.accept_sign(","):
                args.append(self._argument())
        self.expect_sign(")", why=" or , in the arguments")
        over = None
        if self.accept("WITHIN"):
            # T-SQL's form of what the percentile pages write as OVER (ORDER BY …).
            if not self.at("GROUP"):
                raise self.unexpected("GROUP after WITHIN")
            over = self._over("WITHIN GROUP")
        elif self.at("OVER") and self.following.text == "(":
            over = self._over("OVER")
        if self.any_prefix and len(name) > 1 and name[0].text.lower() not in PREFIXES:
            name = name[-1:] if self.catalog.has(name[-1].text.lower()) else name
        return syntax.Function(name, tuple(args), distinct, over, self.since(start))

    def _argument(self) -> Node:
        if self.at_sign("*"):
            span = self.span
            self.advance()
            return syntax.Wildcard((), span)
        self._refuse_subquery()
        return self.expression()

    def _over(self, words: str) -> syntax.Over:
        start = self.advance().start
        self.expect_sign("(", why=f" after {words}")
        partition_by: tuple[Node, ...] = ()
        order_by: list[syntax.Ordering] = []
        limit = when = None
        while not self.at_sign(")"):
            if not partition_by and self.accept("PARTITION", "BY"):
                partition_by = self.expressions()
            elif not order_by and self.accept("ORDER", "BY"):
                order_by = self._orderings()
            elif limit is None and self.at("LIMIT"):
                limit = self.limit_duration()
            elif when is None and self.accept("WHEN"):
                when = self.expression()
            else:
                raise self.unexpected(f"PARTITION BY, ORDER BY, LIMIT DURATION, WHEN or ) in {words}")
        self.expect_sign(")")
        return syntax.Over(partition_by, tuple(order_by), limit, when, self.since(start))

    def _orderings(self) -> list[syntax.Ordering]:
        orderings: list[syntax.Ordering] = []
        while not orderings or self.accept_sign(","):
            value = self.expression()
            descending = self.accept("DESC")
            if not descending:
                self.accept("ASC")
            orderings.append(syntax.Ordering(value, descending))
        return orderings

    def limit_duration(self) -> syntax.Duration:
        start = self.token.start
        self.expect("LIMIT")
        self.expect("DURATION", why=" after LIMIT")
        self.expect_sign("(", why=" after LIMIT DURATION")
        unit = self.expression()
        self.expect_sign(",", why=" between the unit and the length of LIMIT DURATION")
        length = self.expression()
        self.expect_sign(")", why=" at the end of LIMIT DURATION")
        return syntax.Duration(unit, length, self.since(start))

    def _case(self) -> Node:
        start = self.advance().start
        operand = None if self.at("WHEN") else self.expression()
        branches: list[tuple[Node, Node]] = []
        while self.accept("WHEN"):
            condition = self.expression()
            self.expect("THEN", why=" after the condition of WHEN")
            branches.append((condition, self.expression()))
        if not branches:
            raise self.unexpected("WHEN in CASE")
        otherwise = self.expression() if self.accept("ELSE") else None
        self.expect("END", why=" of CASE" if otherwise is not None else ", WHEN or ELSE in CASE")
        return syntax.Case(operand, tuple(branches), otherwise, self.since(start))

    def _cast(self) -> Node:
        start = self.token.start
        safe = self.advance().upper == "TRY_CAST"
        self.expect_sign("(")
        value = self.expression()
        self.expect("AS", why=" and a type in CAST")
        type_name = self.type_name()
        self.expect_sign(")", why=" at the end of CAST")
        return syntax.CastTo(value, type_name, safe, self.since(start))

    def type_name(self) -> syntax.TypeName:
        start = self.token.start
        name = self.name("a type")
        length = None
        if self.accept_sign("("):
            length = self.any_word()
            if self.accept_sign(","):
                self.any_word()  # decimal(10, 2) is refused by its name.
            self.expect_sign(")", why=" after the length of the type")
        return syntax.TypeName(name, length, self.since(start))

    def _refuse_subquery(self) -> None:
        if self.at("SELECT"):
            raise self.fault("a subquery is not a value in this language", "make it a WITH step and JOIN it")
