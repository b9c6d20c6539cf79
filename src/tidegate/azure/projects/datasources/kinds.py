"""What a data source of a project declares: its names in project files and templates, its settings, and its section.

A kind is one module of this folder with a class below `DataSource`, registered by `@DATA_SOURCES.register`. Its fields
are the settings as project files write them (``PathPattern``); templates have the same ones in camel case
(``pathPattern``). It becomes a section of a job file by `input_section`, `reference_section` and `output_section`,
whichever it supports. The others keep the default, which says that there is no counterpart here: rows of such an
output are written to a folder.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

from tidegate.azure.projects.datasources.secrets import Secrets
from tidegate.azure.projects.model.endpoint import Endpoint
from tidegate.azure.projects.model.project_file import ProjectFile, parse_project_file
from tidegate.connectors.model.errors import ProjectError
from tidegate.extensions import import_modules

SectionSettings = dict[str, Any]
"""A section of a job file: its type and settings, as TOML has them."""


Role = Literal["input", "reference", "output"]
"""What a source or sink is to the query: a stream that it reads, reference data that it joins, or an output."""


class NoCounterpartError(ProjectError):
    """A kind of source or sink has no counterpart here, or not with these settings."""


class DataSource(ProjectFile):
    """The settings of one kind of source or sink.

    Attributes:
        names: its ``DataSourceType`` in project files; the first is the one to write.
        template_types: its type in templates; the first is the one to write.
        sections: the settings of an input or output that may hold these settings.
        texts: settings whose text may be in a file beside the description, by the end of that file's name.
        required: settings that must have a value, by what the source or sink is to the query.
        named_after: settings that are the output's name where the section of a job file has nothing to say.
        after_deployment: what a person must do when a template from a job file has been deployed.
    """

    names: ClassVar[tuple[str, ...]]
    template_types: ClassVar[tuple[str, ...]]
    sections: ClassVar[tuple[str, ...]]
    texts: ClassVar[Mapping[str, str]] = {}
    required: ClassVar[Mapping[Role, tuple[str, ...]]] = {}
    named_after: ClassVar[tuple[str, ...]] = ()
    after_deployment: ClassVar[str] = ""

    def value_of(self, setting: str) -> Any:
        """Return the value of a setting, by its name in project files."""
        return next(getattr(self, name) for name, field in type(self).model_fields.items() if field.alias == setting)

    def input_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """Return the section of a job file that reads it as a stream.

        Raises:
            NoCounterpartError: nothing here can read it.
            ProjectError: a secret is missing.
        """
        raise no_counterpart("input", endpoint)

    def reference_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """Return the section of a job file that reads it as reference data; see `input_section`."""
        raise no_counterpart("input", endpoint)

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """Return the section of a job file that writes it; see `input_section`."""
        raise no_counterpart("output", endpoint)

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        """Return the settings, as project files write them, of what a section of a job file describes.

        This is the way back from `input_section`, `reference_section` and `output_section`. Secrets are left out.

        Returns:
            None if the section is of another kind.
        """
        return None


def no_counterpart(what: str, endpoint: Endpoint, because: str = "") -> NoCounterpartError:
    """Return the error that an input or output has no counterpart here, with the settings that are to blame."""
    written = endpoint.serialization.type if endpoint.serialization and endpoint.serialization.type else ""
    kind = f"{'reference data from ' if endpoint.is_reference else ''}{endpoint.data_source_type or 'of no kind'}"
    reason = because or f"which is not supported here{_did_you_mean(endpoint.data_source_type)}"
    return NoCounterpartError(f"the {what} {endpoint.name} is {kind}{f' ({written})' if written else ''}, {reason}")


def _did_you_mean(written: str) -> str:
    """Return the known kind that was probably meant, for the end of a sentence."""
    if DATA_SOURCES.named(written) is not None:
        return ""
    known = {name.lower(): name for source in DATA_SOURCES.all for name in source.names}
    near = difflib.get_close_matches(written.lower(), sorted(known), n=1, cutoff=0.8)
    return f" (did you mean {known[near[0]]}?)" if near else ""


Registered = TypeVar("Registered", bound=DataSource)


class DataSources:
    """Every kind of source and sink, found by the modules of this folder."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._registered: list[type[DataSource]] = []

    def register(self, source: type[Registered]) -> type[Registered]:
        """Add a kind; used as a class decorator.

        Raises:
            ValueError: one of its names is taken.
        """
        for other in self._registered:
            for attribute in ("names", "template_types"):
                taken = {name.lower() for name in getattr(other, attribute)}
                if shared := taken.intersection(name.lower() for name in getattr(source, attribute)):
                    raise ValueError(f"{', '.join(shared)}: {source.__name__} and {other.__name__} have the same name")
        self._registered.append(source)
        return source

    @cached_property
    def all(self) -> tuple[type[DataSource], ...]:
        """Every kind, in alphabetical order of its name."""
        import_modules(self._package)
        return tuple(sorted(self._registered, key=lambda source: source.names[0]))

    def named(self, name: str) -> type[DataSource] | None:
        """Return the kind with this ``DataSourceType``; None if there is none."""
        return self._found(name, lambda source: source.names)

    def of_template(self, template_type: str) -> type[DataSource] | None:
        """Return the kind with this type in templates; None if there is none."""
        return self._found(template_type, lambda source: source.template_types)

    def _found(self, name: str, names: Callable[[type[DataSource]], tuple[str, ...]]) -> type[DataSource] | None:
        wanted = _plain(name)
        return next((source for source in self.all if wanted in map(_plain, names(source))), None)

    def of(self, endpoint: Endpoint, role: Role | None = None) -> DataSource | None:
        """Return the source or sink of an input or output; None if it is of no known kind.

        Args:
            role: what it is to the query; None if it is not to run, so that it need not be complete.

        Raises:
            ProjectError: its settings are wrong, or one that it needs to run has no value.
        """
        kind = self.named(endpoint.data_source_type)
        if kind is None:
            return None
        place, settings = next(_settings(kind, endpoint), (kind.sections[0], {}))
        what = {None: "", "output": "an output "}.get(role, "an input ")
        refusal = f"{endpoint.origin or endpoint.name} is not {what}of the kind {kind.names[0]}"
        source = parse_project_file(settings, kind, refusal, under=place)
        required = () if role is None else kind.required.get(role, ())
        without = [name for name in required if source.value_of(name) in (None, "")]
        if without:
            raise ProjectError("\n".join([f"{refusal}:", *(f"  {place}.{name}: missing" for name in without)]))
        return source


DATA_SOURCES = DataSources(__package__)
"""Every kind of source and sink."""


def section_name(kind: type[DataSource], endpoint: Endpoint) -> str | None:
    """Return the setting of an input or output that holds the settings of a kind; None if there is none."""
    return next((name for name in endpoint.sections if _plain(name) in map(_plain, kind.sections)), None)


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def role_of(part: Literal["inputs", "outputs"], endpoint: Endpoint) -> Role:
    """Return what an input or output is to the query."""
    if part == "outputs":
        return "output"
    return "reference" if endpoint.is_reference else "input"


def _settings(kind: type[DataSource], endpoint: Endpoint) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the settings for a kind and the name of their section: its own, or the only one that the file has."""
    wanted = [_plain(name) for name in kind.sections]
    yield from ((name, given) for name, given in endpoint.sections.items() if _plain(name) in wanted)
    if len(endpoint.sections) == 1:
        yield from endpoint.sections.items()
