"""The grammar of clauses and statements, by recursive descent.

A script is any number of CREATE TABLE, one WITH, and any number of SELECT … INTO (or UNIONs of them), in this order
or with the CREATE TABLE anywhere; semicolons are optional. A statement (or step) that cannot be read is skipped, so
that the others are still checked.

https://learn.microsoft.com/stream-analytics-query/query-language-elements-azure-stream-analytics
"""

from __future__ import annotations

from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.cursor import SyntaxFault
from tidegate.sql.parsing.diagnostics import Diagnostic
from tidegate.sql.parsing.dialect import ELSEWHERE, RESERVED, STATEMENTS, TokenKind, tokenize
from tidegate.sql.parsing.match_parser import MatchParser
from tidegate.sql.parsing.syntax import Span, Word
from tidegate.sql.plan.catalog import Catalog

# A bare word after a value or a source is its alias, unless it begins the next clause.
_NOT_AN_ALIAS = RESERVED | {"APPLY", "MATCH_RECOGNIZE", *ELSEWHERE, *STATEMENTS}
_WRITE_ON = "write ON a.key = b.key, and between two streams AND DATEDIFF(…)"


class Parser(MatchParser):
    """`any_prefix`: of a built-in function a prefix is not looked at, as below level 1.2."""

    def __init__(self, sql: str, catalog: Catalog, *, any_prefix: bool = False) -> None:
        super().__init__(sql, tokenize(sql))
        self.catalog = catalog
        self.any_prefix = any_prefix
        self.diagnostics: list[Diagnostic] = []
        self._depths = self._parenthesis_depths()

    def script(self) -> syntax.Script:
        tables: list[syntax.CreateTable] = []
        steps: list[syntax.StepDefinition] = []
        queries: list[syntax.QueryNode] = []
        while True:
            while self.accept_sign(";"):
                pass
            if self.token.kind is TokenKind.END:
                return syntax.Script(tuple(tables), tuple(steps), tuple(queries))
            begun = self.index
            try:
                if self.at("CREATE"):
                    tables.append(self._create_table())
                elif self.at("WITH"):
                    self._steps(steps)
                elif self.at("SELECT") or self.at_sign("("):
                    queries.append(self._query())
                elif self.token.upper in STATEMENTS:
                    raise self.fault(f"{self.token.upper} is not part of this language", STATEMENTS[self.token.upper])
                elif not queries:
                    raise self.unexpected("SELECT, WITH or CREATE TABLE")
                else:
                    # The query that this continues is not whole: what it lacks would be reported of it.
                    queries.pop()
                    missing = f"a comma or an operator may be missing before {self._found(self.token)}"
                    if self.token.upper in ("TIMESTAMP", "PARTITION"):
                        missing = f"{self.token.upper} BY follows the source: FROM input {self.token.upper} BY …"
                    raise self.unexpected("SELECT, UNION or the end", missing if self._is_name() else None)
            except SyntaxFault as fault:
                self.diagnostics.append(fault.diagnostic)
                self._skip_statement(begun)

    # Recovery ---------------------------------------------------------------------------------------------------------

    def _parenthesis_depths(self) -> list[int]:
        depths, depth = [], 0
        for token in self.tokens:
            if token.kind is TokenKind.SIGN and token.text == ")":
                depth = max(0, depth - 1)
            depths.append(depth)
            if token.kind is TokenKind.SIGN and token.text == "(":
                depth += 1
        return depths

    def _opened(self) -> bool:
        """Whether the ) here closes anything."""
        before = self.tokens[: self.index]
        signs = [token.text for token in before if token.kind is TokenKind.SIGN]
        return signs.count("(") > signs.count(")")

    def _skip_statement(self, begun: int) -> None:
        """To the next semicolon or word that begins a statement, as deep in parentheses as this one began."""
        depth = self._depths[begun]
        # A SELECT after AS was meant as a name.
        named = self.index > begun and self.at("SELECT") and self.tokens[self.index - 1].upper == "AS"
        self.index = max(self.index + named, begun + 1)
        while self.token.kind is not TokenKind.END:
            before = self.tokens[self.index - 1].upper
            if self._depths[self.index] <= depth and (
                self.at_sign(";")
                or (self.token.upper in ("SELECT", "WITH", "CREATE") and before not in ("UNION", "ALL"))
            ):
                return
            self.index += 1

    # Statements -------------------------------------------------------------------------------------------------------

    def _create_table(self) -> syntax.CreateTable:
        self.expect("CREATE")
        self.expect("TABLE", why=" after CREATE")
        name = self.name("a name of an input")
        self.expect_sign("(", why=" and the columns of the table")
        columns: list[tuple[Word, syntax.TypeName]] = []
        while not columns or self.accept_sign(","):
            column = self.name("a name of a column")
            columns.append((column, self.type_name()))
        self.expect_sign(")", why=" or , after a column")
        return syntax.CreateTable(name, tuple(columns))

    def _steps(self, steps: list[syntax.StepDefinition]) -> None:
        self.expect("WITH")
        if self.at_sign("("):
            raise self.fault("there are no hints for tables in this language", "WITH names steps: WITH step AS (…)")
        while True:
            name = self.name("a name of a step")
            self.accept("AS")  # The documentation's own examples leave it out.
            if not self.at_sign("("):
                # References to the step are still valid.
                steps.append(syntax.StepDefinition(name, None))
            self.expect_sign("(", why=f" and the query of the step {name.text}")
            opened = self.index - 1
            try:
                query: syntax.QueryNode | None = self._query()
                self.expect_sign(")", why=f" at the end of the step {name.text}")
            except SyntaxFault as fault:
                self.diagnostics.append(fault.diagnostic)
                query = None
            closed = query is not None or self._skip_to_close(opened)
            steps.append(syntax.StepDefinition(name, query))
            if not closed or not self.accept_sign(","):
                return

    def _skip_to_close(self, opened: int) -> bool:
        """Behind the parenthesis that closes the one at `opened`; else to the next SELECT outside of one, and False."""
        depth = self._depths[opened]
        for index in range(opened + 1, len(self.tokens)):
            if (
                self.tokens[index].text == ")"
                and self.tokens[index].kind is TokenKind.SIGN
                and self._depths[index] == depth
            ):
                self.index = index + 1
                return True
        while not self.at_kind(TokenKind.END):
            before = self.tokens[self.index - 1]
            if self.at("SELECT") and before.text != "(" and before.upper not in ("UNION", "ALL"):
                break
            self.index += 1
        return False

    # Queries ----------------------------------------------------------------------------------------------------------

    def _query(self) -> syntax.QueryNode:
        start = self.token.start
        branches = [self._branch()]
        while self.accept("UNION"):
            self.accept("ALL")  # UNION keeps duplicates here, so that ALL says nothing new.
            branches.append(self._branch())
        return branches[0] if len(branches) == 1 else syntax.UnionNode(tuple(branches), self.since(start))

    def _branch(self) -> syntax.QueryNode:
        if not self.accept_sign("("):
            return self._select()
        self.deeper()
        query = self._query()
        self.shallower()
        self.expect_sign(")", why=" after the query")
        return query

    def _select(self) -> syntax.Select:
        start = self.token.start
        self.expect("SELECT")
        distinct = None
        if self.token.upper in ("DISTINCT", "TOP") and not self._is_column_here():
            if self.at("TOP"):
                raise self.unexpected("a column")
            distinct = self.span
            self.advance()
        items = [self._item()]
        while self.accept_sign(","):
            if self.token.upper in ("FROM", "INTO"):
                raise self.fault("a column is missing after this comma", None, self._before())
            items.append(self._item())
        into = self._into() if self.at("INTO") else None
        if self.at_sign(")") and self._depths[self.index] == 0 and not self._opened():
            raise self.fault("no parenthesis is open here")
        if not self.at("FROM"):
            self._refuse_element(items[-1])
            raise self.unexpected(
                "a comma or FROM" if into or not self._at_end() else "FROM: a SELECT reads an input or a step"
            )
        source = self._from()
        where = self.expression() if self.accept("WHERE") else None
        group_by: tuple[syntax.Node, ...] = ()
        if self.accept("GROUP"):
            self.expect("BY", why=" after GROUP")
            group_by = self.expressions()
        having = self.expression() if self.accept("HAVING") else None
        if self.token.upper in ELSEWHERE or (self.token.upper == "WHERE" and where is None):
            raise self._misplaced()
        return syntax.Select(tuple(items), into, source, where, group_by, having, self.since(start), distinct)

    def _is_column_here(self) -> bool:
        """Whether DISTINCT or TOP is the name of a column, rather than the word of T-SQL."""
        if self.following.text == "(":
            return self.tokens[min(self.index + 2, len(self.tokens) - 1)].kind is not TokenKind.NUMBER
        return self.following.text in (",", ".", "=") or self.following.upper in ("FROM", "INTO", "AS")

    def _misplaced(self) -> SyntaxFault:
        if self.at("WHERE"):
            return self.fault("WHERE comes before GROUP BY", "HAVING filters what GROUP BY gives")
        return self.unexpected("the end of the SELECT")

    def _before(self) -> Span:
        token = self.tokens[self.index - 1]
        return Span(token.start, token.end)

    def _at_end(self) -> bool:
        return self.token.kind is TokenKind.END or self.at_sign(";") or self.at_sign(")")

    def _item(self) -> syntax.SelectItem:
        if self.at_sign("*"):
            span = self.span
            self.advance()
            return syntax.SelectItem(syntax.Wildcard((), span), None)
        if self.following.text == "=" and self.following.kind is TokenKind.SIGN and self._is_name():
            alias = self.name("a name of a column")
            self.advance()
            return syntax.SelectItem(self.expression(), alias)
        value = self.expression()
        return syntax.SelectItem(value, self._alias())

    def _refuse_equal_names(self) -> None:
        """Raise the fault of a join by columns of one name; its words are no aliases."""
        if self.at("USING") and self.following.text == "(":
            raise self.fault("USING is not part of this language", _WRITE_ON)
        if self.at("NATURAL") and self.following.upper in ("JOIN", "INNER", "LEFT", "RIGHT", "FULL"):
            raise self.fault("NATURAL JOIN is not part of this language", _WRITE_ON)

    def _refuse_element(self, item: syntax.SelectItem) -> None:
        """Raise the fault of a column with [0] right behind it, which names it, and then another name or a field."""
        alias, value = item.alias, item.value.span
        if alias is None or not alias.text.isdecimal() or alias.span.start != value.end:
            return
        text, span = self.sql[value.start : value.end], Span(value.start, alias.span.end)
        element = f"GetArrayElement({text}, {alias.text})"
        raise self.fault(f"{text}[{alias.text}] is a column with a name, not an element", f"write {element}", span)

    def _is_name(self) -> bool:
        return self.token.is_quoted or (self.token.kind is TokenKind.WORD and self.token.upper not in RESERVED)

    def _alias(self) -> Word | None:
        if self.accept("AS"):
            if self.token.kind is TokenKind.TEXT and self.token.text:
                token = self.advance()
                return Word(token.text, Span(token.start, token.end), True)
            return self.name("a name after AS")
        self._refuse_equal_names()
        if self.token.is_quoted or (self.token.kind is TokenKind.WORD and self.token.upper not in _NOT_AN_ALIAS):
            return self.name("a name")
        return None

    def _into(self) -> Word:
        self.expect("INTO")
        name = self.name("a name of an output after INTO")
        if self.at_sign("."):
            raise self.fault("an output is one name, without dots", "SELECT … INTO output FROM …")
        return name

    # FROM -------------------------------------------------------------------------------------------------------------

    def _from(self) -> syntax.From:
        self.expect("FROM")
        return self._joined()

    def _joined(self) -> syntax.From:
        """A source and what is joined to it; the page of JOIN has parentheses around a part of this, too."""
        rest: list[syntax.JoinClause | syntax.ApplyClause] = []
        if self._begins_joined():
            self.expect_sign("(")
            self.deeper()
            inside = self._joined()
            self.shallower()
            self.expect_sign(")", why=" after what is joined")
            first, rest = inside.first, list(inside.rest)
        else:
            first = self._source()
        while True:
            self._refuse_equal_names()
            if self.at("CROSS", "APPLY") or self.at("OUTER", "APPLY"):
                rest.append(self._apply())
            elif self.at("JOIN") or self.at("INNER") or (self.at("LEFT") and self.following.text != "("):
                rest.append(self._join())
            elif self.at_sign(","):
                raise self.fault("FROM takes one source", "join another with JOIN … ON … DATEDIFF(…)")
            elif self.at("CROSS", "JOIN"):
                rest.append(self._cross_join())
            elif self.at("CROSS"):
                raise self.fault("expected APPLY or JOIN after CROSS", "CROSS APPLY GetArrayElements(array) AS name")
            elif self.at("RIGHT") or self.at("FULL"):
                raise self.unexpected("JOIN")
            elif self.at("INTO"):
                raise self.fault("INTO comes before FROM", "SELECT … INTO output FROM …")
            else:
                return syntax.From(first, tuple(rest))

    def _begins_joined(self) -> bool:
        """Whether the parenthesis here is around sources, rather than around a query."""
        index = self.index
        while self.tokens[index].kind is TokenKind.SIGN and self.tokens[index].text == "(":
            index += 1
        return index > self.index and self.tokens[index].upper != "SELECT"

    def _source(self) -> syntax.Source:
        if self._begins_joined():
            raise self.fault("only the first source of FROM may be a join in parentheses", "join one after the other")
        source: syntax.Source = self._table_or_query()
        while self.at("MATCH_RECOGNIZE"):
            if isinstance(source, syntax.Matched):
                raise self.fault("MATCH_RECOGNIZE looks at an input or a step", "match in a WITH step first")
            source = self.matched(source)
        return source

    def _table_or_query(self) -> syntax.TableReference | syntax.Derived:
        start = self.token.start
        if self.accept_sign("("):
            self.deeper()
            query = self._query()
            self.shallower()
            self.expect_sign(")", why=" after the query")
            alias = self._alias()
            if alias is None:
                raise self.unexpected("a name for the query in FROM")
            return syntax.Derived(query, alias, self.since(start))
        name = self.name("a name of an input or a step")
        if self.at_sign("."):
            raise self.fault("an input is one name, without dots", None)
        alias = None if self.at("TIMESTAMP", "BY") or self.at("PARTITION", "BY") else self._alias()
        timestamp_by = None
        over: tuple[syntax.Node, ...] = ()
        partition_by: tuple[syntax.Node, ...] = ()
        while True:
            if timestamp_by is None and self.accept("TIMESTAMP", "BY"):
                timestamp_by = self.expression()
                over = self.expressions() if self.accept("OVER") else ()
            elif not partition_by and self.accept("PARTITION", "BY"):
                partition_by = self._partition_by()
            elif alias is None and (self.token.upper == "AS"):
                raise self.fault("the alias of an input comes right after its name", "input AS i TIMESTAMP BY …")
            else:
                return syntax.TableReference(name, alias, timestamp_by, over, partition_by, self.since(start))

    def _partition_by(self) -> tuple[syntax.Node, ...]:
        keys = self.expressions()
        if self.at("INTO") and self.following.kind is TokenKind.NUMBER:
            self.advance()
            count = self.advance()
            # A hint about the service's own shards; the partitions here are those of the log.
            if not count.text.isdigit() or len(count.text) > 9 or int(count.text) < 2:
                raise self.fault("the number of partitions must be a whole number greater than 1", None, self._before())
        return keys

    def _join(self) -> syntax.JoinClause:
        start = self.token.start
        left_outer = self.accept("LEFT")
        if left_outer:
            self.accept("OUTER")
        else:
            self.accept("INNER")
        self.expect("JOIN")
        source = self._source()
        self._refuse_equal_names()
        self.expect("ON", why=" and a condition after JOIN")
        return syntax.JoinClause(left_outer, source, self.expression(), self.since(start))

    def _cross_join(self) -> syntax.JoinClause:
        start = self.token.start
        self.expect("CROSS", "JOIN")
        source = self._source()
        if self.at("ON"):
            raise self.fault("CROSS JOIN takes no ON", "JOIN … ON has a condition")
        return syntax.JoinClause(False, source, None, self.since(start))

    def _apply(self) -> syntax.ApplyClause:
        start = self.token.start
        outer = self.advance().upper == "OUTER"
        self.expect("APPLY")
        call = self.expression()
        if not isinstance(call, syntax.Function):
            raise self.fault("APPLY takes GetArrayElements(…) or GetRecordProperties(…)", None, call.span)
        alias = self._alias()
        if alias is None:
            raise self.unexpected("a name (AS …) for what APPLY gives")
        return syntax.ApplyClause(outer, call, alias, self.since(start))
