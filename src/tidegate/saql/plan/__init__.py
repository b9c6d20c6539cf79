"""The checked plan of a query, and what is known about its parts: types, functions, time units, features."""
