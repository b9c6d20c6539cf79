"""JSON as Azure's own reader accepts it: templates may have comments, names without quotes and texts of several lines.

The Azure CLI sends a template as its file has it, and puts the unquoted name `template` before it.
"""

from __future__ import annotations

import json
import re

# A text or comment that never ends matches up to the end, so that no part is searched twice.
_PART = re.compile(
    r'"(?P<double>(?:[^"\\]|\\.)*)(?:"|\\?\Z)'
    r"|'(?P<single>(?:[^'\\]|\\.)*)(?:'|\\?\Z)"
    r"|(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<name>[A-Za-z_$][\w$]*)(?=\s*:)"
    r"|(?P<word>[A-Za-z_$][\w$]*)",
    re.DOTALL,
)
_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<comma>,)(?=\s*[}\]])')
_CONTROL = re.compile(r"[\x00-\x1f]")


def strict_json(text: str) -> str:
    """Return the text as JSON, in time proportional to its length; what is wrong in another way stays wrong."""
    return _COMMA.sub(lambda found: " " if found["comma"] else found[0], _PART.sub(_strict, text))


def _strict(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "double":
            inner = _CONTROL.sub(lambda one: json.dumps(one[0])[1:-1], found["double"])
            return f'"{inner}"' if found[0].endswith('"') else found[0]
        case "single":
            inner = found["single"].replace("\\'", "'").replace('"', '\\"')
            return f'"{_CONTROL.sub(lambda one: json.dumps(one[0])[1:-1], inner)}"'
        case "name":
            return f'"{found["name"]}"'
        case "comment":
            return " "
        case _:
            return found[0]
