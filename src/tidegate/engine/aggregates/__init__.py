"""Aggregates: the state kept per group, how two states merge, and the value a state yields."""
