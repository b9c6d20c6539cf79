"""The windows of the language.

A new kind of window needs one class in a module here: every public window class is part of the language.
"""
