"""The aggregates of the language, one module for each family: state, summary and specification together.

A module here is all that a new aggregate needs: every `AggregateFunction` defined in it is part of the language.
"""
