"""Functions of earlier rows: theory, evaluation and specification together.

A new one needs one class in a module here: every public `AnalyticFunction` is part of the language. They know times,
key codes and masks, and fetch values by row number.
"""
