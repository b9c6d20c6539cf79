"""The clauses of the language, for the documentation."""

from __future__ import annotations

CLAUSES = (
    "WITH",
    "WHERE",
    "SELECT *",
    "record.*",
    "UNION",
    "TIMESTAMP BY",
    "TIMESTAMP BY OVER",
    "PARTITION BY",
    "CREATE TABLE",
    "JOIN",
    "reference JOIN",
    "APPLY",
    "DISTINCT",
    "CAST",
    "TRY_CAST",
    "CASE",
    "LIKE",
    "IN",
    "BETWEEN",
    "IS NULL",
    "arithmetic",
    "bitwise operators",
    "whole rows",
    "MATCH_RECOGNIZE",
)
