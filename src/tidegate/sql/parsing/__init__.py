"""Text to syntax trees: tokens, expressions, clauses and diagnostics with their place in the query."""
