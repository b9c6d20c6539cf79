"""JSON with comments, and with commas after the last, as .NET's readers of configuration take it."""

from __future__ import annotations

import re

_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<left_out>//[^\n]*|/\*.*?\*/)', re.DOTALL)
_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<left_out>,)(?=\s*[}\]])', re.DOTALL)


def strict_json(text: str) -> str:
    """The text with spaces in their places, so that lines and columns stay; texts in quotes are left alone."""
    for what in (_COMMENT, _COMMA):
        text = what.sub(_blank, text)
    return text


def _blank(found: re.Match[str]) -> str:
    return found[0] if found["left_out"] is None else re.sub(r"[^\n]", " ", found[0])
