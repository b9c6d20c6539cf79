"""The functions of the rows before, one module for each: theory, evaluation and specification together.

A new one needs one module here: every public `AnalyticFunction` of a module is part of the language. They know times,
key codes and masks, and fetch values by row number. `running` has the ranges of rows that several of them, and
aggregates with LIMIT DURATION, cover.
"""
