"""The windows of the language, one module each.

A module here is all that a new kind of window needs: every window class defined in it is part of the language.
"""
