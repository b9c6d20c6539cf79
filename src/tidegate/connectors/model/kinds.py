"""Kinds of inputs and of outputs.

A kind is one module of ``connectors/inputs`` or ``connectors/outputs``, or of a folder in them, or of another package
that names it as an entry point. Its section of the job file declares the settings, opens what they describe, and
registers itself. The job file's schema, its checks, its documentation and the runtime use the registry; nothing else
lists kinds. Adding one therefore touches only its module and its test.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar, get_args

from pydantic import Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from tidegate.blobs import is_azure
from tidegate.blobs.object_store import CONNECTION_STRING, azure_config
from tidegate.connectors.model.section import Public, Secret, SecretUrl, Section
from tidegate.extensions import import_modules, load_group, why_missing


class KindSection(Section):
    """A section of the job file whose ``type`` says what it describes; a kind makes it a `Literal`.

    Attributes:
        other_words: what people write for ``type`` when they mean this kind, in lower case without punctuation, and
            what they should write instead.
    """

    other_words: ClassVar[Mapping[str, str]] = {}

    type: Public


AnySection = TypeVar("AnySection", bound=KindSection)
Registered = TypeVar("Registered", bound=KindSection)


class Kinds(Generic[AnySection]):
    """The kinds of one noun, told apart by ``type``.

    Also an annotation for pydantic: the value of a field ``Annotated[Base, kinds]`` is a section of one of the kinds.
    """

    def __init__(self, noun: str, package: str, group: str) -> None:
        """
        Args:
            noun: with its article, for messages: "an input".
            package: the package with the modules of the kinds.
            group: the entry points by which other packages add kinds.
        """
        self._noun = noun
        self._package = package
        self._group = group
        self._registered: dict[str, type[AnySection]] = {}

    def register(self, section: type[Registered]) -> type[Registered]:
        """Add a kind; used as a class decorator.

        Raises:
            ValueError: its type is taken.
        """
        (name,) = get_args(section.model_fields["type"].annotation)
        if name in self._registered:
            raise ValueError(f"{self._noun} of type {name} is registered twice")
        kinds: dict[str, Any] = self._registered
        kinds[name] = section
        return section

    @cached_property
    def by_name(self) -> Mapping[str, type[AnySection]]:
        """The section of each kind, by its type, in alphabetical order."""
        import_modules(self._package)
        load_group(self._group)
        return dict(sorted(self._registered.items()))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {name: handler.generate_schema(section) for name, section in self.by_name.items()}
        union = core_schema.tagged_union_schema(choices, discriminator="type")
        return core_schema.no_info_before_validator_function(self._of_a_known_type, union)

    def _of_a_known_type(self, content: Any) -> Any:
        if isinstance(content, dict):
            if "type" not in content:
                raise ValueError(f"type is missing; expected one of {', '.join(self.by_name)}")
            if content["type"] not in self.by_name:
                raise ValueError(self._unknown(str(content["type"])))
        return content

    def _unknown(self, name: str) -> str:
        """Return a message that says what to write instead of a type that does not exist."""
        word = "".join(filter(str.isalnum, name.lower()))
        instead = next((kind.other_words[word] for kind in self.by_name.values() if word in kind.other_words), None)
        if instead is None and (problem := why_missing(self._group, name)):
            instead = problem
        close = difflib.get_close_matches(word, self.by_name, n=1, cutoff=0.75)
        if instead is None and close:
            instead = f'did you mean type = "{close[0]}"?'
        hint = "" if instead is None else f" ({instead})"
        return f'type "{name}" is not {self._noun} type; expected one of {", ".join(self.by_name)}{hint}'


class StorageAccountSection(KindSection):
    """A section with a path that may be in a container of Blob storage."""

    path: SecretUrl
    connection_string: Secret | None = Field(
        default=None,
        description="of the storage account, for a path such as `az://CONTAINER/…`; default: "
        f"`{CONNECTION_STRING}` of the environment",
    )

    @model_validator(mode="after")
    def _connection_string_is_of_an_account(self) -> StorageAccountSection:
        if self.connection_string is not None:
            if not is_azure(self.path):
                raise ValueError(
                    "connection_string is for a path in Blob storage: expected az://CONTAINER/… or abfss://…"
                )
            azure_config(self.connection_string, "connection_string")
        return self

    @property
    def storage_environment(self) -> Mapping[str, str] | None:
        """Where the credentials are, in the place of the environment; None for the environment itself."""
        return None if self.connection_string is None else {CONNECTION_STRING: self.connection_string}
