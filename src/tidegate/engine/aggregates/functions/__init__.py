"""The aggregates of the language, one module for each family: state, summary and specification together.

A new aggregate needs one module here: every public `AggregateFunction` of a module is part of the language.
"""
