"""Schemas of a registry: whether a text is one, which texts mean the same, and which may follow which.

Each format has a module with `parse`, `identity` and `differences`; `evolution` says what a compatibility level asks of
a new version. Nothing here knows where schemas are kept.
"""

from tidegate.schemas.evolution import Compatibility, check_evolution
from tidegate.schemas.schema import Reference, SchemaError, SchemaFormat
from tidegate.schemas.schema_text import SchemaText

__all__ = ["Compatibility", "Reference", "SchemaError", "SchemaFormat", "SchemaText", "check_evolution"]
