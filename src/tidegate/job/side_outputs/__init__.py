"""Outputs that exist beside those of the query: early results and event explanations."""
