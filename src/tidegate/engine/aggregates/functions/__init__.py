"""The aggregates of the language: state, summary and specification together.

A new aggregate needs one class in a module here: every public `AggregateFunction` is part of the language.
"""
