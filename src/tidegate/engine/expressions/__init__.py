"""Expressions, scalar functions and stateless relations, evaluated over frames of rows."""
