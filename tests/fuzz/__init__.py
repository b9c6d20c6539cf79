"""Bytes from outside, by the million: what they go into, and two ways to make them.

    python -m tests.fuzz                      what there is
    python -m tests.fuzz codec --runs 1000000 one target, with atheris where it is installed (pip install atheris)

The suite runs every target on a few mutations of good input; TIDEGATE_FUZZ_RUNS says how many.
"""
