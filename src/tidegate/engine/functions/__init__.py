"""The scalar functions and operators of the query language: each is declared once, above the code that computes it.

`declarations` says how, the modules beside it hold the functions by subject, and `catalog` has all of them. They work
on vectors; nothing here knows frames, relations or queries.
"""
