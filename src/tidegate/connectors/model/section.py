"""The base of every section of a job file: its keys are declared with type, default and a sentence; no others exist.

Each setting that is free text also says whether it is secret, by its type: `Public`, `Secret`, `SecretUrl`, or a
dictionary annotated with `SecretOptions`. Secrets are encrypted on disk and never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema


class Secrecy(Enum):
    """What of a setting must not be shown."""

    PUBLIC = "public"
    SECRET = "secret"
    URL = "url"
    """The whole of it if it has a user, a query or a fragment, where credentials are; else nothing."""


@dataclass(frozen=True)
class SecretOptions:
    """A dictionary that is passed through: each value is secret unless its name is one of `public`."""

    public: tuple[str, ...] = ()


Public = Annotated[str, Secrecy.PUBLIC]
Secret = Annotated[str, Secrecy.SECRET]
SecretUrl = Annotated[str, Secrecy.URL]


@dataclass(frozen=True)
class TextPattern:
    """What a text must look like: a pattern, which editors get, and the same in words, for the message of an error."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}

    def _checked(self, text: str | None) -> str | None:
        if text is not None and re.fullmatch(self.pattern, text) is None:
            raise ValueError(f"expected {self.words}")
        return text


class Section(BaseModel):
    """A table of a job file; an unknown key is an error, never ignored, and true is not a number."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.secrecy()

    @classmethod
    def secrecy(cls) -> dict[str, Secrecy | SecretOptions]:
        """Return what must not be shown of each setting.

        Raises:
            TypeError: A setting is free text and does not say whether it is secret.
        """
        return {name: _secrecy(cls, name) for name in cls.model_fields}

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


def _secrecy(section: type[Section], name: str) -> Secrecy | SecretOptions:
    field = section.model_fields[name]
    marks = [one for one in field.metadata if isinstance(one, Secrecy | SecretOptions)]
    if not marks and _is_free_text(field.annotation):
        raise TypeError(
            f"{section.__name__}.{name} is text that does not say whether it is secret: make it Public, Secret or "
            "SecretUrl, or annotate its dictionary with SecretOptions()"
        )
    return max((*marks, *_marks_of(field.annotation)), key=_strictness, default=Secrecy.PUBLIC)


def _strictness(mark: Secrecy | SecretOptions) -> int:
    return [Secrecy.PUBLIC, Secrecy.URL, Secrecy.SECRET].index(mark) if isinstance(mark, Secrecy) else 3


def _marks_of(annotation: Any) -> Iterator[Secrecy | SecretOptions]:
    for inner in get_args(annotation):
        if isinstance(inner, Secrecy | SecretOptions):
            yield inner
        else:
            yield from _marks_of(inner)


def _is_free_text(annotation: Any) -> bool:
    """Return whether some text in a value has no mark."""
    inner = get_args(annotation)
    if get_origin(annotation) is Literal or any(isinstance(one, Secrecy) for one in inner):
        return False
    return annotation is str or any(map(_is_free_text, inner))
