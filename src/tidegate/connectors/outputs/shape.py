"""The columns of an output, as far as the query alone determines them: names, and types where they are certain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.engine import CATALOG
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.nodes import Type

_OF_LITERALS: dict[type, Type] = {int: Type.BIGINT, float: Type.FLOAT, str: Type.NVARCHAR, bool: Type.BIT}


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of an output; type ANY if only the values determine it."""

    name: str
    type: Type


Shape = tuple[OutputColumn, ...]

ColumnTypes = Callable[[plan.Input, str], Type]
"""Returns the type that all values in a column of an input have, NULL aside; ANY if they may differ."""


def nothing_known(mention: plan.Input, name: str) -> Type:
    """Return ANY for every column."""
    return Type.ANY


def shape_of(relation: plan.Relation, known: ColumnTypes = nothing_known) -> Shape | None:
    """Return the columns of a relation; None if a ``*`` stands for fields known only from the events.

    Args:
        known: what is known of the columns of inputs.
    """
    return _shape_of(relation, _Known(known, {}))


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of the columns of inputs, and the shapes that were found, by the `id` of their relation."""

    types: ColumnTypes
    shapes: dict[int, Shape | None]


def _shape_of(relation: plan.Relation, known: _Known) -> Shape | None:
    if id(relation) not in known.shapes:
        known.shapes[id(relation)] = _found_shape(relation, known)
    return known.shapes[id(relation)]


def _found_shape(relation: plan.Relation, known: _Known) -> Shape | None:
    match relation:
        case plan.Filter(source=source):
            return _shape_of(source, known)
        case plan.StepReference(relation=step):
            return _shape_of(step, known)
        case plan.Union(sources=sources):
            shapes = [_shape_of(source, known) for source in sources]
            first = shapes[0]
            if first is None or any(one is None or _names(one) != _names(first) for one in shapes):
                return None
            columns = zip(*(one for one in shapes if one is not None), strict=True)
            return tuple(OutputColumn(of[0].name, _common([one.type for one in of])) for of in columns)
        case plan.Project(source=source, items=items):
            columns_ = []
            for item in items:
                if isinstance(item, plan.Star):
                    return None
                columns_.append(OutputColumn(item.name, _type_of(item.expr, source, known)))
            return tuple(columns_)
        case _:
            return None


def _names(shape: Shape) -> list[str]:
    return [column.name.lower() for column in shape]


def _common(types: list[Type]) -> Type:
    return types[0] if all(type_ is types[0] for type_ in types) else Type.ANY


def _type_of(expr: plan.Expr, below: plan.Relation, known: _Known) -> Type:
    """Return the type of all values of an expression over a relation that are not NULL."""
    match expr:
        case plan.Cast(type=type_):
            return type_
        case plan.SystemTimestamp():
            return Type.DATETIME
        case plan.WindowId():
            return Type.NVARCHAR
        case plan.Row():
            return Type.RECORD
        case plan.Literal(value=value):
            return _OF_LITERALS.get(type(value), Type.ANY)
        case plan.Call(function=function):
            declared = CATALOG.scalar(function)
            return Type.ANY if declared is None else declared.signature.result
        case plan.KeyRef(index=index):
            aggregate = _aggregate_below(below)
            return Type.ANY if aggregate is None else _type_of(aggregate.keys[index], aggregate.source, known)
        case plan.AggregateRef(index=index):
            aggregate = _aggregate_below(below)
            if aggregate is None:
                return Type.ANY
            return _type_of_aggregate(aggregate.aggregates[index], aggregate.source, known)
        case plan.Column(source=source, path=(name,)):
            return _type_of_column(name, _origin(below, source), known)
        case _:
            return Type.ANY


def _type_of_column(name: str, origin: plan.Relation | None, known: _Known) -> Type:
    if isinstance(origin, plan.Input):
        return known.types(origin, name)
    shape = None if origin is None else _shape_of(origin, known)
    found = [column.type for column in shape or () if column.name.lower() == name.lower()]
    return found[0] if found else Type.ANY


def _origin(relation: plan.Relation, source: str | None) -> plan.Relation | None:
    """Return the input or step that a column of a FROM belongs to; None if that is something else."""
    match relation:
        case plan.Input(alias=alias) | plan.StepReference(alias=alias):
            return relation if source is None or alias.lower() == source.lower() else None
        case plan.Filter(source=below) | plan.Temporal(source=below) | plan.Apply(source=below):
            return _origin(below, source)
        case plan.Join(left=left, right=right):
            return None if source is None else _origin(left, source) or _origin(right, source)
        case _:
            return None


def _aggregate_below(relation: plan.Relation) -> plan.Aggregate | None:
    while isinstance(relation, plan.Filter):
        relation = relation.source
    return relation if isinstance(relation, plan.Aggregate) else None


def _type_of_aggregate(call: plan.AggregateCall, below: plan.Relation, known: _Known) -> Type:
    declared = CATALOG.aggregate(call.function)
    assert declared is not None, call.function
    return declared.result_type(_type_of(call.args[0], below, known) if call.args else Type.ANY)
