"""The context of compilation: what is known besides the query, and what the query has defined so far."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tidegate.sql.lowering.report import Report
from tidegate.sql.parsing.syntax import Span
from tidegate.sql.plan.catalog import Catalog
from tidegate.sql.plan.nodes import DeclaredColumn, Relation, Type

COMPATIBILITY_LEVELS = ("1.0", "1.1", "1.2")


@dataclass(slots=True)
class Lowered:
    """The plan of a query, and the properties of its result.

    Attributes:
        relation: the plan.
        columns: names in lower case -> as written, None when not all are known.
        types: of the columns whose type is known.
        lookback_ticks: how far back a result depends on its inputs.
        over: for each key of TIMESTAMP BY … OVER, the column that carries it; None if none does.
        has_over: whether there were such keys.
        reference: whether it is made of reference data alone.
        hidden: the columns, in lower case, that it carries for PARTITION BY, and that a star leaves out.
        texts: the columns, in lower case, that the query makes text of, unless a star before them has such a column; of
            records that it makes of rows the fields, as `record.field`.
    """

    relation: Relation
    columns: dict[str, str] | None
    types: dict[str, Type]
    lookback_ticks: int
    over: tuple[str | None, ...] = ()
    has_over: bool = False
    reference: bool = False
    hidden: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()


@dataclass(slots=True)
class Context:
    """The context that one query is compiled in. Names match case-insensitively.

    Attributes:
        report: collects errors and notices.
        catalog: the available functions.
        compatibility_level: of the language.
        inputs: the names of the job's inputs, None if any name is allowed; likewise outputs and functions.
        reference_inputs: the inputs that are reference data, in lower case.
        tables: the columns of CREATE TABLE, by name in lower case.
        steps: the steps above, by name in lower case, as written and lowered; None for one that failed to compile.
        mentions: of stream inputs in FROM, and whether TIMESTAMP BY had OVER there.
        later_steps: the names of this step and those below it, in lower case.
        carries_partition: whether a step is being lowered that is read with PARTITION BY PartitionId.
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
    carries_partition: bool = False
