"""The query language: Stream Analytics SQL in, a checked plan out.

`compile_query` reads a script, resolves every name, checks the documented restrictions and types, and returns a
`plan.Query`, or raises one `QueryError` that holds every mistake with its line and caret. Nothing here evaluates
anything.
"""

from tidegate.saql.compiler import compile_query
from tidegate.saql.parsing.diagnostics import Diagnostic, QueryError

__all__ = ["Diagnostic", "QueryError", "compile_query"]
