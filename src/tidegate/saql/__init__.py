"""The query language: Stream Analytics SQL in, a checked plan out.

`compile_query` parses (a dialect of sqlglot), resolves every name, checks the documented restrictions and types, and returns a
`plan.Query`, or raises one `QueryError` that holds every mistake with its line and caret. Nothing here evaluates anything.
"""

from tidegate.saql.diagnostics import Diagnostic, QueryError

__all__ = ["Diagnostic", "QueryError"]
