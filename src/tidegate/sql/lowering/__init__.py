"""Syntax trees to the plan: names resolved, types and documented restrictions checked."""
