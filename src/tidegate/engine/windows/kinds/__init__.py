"""The windows of the language, one module each.

A new kind of window needs one module here: every public window class of a module is part of the language.
"""
