"""The query language: Stream Analytics SQL in, a checked plan out.

`compile_query` reads a script, resolves every name, checks the documented restrictions and types, and returns a
`plan.Query`, or raises one `QueryError` that holds every mistake with its line and caret. Nothing here evaluates
anything.
"""

from typing import TYPE_CHECKING

from tidegate.lazy import lazy_names

if TYPE_CHECKING:
    from tidegate.sql.compiler import compile_query
    from tidegate.sql.parsing.diagnostics import Diagnostic, QueryError
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["Diagnostic", "QueryError", "compile_query"]
