"""Fields of a request's body or query, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.hub.errors import ArgumentError


def text_of(body: Any, name: str, default: str = "") -> str:
    """Return a text field of a request's body. Raises ArgumentError."""
    value = body.get(name, default) if isinstance(body, dict) else None
    if not isinstance(value, str):
        raise ArgumentError(f"{name}: expected a text")
    return value


def integer_of(body: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    """Return a whole number of a request's body or query. Raises ArgumentError."""
    value = body.get(name, default)
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ArgumentError(f"{name}: expected a whole number from {least} to {most:,}, got {str(value)[:40]!r}")
    return value
