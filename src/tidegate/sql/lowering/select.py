"""Lowering of SELECT and UNION to relations.

The order of the relations from the bottom: FROM (with analytic functions), WHERE, GROUP BY, HAVING, the SELECT list.
"""

from __future__ import annotations

from tidegate.sql.lowering.context import Context, Lowered, default_name
from tidegate.sql.lowering.doubts import note_aliases
from tidegate.sql.lowering.expressions import ExpressionLowerer
from tidegate.sql.lowering.groups import GroupLowerer, has_aggregate
from tidegate.sql.lowering.scope import Scope, Source, SourceKind, texts_below
from tidegate.sql.lowering.sources import FromLowerer, FromPlan
from tidegate.sql.lowering.temporal import RowLowerer
from tidegate.sql.lowering.windows import WindowLowerer, lookback_ticks
from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.diagnostics import nearest
from tidegate.sql.parsing.syntax import Node, Span
from tidegate.sql.plan import types
from tidegate.sql.plan.catalog import WINDOWS
from tidegate.sql.plan.nodes import (
    Aggregate,
    Call,
    Column,
    Expr,
    Filter,
    Item,
    KeyRef,
    Project,
    Relation,
    Row,
    Star,
    SystemTimestamp,
    TextPosition,
    Type,
    Union,
    Window,
    WindowId,
    Windows,
)
from tidegate.sql.plan.signatures import ArgumentKind
from tidegate.sql.plan.walking import fold


def lower_query(context: Context, node: syntax.QueryNode) -> Lowered | None:
    """Return the plan of a query, None if its FROM could not be resolved."""
    if isinstance(node, syntax.UnionNode):
        return _lower_union(context, node)
    return SelectLowerer(context).lower(node)


_PARTITION = "PartitionId"


class SelectLowerer:
    """One SELECT: its clauses from FROM upwards."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._report = context.report
        self._carried = False

    def lower(self, node: syntax.Select) -> Lowered | None:
        carries_partition, self._context.carries_partition = self._context.carries_partition, False
        plan = FromLowerer(self._context, lambda query: lower_query(self._context, query)).lower(node.source)
        self._context.carries_partition = carries_partition
        rows = RowLowerer(self._context, plan.scope, "SELECT", plan.temporals)
        where = None
        if node.where is not None:
            where = RowLowerer(self._context, plan.scope, "WHERE", plan.temporals).condition(node.where)
        grouped = self._grouped(node)
        if node.having is not None and not grouped:
            # "When GROUP BY is not used, HAVING behaves like a WHERE clause" (HAVING page).
            kept = RowLowerer(self._context, plan.scope, "HAVING", plan.temporals).condition(node.having)
            where = kept if where is None else Call("and", (where, kept), self._report.position(node.having.span))
        named = {item.alias.text.lower(): item.value for item in node.items if item.alias} if grouped else {}
        aggregated = {name for name, value in named.items() if has_aggregate(self._context.catalog, value)}
        note_aliases(self._context, plan.scope, node, grouped=grouped, aggregated=aggregated)
        lookback = 0
        if not grouped:
            items = self._items(node, rows, plan)
            relation = self._filtered(plan, where)
            typed: ExpressionLowerer = rows
        else:
            keys, window = self._group_by(node, plan)
            groups = GroupLowerer(rows, keys, "SELECT")
            groups.given = {
                item.alias.text.lower(): self._report.text(item.value.span) for item in node.items if item.alias
            }
            items = self._items(node, groups, plan)
            groups.named = {item.name.lower(): item for item in items if isinstance(item, Item)}
            having = None if node.having is None else groups.condition(node.having)
            relation = self._filtered(plan, where)
            if relation is not None:
                relation = Aggregate(relation, window, keys, tuple(groups.calls))
                relation = relation if having is None else Filter(relation, having)
            lookback = lookback_ticks(window)
            typed = groups
        if relation is None:
            return None
        self._check_reference_alone(node, plan, grouped)
        if node.distinct is not None:
            self._check_distinct(node.distinct, items, typed, relation)
        if carries_partition:
            items = self._with_partition(items, plan, typed)
        return self._lowered(Project(relation, items), items, typed, plan, lookback, grouped)

    @staticmethod
    def _filtered(plan: FromPlan, where: Expr | None) -> Relation | None:
        relation = plan.assemble()
        return relation if where is None or relation is None else Filter(relation, where)

    def _check_reference_alone(self, node: syntax.Select, plan: FromPlan, grouped: bool) -> None:
        if plan.reference and (grouped or plan.temporals.lookback_ticks(plan.scope.sources[0].alias)):
            name = plan.scope.sources[0].alias
            span = node.source.first.span
            self._report.error(span, f"the reference data {name} has no time to group by", "join it to a stream")

    def _check_distinct(
        self, span: Span, items: tuple[Item | Star, ...], typed: ExpressionLowerer, relation: Relation
    ) -> None:
        """Report SELECT DISTINCT unless the rows are groups of one window whose keys are all selected."""
        selected = {item.expr.index for item in items if isinstance(item, Item) and isinstance(item.expr, KeyRef)}
        groups = relation.source if isinstance(relation, Filter) else relation
        one_window = isinstance(groups, Aggregate) and not isinstance(groups.window, Windows)
        if one_window and isinstance(typed, GroupLowerer) and selected == set(range(len(typed.keys))):
            return
        message = "SELECT DISTINCT is part of this language only where each group has its own row"
        self._report.error(span, message, "group by the columns and select them, or COUNT(DISTINCT column)")

    # GROUP BY ---------------------------------------------------------------------------------------------------------

    def _grouped(self, node: syntax.Select) -> bool:
        """Return whether the SELECT returns groups. Aggregates without GROUP BY are reported here, once."""
        if node.group_by:
            return True
        aggregates = [item.value for item in node.items if has_aggregate(self._context.catalog, item.value)]
        if node.having is not None and has_aggregate(self._context.catalog, node.having):
            aggregates.append(node.having)
        if aggregates:
            self._report.error(
                aggregates[0].span,
                f"{self._report.text(aggregates[0].span)} aggregates, but there is no GROUP BY with a window",
                "GROUP BY TumblingWindow(second, 10), or OVER (LIMIT DURATION(second, 10))",
            )
        return bool(aggregates)

    def _group_by(self, node: syntax.Select, plan: FromPlan) -> tuple[tuple[Expr, ...], Window | Windows]:
        rows = RowLowerer(self._context, plan.scope, "GROUP BY", plan.temporals)
        windows: list[tuple[Node, Window | Windows]] = []
        keys: list[Expr] = []
        timestamps: list[Node] = []
        guessed = False
        partitions = [source.partition_by for source in plan.scope.sources if source.partition_by is not None]
        for item in node.group_by:
            if isinstance(item, syntax.Function) and self._context.catalog.is_window(item.key):
                # Sources that are joined have equal keys (join_bounds).
                windows.append((item, WindowLowerer(self._context, rows.value, partitions[:1]).window(item)))
            elif isinstance(item, syntax.Function) and self._misspelt_window(item):
                guessed = True
            else:
                key = rows.value(item)
                if isinstance(key, SystemTimestamp):
                    timestamps.append(item)
                self._check_key(item, key)
                if fold(key) not in [fold(other) for other in keys]:
                    keys.append(key)
        for extra, _ in windows[1:]:
            hint = "Windows(…) computes several windows at once"
            self._report.error(extra.span, "GROUP BY takes one window", hint)
        if node.group_by:
            span = node.group_by[0].span.to(node.group_by[-1].span)
            self._check_over_keys(span, keys, plan)
            if partitions and not any(fold(key) in map(fold, keys) for key in partitions):
                name = ".".join(partitions[0].path)
                message = f"the source is partitioned by {name}: GROUP BY must have it as a key"
                self._report.error(span, message, f"add {name} to GROUP BY, or remove PARTITION BY")
            if not windows and not timestamps and not guessed:
                hint = "add TumblingWindow(second, 10), another window, or System.Timestamp()"
                self._report.error(span, "GROUP BY has no window: a window must be specified", hint)
        if windows:
            return tuple(keys), windows[0][1]
        keys = [key for key in keys if not isinstance(key, SystemTimestamp)]
        return tuple(keys), self._context.catalog.snapshot(
            position=self._report.position((timestamps or [node.items[0].value])[0].span)
        )

    def _misspelt_window(self, item: syntax.Function) -> bool:
        """Return whether an unknown function is probably a misspelt window, and report it if so."""
        if self._context.catalog.has(item.key) or "." in item.key:
            return False
        kinds = self._context.catalog.windows
        near = nearest(item.key, [*kinds, WINDOWS.lower()])
        if near is None:
            return False
        name = item.name[0].text
        self._report.error(
            item.name[0].span, f"there is no function {name}", f"did you mean {self._context.catalog.spelling(near)}?"
        )
        return True

    def _check_key(self, item: Node, key: Expr) -> None:
        if isinstance(key, Row):
            self._report.error(item.span, f"{key.source} is a whole event, not a key", f"name a column: {key.source}.…")
        elif isinstance(item, syntax.Constant):
            self._report.error(item.span, "a constant is not a key of GROUP BY", "name a column")

    def _check_over_keys(self, span: Span, keys: list[Expr], plan: FromPlan) -> None:
        folded = [fold(key) for key in keys]
        for source in plan.scope.sources:
            for over in source.over if source.has_over else ():
                if fold(over) not in folded:
                    name = ".".join(over.path) if isinstance(over, Column) else "its key"
                    message = f"TIMESTAMP BY … OVER {name}: GROUP BY must have it as a key"
                    self._report.error(span, message, f"add {name} to GROUP BY")

    # The SELECT list --------------------------------------------------------------------------------------------------

    def _items(self, node: syntax.Select, lowerer: RowLowerer, plan: FromPlan) -> tuple[Item | Star, ...]:
        items: list[Item | Star] = []
        seen: dict[str, int] = {}
        for place, item in enumerate(node.items, start=1):
            if isinstance(item.value, syntax.Wildcard):
                items += self._star(item, item.value, isinstance(lowerer, GroupLowerer), plan)
                continue
            name = self._name(item, place)
            if isinstance(lowerer, GroupLowerer):
                lowerer.alias = item.alias.text if item.alias else None
            items.append(Item(name, lowerer.value(item.value), self._report.position(item.value.span)))
            if item.alias and item.alias.text.isdecimal() and item.alias.span.start == item.value.span.end:
                text = self._report.text(item.value.span)
                message = f"{text}[{item.alias.text}] is read as {text} AS [{item.alias.text}], not as an element"
                self._report.notice(item.alias.span, message, f"GetArrayElement({text}, {item.alias.text})")
            if name.lower() in seen:
                span = item.alias.span if item.alias else item.value.span
                self._report.error(span, f"two columns are called {name}", "give one another name: AS …")
            seen[name.lower()] = place
        if isinstance(lowerer, GroupLowerer):
            lowerer.alias = None
        return tuple(items)

    def _name(self, item: syntax.SelectItem, place: int) -> str:
        name = item.alias.text if item.alias else default_name(item.value, place)
        level = self._context.compatibility_level
        metadata = isinstance(item.value, syntax.Function) and item.value.key == "getmetadatapropertyvalue"
        return name.lower() if level == "1.0" or (metadata and level != "1.2") else name

    def _star(
        self, item: syntax.SelectItem, node: syntax.Wildcard, grouped: bool, plan: FromPlan
    ) -> tuple[Item | Star, ...]:
        position = self._report.position(node.span)
        text = self._report.text(node.span)
        if item.alias is not None:
            self._report.error(item.alias.span, f"{text} is many columns, and takes no name")
        if grouped:
            self._report.error(node.span, f"{text} in a GROUP BY", "name the keys and aggregates, or Collect()")
            return ()
        if not node.words:
            if plan.stream_join:
                hint = " and ".join(f"{source.alias}.*" for source in plan.scope.sources[:2])
                self._report.error(node.span, "SELECT * in a JOIN of streams", f"name the columns, or {hint}")
            sources = plan.scope.sources
            if all(source.kind is not SourceKind.APPLY and not source.hidden for source in sources):
                return (Star(None, (), position),)
            return tuple(item for source in sources for item in _all_of(source, position))
        source = plan.scope.find(node.words[0].text)
        if source and len(node.words) == 1:
            return _all_of(source, position) if source.hidden else (Star(source.alias, (), position),)
        path = syntax.Path(node.words, Span(node.span.start, node.words[-1].span.end))
        column = plan.scope.resolve(path, starred=True)
        if not isinstance(column, Column):
            return ()
        if message := types.refusal(ArgumentKind.RECORD, plan.scope.type_of(column), None):
            self._report.error(node.span, f"{text} takes the fields of a record: {message}")
        return (Star(column.source, column.path, position),)

    def _with_partition(
        self, items: tuple[Item | Star, ...], plan: FromPlan, typed: ExpressionLowerer
    ) -> tuple[Item | Star, ...]:
        """Return the SELECT list with the rows' partition, by which a step may be read without selecting it."""
        source = plan.scope.sources[0]
        column = Column(source.alias, (_PARTITION,))
        if any(isinstance(item, Star) or item.name.lower() == _PARTITION.lower() for item in items):
            return items
        if not isinstance(typed, GroupLowerer):
            carried: Expr | None = None if source.lacks(_PARTITION) else column
        else:
            carried = KeyRef(typed.folded.index(fold(column))) if fold(column) in typed.folded else None
        if carried is None:
            return items
        self._carried = True
        return (*items, Item(_PARTITION, carried))

    # Properties of the result -----------------------------------------------------------------------------------------

    def _lowered(
        self,
        relation: Project,
        items: tuple[Item | Star, ...],
        typed: ExpressionLowerer,
        plan: FromPlan,
        lookback: int,
        grouped: bool,
    ) -> Lowered:
        columns: dict[str, str] | None = {}
        types_: dict[str, Type] = {}
        for item in items:
            added = (
                {item.name.lower(): (item.name, typed.type_of(item.expr))}
                if isinstance(item, Item)
                else _starred(item, plan.scope)
            )
            if added is None:
                columns = None
                continue
            for key, (name, type_) in added.items():
                if columns is not None:
                    columns.setdefault(key, name)
                types_.setdefault(key, type_)
        if columns is None:
            # A star over unknown columns may contain any name and hide a column listed after it.
            first_star = next(index for index, item in enumerate(items) if isinstance(item, Star))
            sure = {item.name.lower() for item in items[:first_star] if isinstance(item, Item)}
            types_ = {key: type_ for key, type_ in types_.items() if key in sure}
        hidden = frozenset(name for name in ("partitionid",) if self._carried and name in (columns or {}))
        keys = [source.over for source in plan.scope.sources if source.has_over]
        carried = tuple(_carrier(key, items, typed, grouped) for key in (keys[0] if keys else ()))
        lookback += plan.lookback_ticks
        texts = _texts(items, typed)
        spread = _spread(plan.scope.sources) if columns is None else frozenset()
        return Lowered(relation, columns, types_, lookback, carried, bool(keys), plan.reference, hidden, texts, spread)


def _texts(items: tuple[Item | Star, ...], typed: ExpressionLowerer) -> frozenset[str]:
    """Return the columns of a SELECT that it makes text of (`Lowered.texts`)."""
    texts: set[str] = set()
    for item in items:
        if isinstance(item, Item):
            name = item.name.lower()
            texts |= {name} if typed.is_text(item.expr) else {f"{name}.{field}" for field in typed.texts_in(item.expr)}
            continue
        for each in typed.scope.sources:
            if item.source in (None, each.alias):
                texts |= texts_below(each.texts, item.path) if item.path else each.texts
    return frozenset(texts)


def _all_of(source: Source, position: TextPosition) -> tuple[Item | Star, ...]:
    """Return a source's columns for a star with APPLY, or over a step that carries more than it selects."""
    if source.kind is SourceKind.APPLY:
        # The result of APPLY is one more column, a record (APPLY page, "Return types").
        return (Item(source.alias, Row(source.alias, position), position),)
    if not source.hidden:
        return (Star(source.alias, (), position),)
    names = [name for key, name in (source.columns or {}).items() if key not in source.hidden]
    return tuple(Item(name, Column(source.alias, (name,), position), position) for name in names)


def _starred(star: Star, scope: Scope) -> dict[str, tuple[str, Type]] | None:
    """Return the columns of a star, None if they are not all known."""
    if star.path:
        return None
    found: dict[str, tuple[str, Type]] = {}
    for source in scope.sources:
        if star.source is not None and source.alias != star.source:
            continue
        if source.columns is None:
            return None
        for key, name in source.columns.items():
            found.setdefault(key, (name, source.types.get(key, Type.ANY)))
    return found


def _spread(sources: list[Source]) -> frozenset[str]:
    """Return the aliases of the sources that APPLY is used with; none if the query has no APPLY."""
    if all(source.kind is not SourceKind.APPLY for source in sources):
        return frozenset()
    return frozenset(source.alias.lower() for source in sources if source.kind is not SourceKind.APPLY)


def _carrier(key: Expr, items: tuple[Item | Star, ...], typed: ExpressionLowerer, grouped: bool) -> str | None:
    """Return the result column that holds a key of TIMESTAMP BY … OVER."""
    for item in items:
        if isinstance(item, Star):
            if isinstance(key, Column) and len(key.path) == 1 and not item.path and item.source in (None, key.source):
                return key.path[0]
            continue
        expr = item.expr
        if grouped and isinstance(expr, KeyRef) and isinstance(typed, GroupLowerer):
            expr = typed.keys[expr.index]
        if not isinstance(expr, WindowId) and fold(expr) == fold(key):
            return item.name
    return None


# UNION ----------------------------------------------------------------------------------------------------------------


def _lower_union(context: Context, node: syntax.UnionNode) -> Lowered | None:
    """Lower a UNION. As far as they are known, its columns must have the same names in the same order."""
    branches: list[tuple[Span, Lowered]] = []
    for branch in node.branches:
        lowered = lower_query(context, branch)
        if lowered is not None:
            branches.append((branch.span, lowered))
    if not branches:
        return None
    every = [lowered for _, lowered in branches]
    first = every[0]
    for span, lowered in branches[1:]:
        _check_columns(context, span, first, lowered)
    known = all(lowered.columns is not None for lowered in every)
    names = [] if first.columns is None else list(first.columns.values())
    return Lowered(
        Union(tuple(_spelt(lowered.relation, names) for lowered in every), context.report.position(node.span)),
        first.columns if known else None,
        {key: type_ for key, type_ in first.types.items() if all(other.types.get(key) is type_ for other in every)},
        max(lowered.lookback_ticks for lowered in every),
        first.over if all(lowered.over == first.over for lowered in every) else (),
        all(lowered.has_over for lowered in every),
        all(lowered.reference for lowered in every),
        first.hidden,
        frozenset.intersection(*(lowered.texts for lowered in every)),
    )


def _check_columns(context: Context, span: Span, first: Lowered, other: Lowered) -> None:
    for key, name in (first.columns or {}).items():
        mine, theirs = first.types.get(key, Type.ANY), other.types.get(key, Type.ANY)
        if types.union_refusal(mine, theirs):
            message = f"the column {name} of a UNION is a {mine.value} in the first SELECT, and a {theirs.value} here"
            context.report.error(span, message, "the types of both must be compatible: CAST one of them")
    if first.columns is None or other.columns is None or list(first.columns) == list(other.columns):
        return
    names, others = list(first.columns.values()), list(other.columns.values())
    if len(names) != len(others):
        message = f"this SELECT of a UNION has {len(others)} columns, the first has {len(names)}"
    else:
        index = next(
            index for index, (one, two) in enumerate(zip(first.columns, other.columns, strict=True)) if one != two
        )
        message = f"column {index + 1} of this SELECT of a UNION is {others[index]}, of the first it is {names[index]}"
    context.report.error(span, message, "all must have, in the same order and with AS if need be: " + ", ".join(names))


def _spelt(relation: Relation, names: list[str]) -> Relation:
    """Return the SELECT with its columns spelt as in the first one, if names differ in case."""
    if not isinstance(relation, Project):
        return relation
    by_lower = {name.lower(): name for name in names}
    items = tuple(
        Item(by_lower.get(item.name.lower(), item.name), item.expr, item.position) if isinstance(item, Item) else item
        for item in relation.items
    )
    return Project(relation.source, items)
