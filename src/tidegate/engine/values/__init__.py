"""Columns of values, each with a type of its own: datetimes, conversions, group codes, exact sums, JSON output.

The bottom of the engine. `vectors` defines the representation; everything above computes on it.
"""
