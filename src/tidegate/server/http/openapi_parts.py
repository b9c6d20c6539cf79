"""The parts that the descriptions of several routes have in common."""

from __future__ import annotations

import re
from typing import Any


def public_operation(name: str, summary: str, media_type: str) -> dict[str, Any]:
    """Describe a GET that needs no authorization and answers in one media type."""
    answer = {"description": summary, "content": {media_type: {}}}
    return {"get": {"operationId": name, "summary": summary, "security": [], "responses": {"200": answer}}}


def path_parameters(path: str) -> list[dict[str, Any]]:
    """Describe the names in a path."""
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
