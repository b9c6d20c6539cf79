"""The checked plan of a query, and what it is made of: types, functions, windows and units of time."""
