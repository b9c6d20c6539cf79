"""Bytes from outside, by the million: what they go into, and two ways to make them.

`make fuzz` searches for new failures (`python -m tests.fuzz --help`); the suite runs every target on a few mutations of
good input and on everything in tests/regressions. `make soak` tries more mutations.
"""
