"""What can be wrong with a template."""

from __future__ import annotations


class TemplateError(Exception):
    """A template, or an expression in it, that is wrong. The message holds no secret."""


class UnknownValueError(TemplateError):
    """An expression whose value is known only when the template is deployed."""
