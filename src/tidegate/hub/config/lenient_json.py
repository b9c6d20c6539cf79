"""JSON with comments and trailing commas, as .NET's readers of configuration accept it."""

from __future__ import annotations

import re

# A string or comment that never ends matches up to the end of the text, so that no part is searched twice.
_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|(?P<left_out>//[^\n]*|/\*.*?\*/)|/\*.*', re.DOTALL)
_COMMA = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|(?P<left_out>,)(?=\s*[}\]])', re.DOTALL)


def strict_json(text: str) -> str:
    """Return the text with comments and trailing commas replaced by spaces, so that lines and columns stay.

    Strings are left alone. Takes time proportional to the length of the text.
    """
    for pattern in (_COMMENT, _COMMA):
        text = pattern.sub(_blank, text)
    return text


def _blank(found: re.Match[str]) -> str:
    return found[0] if found["left_out"] is None else re.sub(r"[^\n]", " ", found[0])
