"""What queries may call, as `saql.compile_query` is told."""

from __future__ import annotations

from tidegate.engine.functions.catalog import SCALARS, TABLES
from tidegate.saql.plan.catalog import Catalog

CATALOG = Catalog(SCALARS, TABLES)
"""Everything that the engine can evaluate."""
