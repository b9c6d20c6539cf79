"""The base of every section of a job file: its keys are declared with type, default and a sentence; no others exist."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A table of a job file; an unknown key is an error, never ignored, and true is not a number."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _a_truth_value_is_no_number(cls, content: Any) -> Any:
        for name, value in content.items() if isinstance(content, dict) else ():
            if isinstance(value, bool) and name in cls.model_fields:
                kinds = _kinds_of(cls.model_fields[name].annotation)
                if {int, float} & kinds and bool not in kinds and not any(value is one for one in kinds):
                    raise ValueError(f"{name} is a number, got {str(value).lower()}")
        return content


def _kinds_of(annotation: Any) -> set[Any]:
    """Return the types that a setting may have, and the values of its literals."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    inner = get_args(annotation)
    return set().union(*map(_kinds_of, inner)) if inner else {annotation}
