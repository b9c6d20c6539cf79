"""What a query needs of each input: which fields, or the whole event, and which metadata."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.engine.expressions.evaluation import SCALARS
from tidegate.engine.functions.declarations import OfColumn
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import expressions_of, parts_of, sources_of


@dataclass(slots=True)
class Need:
    """What is needed of one input.

    Attributes:
        paths: fields in order of mention, spelled as first mentioned, by their names in lower case.
        record: the whole event is.
        metadata: names of metadata properties, spelled as the query does.
        of_input: the fields that only TIMESTAMP BY and OVER use, so not of rows that have been stamped.
    """

    paths: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    record: bool = False
    metadata: dict[str, None] = field(default_factory=dict)
    of_input: set[tuple[str, ...]] = field(default_factory=set)

    def add(self, path: tuple[str, ...], *, of_input: bool = False) -> None:
        """Add a field that is needed; ``of_input``: by the input itself."""
        low = tuple(map(str.lower, path))
        if not of_input:
            self.of_input.discard(low)
        elif low not in self.paths:
            self.of_input.add(low)
        self.paths.setdefault(low, path)


@dataclass(slots=True)
class _Select:
    """The expressions of one SELECT, over the sources of its FROM."""

    exprs: list[plan.Expr] = field(default_factory=list)
    stars: list[plan.Star] = field(default_factory=list)


def needs_of(query: plan.Query) -> dict[str, Need]:
    """Return what is needed of each input, by name in lower case."""
    needs: dict[str, Need] = {}
    for output in query.outputs:
        _collect(output.relation, _Select(), needs, set())
    return needs


def need_of(expr: plan.Expr) -> Need:
    """Return what an expression of an input needs of it, such as TIMESTAMP BY, where a column has no source."""
    need = Need()
    _of_expression(expr, None, need)
    return need


def _collect(relation: plan.Relation, select: _Select, needs: dict[str, Need], seen: set[int]) -> None:
    match relation:
        case plan.Input():
            _of_input(relation, select, needs.setdefault(relation.name.lower(), Need()))
            return
        case plan.StepReference():
            if id(relation.relation) not in seen:
                seen.add(id(relation.relation))
                _collect(relation.relation, _Select(), needs, seen)
            return
        case plan.Project(items=items):
            select = _Select(
                [item.expr for item in items if isinstance(item, plan.Item)],
                [item for item in items if isinstance(item, plan.Star)],
            )
        case plan.Aggregate():
            select = _Select(list(expressions_of(relation)))
        case plan.Match():
            select = _Select()
    own = () if isinstance(relation, plan.Project | plan.Aggregate) else expressions_of(relation)
    exprs = [*select.exprs, *own]
    for source in sources_of(relation):
        _collect(source, _Select(exprs, select.stars), needs, seen)


def _of_input(relation: plan.Input, select: _Select, need: Need) -> None:
    for expr in expressions_of(relation):
        _of_expression(expr, None, need)
    for expr in select.exprs:
        _of_expression(expr, relation.alias.lower(), need)
    for star in select.stars:
        if star.source is None or star.source.lower() == relation.alias.lower():
            if star.path:
                need.add(star.path)
            else:
                need.record = True


def _of_expression(expr: plan.Expr, alias: str | None, need: Need) -> None:
    match expr:
        case plan.Column(source=source, path=path):
            if (source and source.lower()) == alias:
                need.add(path, of_input=alias is None)
            return
        case plan.Row(source=source):
            need.record |= source is None or source.lower() == alias
            return
        case plan.Call(function=function, args=(plan.Row(source=source), plan.Literal(value=name))):
            declared = SCALARS.get(function)
            if declared is not None and isinstance(declared.implementation, OfColumn):
                if source is not None and source.lower() == alias:
                    need.metadata.setdefault(str(name))
                return
    for part in parts_of(expr):
        _of_expression(part, alias, need)
