"""What is known beside the query, and what the query has defined so far."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tidegate.saql.lowering.report import Report
from tidegate.saql.parsing.syntax import Span
from tidegate.saql.plan.catalog import Catalog
from tidegate.saql.plan.nodes import DeclaredColumn, Relation, Type

COMPATIBILITY_LEVELS = ("1.0", "1.1", "1.2")


@dataclass(slots=True)
class Lowered:
    """The plan of a query, and what its result is like.

    columns: names in lower case -> as written, None when not all are known. types: those known. over: for each key of
    TIMESTAMP BY … OVER, the column that carries it (None: none does). reference: it is made of reference data alone.
    lookback_ticks: how far back a result depends on its inputs.
    """

    relation: Relation
    columns: dict[str, str] | None
    types: dict[str, Type]
    lookback_ticks: int
    over: tuple[str | None, ...] = ()
    has_over: bool = False
    reference: bool = False


@dataclass(slots=True)
class Context:
    """`inputs`, `outputs` and `functions` are the names that exist, None when that is not known. Names match without
    case.

    tables: by CREATE TABLE. steps: by lower-case name, those above; None for one that could not be read. mentions: of
    stream inputs in FROM, and whether TIMESTAMP BY had OVER there.
    """

    report: Report
    catalog: Catalog
    compatibility_level: str
    inputs: Collection[str] | None
    reference_inputs: frozenset[str]
    outputs: Collection[str] | None
    functions: Collection[str] | None
    tables: dict[str, tuple[DeclaredColumn, ...]] = field(default_factory=dict)
    steps: dict[str, tuple[str, Lowered | None]] = field(default_factory=dict)
    mentions: list[tuple[Span, str, bool]] = field(default_factory=list)
    later_steps: frozenset[str] = frozenset()
