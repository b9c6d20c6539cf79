"""The language that the engine can evaluate, as `sql.compile_query` expects it."""

from __future__ import annotations

from tidegate.engine.aggregates.catalog import AGGREGATES
from tidegate.engine.functions.catalog import SCALARS, TABLES
from tidegate.engine.stateful.analytic_catalog import ANALYTICS
from tidegate.engine.windows import kinds
from tidegate.engine.windows.kind import WindowKind
from tidegate.engine.windows.kinds.snapshot import Snapshot
from tidegate.extensions import classes_of
from tidegate.sql.plan.catalog import Catalog

_KINDS = [kind for kind in classes_of(kinds, "tidegate.windows") if issubclass(kind, WindowKind)]

CATALOG = Catalog(
    SCALARS,
    TABLES,
    AGGREGATES,
    ANALYTICS,
    {name.lower(): kind for kind in _KINDS if kind is not Snapshot for name in kind.names},
    Snapshot,
)
"""Everything that the engine can evaluate."""
