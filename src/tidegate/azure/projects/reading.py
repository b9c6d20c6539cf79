"""Reads a Stream Analytics project unchanged, as Visual Studio Code and Visual Studio keep it.

A project is a folder with a list of its files (asaproj.json, or Visual Studio's NAME.asaproj), a query, settings, local
inputs that replace live ones, outputs, functions and test cases. Projects come from Windows: paths may have
backslashes, another case than the files, or a drive that does not exist here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, section_name
from tidegate.azure.projects.files import Configuration, JobConfig, LocalInput, ProjectDescription, ProjectFunction
from tidegate.azure.projects.model.endpoint import Endpoint, InputEndpoint
from tidegate.azure.projects.model.project_file import ProjectFile, read_json, read_project_file, read_text, slips_of
from tidegate.azure.projects.template import TemplateJob, is_template
from tidegate.connectors.model.errors import ProjectError

DESCRIPTION = "asaproj.json"
_WINDOWS_ROOT = re.compile(r"^([A-Za-z]:)?/")
_FILE_OF_TEXT = re.compile(r"\S+\.sql", re.IGNORECASE)
_XML = "{http://schemas.microsoft.com/developer/msbuild/2003}"

_Named = TypeVar("_Named", bound=Endpoint)


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A local input: its settings in the project, and the file with its events."""

    definition: LocalInput
    path: Path


@dataclass(frozen=True, slots=True)
class Project:
    """A project that has been read.

    Attributes:
        description: the file that lists the others.
        query_file: the query's file.
        sql: its text.
        config: the settings of the job; defaults where the project has none.
        config_file: the file with the settings; None if the project has none.
        local_inputs, inputs, outputs, functions: by name in lower case.
        notes: what a person should know about the files.
    """

    name: str
    description: Path
    query_file: Path
    sql: str
    config: JobConfig = field(default_factory=JobConfig)
    config_file: Path | None = None
    local_inputs: dict[str, LocalFile] = field(default_factory=dict)
    inputs: dict[str, Endpoint] = field(default_factory=dict)
    outputs: dict[str, Endpoint] = field(default_factory=dict)
    functions: dict[str, ProjectFunction] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the project."""
        return self.description.parent


def read_project(path: Path) -> Project:
    """Read a project.

    Args:
        path: its folder, its asaproj.json, its NAME.asaproj, or an Azure Resource Manager template with the job.

    Raises:
        ProjectError: there is no project, or files of it cannot be read; the message names all of them.
    """
    description = find_description(path)
    if description.suffix.lower() == ".json" and is_template(read_json(description)):
        return _of_template(description)
    listed = _visual_studio(description) if description.suffix == ".asaproj" else _visual_studio_code(description)
    return _Reading(description, listed).project()


def _of_template(path: Path) -> Project:
    job = TemplateJob(path)
    return Project(
        job.name,
        path,
        path,
        job.sql,
        job.config,
        path,
        {},
        job.inputs,
        job.outputs,
        job.functions,
        tuple(job.notes),
    )


def find_description(path: Path) -> Path:
    """Return the file that lists the others.

    Raises:
        ProjectError: there is none.
    """
    if path.is_file():
        return path
    if not path.is_dir():
        raise ProjectError(f"{path}: there is no such folder or file")
    found = sorted(file for file in path.iterdir() if file.name.lower() == DESCRIPTION)
    found += sorted(file for file in path.iterdir() if file.suffix.lower() == ".asaproj")
    if not found:
        raise ProjectError(f"{path} is not a Stream Analytics project: it has no {DESCRIPTION} and no *.asaproj")
    return found[0]


def locate(folder: Path, written: str, *, beyond: Path | None = None) -> Path:
    """Return the file that a project means by a path, which may be a Windows path.

    If there is no such file, return the path that it would have. An absolute path of another machine is searched for by
    its last components, in ``folder`` and in ``beyond``.
    """
    plain = written.replace("\\", "/")
    if Path(plain).is_absolute() and Path(plain).exists():
        return Path(plain)
    if _WINDOWS_ROOT.match(plain):
        words = _WINDOWS_ROOT.sub("", plain).split("/")
        for start in range(len(words)):
            for base in (folder, beyond):
                if base is not None and (found := _descend(base, words[start:])) is not None:
                    return found
        return Path(plain)
    return _descend(folder, plain.split("/")) or folder / plain


def _descend(folder: Path, words: list[str]) -> Path | None:
    """Return the path with these names below a folder; without an exact match, case is ignored."""
    path = folder
    for word in words:
        if word in ("", "."):
            continue
        if word == ".." or (path / word).exists():
            path = path / word
            continue
        near = [entry for entry in path.iterdir() if entry.name.lower() == word.lower()] if path.is_dir() else []
        if not near:
            return None
        path = near[0]
    return path if path.exists() else None


def _visual_studio_code(path: Path) -> ProjectDescription:
    return read_project_file(path, ProjectDescription, "a list of a project's files")[0]


def _visual_studio(path: Path) -> ProjectDescription:
    """Read Visual Studio's list of the same files, which is a build file in XML."""
    try:
        root = ElementTree.fromstring(read_text(path))
    except ElementTree.ParseError as error:
        line, column = error.position
        raise ProjectError(f"{path}, line {line}, column {column + 1}: it is not the XML of a *.asaproj") from error
    scripts = [node.get("Include", "") for node in root.iter(f"{_XML}Script")]
    if len(scripts) != 1:
        raise ProjectError(f"{path}: expected one <Script Include=…> with the query, got {len(scripts)}")
    listed = tuple(
        Configuration(filePath=node.get("Include", ""), subType=(node.findtext(f"{_XML}SubType") or ""))
        for node in root.iter(f"{_XML}Configure")
    )
    named = next((node.text for node in root.iter(f"{_XML}Name") if node.text), None)
    return ProjectDescription(name=named, startFile=scripts[0], configurations=listed)


class _Reading:
    """Reads the listed files one after the other, and collects all problems."""

    def __init__(self, description: Path, listed: ProjectDescription) -> None:
        self._description = description
        self._folder = description.parent
        self._listed = listed
        self._problems: list[str] = []
        self._notes: list[str] = []

    def project(self) -> Project:
        query_file = locate(self._folder, self._listed.start_file)
        try:
            sql = read_text(query_file)
        except ProjectError as error:
            self._problems.append(f"{error} (startFile of {self._description.name})")
            sql = ""
        config_file, config = self._config()
        local = self._local_inputs()
        inputs: dict[str, Endpoint] = dict(self._named("input", InputEndpoint, "an input"))
        outputs = self._named("output", Endpoint, "an output")
        functions = self._functions()
        if self._problems:
            raise ProjectError("\n".join(self._problems))
        return Project(
            self._listed.name or query_file.stem,
            self._description,
            query_file,
            sql,
            config,
            config_file,
            local,
            inputs,
            outputs,
            functions,
            tuple(self._notes),
        )

    def _files(self, sub_type: str) -> Iterator[Path]:
        for line in self._listed.configurations:
            if line.sub_type.lower() == sub_type:
                yield locate(self._folder, line.file_path)

    def _read(self, path: Path, kind: type[ProjectFile], what: str) -> ProjectFile | None:
        try:
            found, slips = read_project_file(path, kind, what)
        except ProjectError as error:
            self._problems.append(str(error))
            return None
        self._notes += slips
        return found

    def _config(self) -> tuple[Path | None, JobConfig]:
        for path in self._files("jobconfig"):
            if not path.exists():
                # It is often left out of shared projects, and a local run does not need it.
                self._notes.append(f"{path} is listed but does not exist: the defaults are used")
                continue
            config = self._read(path, JobConfig, "a job configuration")
            if not isinstance(config, JobConfig):
                return path, JobConfig()
            if config.data_locale.lower() != "en-us":
                self._notes.append(f"{path}: DataLocale is {config.data_locale}; text is read as en-US writes it")
            return path, config
        return None, JobConfig()

    def _local_inputs(self) -> dict[str, LocalFile]:
        found: dict[str, LocalFile] = {}
        for path in self._files("inputmock"):
            if not path.exists():
                self._notes.append(f"{path} is listed but does not exist: the local input is ignored")
                continue
            read = self._read(path, LocalInput, "a local input")
            if isinstance(read, LocalInput):
                if not read.alias:
                    self._problems.append(f"{path} is not a local input:\n  InputAlias: missing")
                    continue
                data = locate(path.parent, read.file_path, beyond=self._folder)
                found[read.alias.lower()] = LocalFile(read, data)
        return found

    def _named(self, sub_type: str, kind: type[_Named], what: str) -> dict[str, _Named]:
        found: dict[str, _Named] = {}
        files: dict[str, Path] = {}
        for path in self._files(sub_type):
            read = self._read(path, kind, what)
            if not isinstance(read, kind):
                continue
            name = read.name.lower()
            if files.setdefault(name, path) != path:
                self._problems.append(
                    f"{path}: Name: {files[name].name} describes {what} '{read.name}' too; rename one of the two, in "
                    "its file and in the query"
                )
            found[name] = self._with_texts(read.model_copy(update={"origin": str(path)}), path)
        return found

    def _with_texts(self, endpoint: _Named, path: Path) -> _Named:
        """Return an input or output with the texts in files beside its description: NAME.json and NAME.snapshot.sql.

        The tools open such a file to edit the text, so it takes precedence over a text in the description.
        """
        kind = DATA_SOURCES.named(endpoint.data_source_type)
        if kind is None:
            return endpoint
        section = section_name(kind, endpoint) or kind.sections[-1]
        settings = dict(endpoint.sections.get(section, {}))
        self._notes += slips_of(f"{path}, {section}", settings, kind)
        for ending, named_here in kind.texts.items():
            setting = next((key for key in settings if key.lower() == named_here.lower()), named_here)
            written = str(settings.get(setting, "")).strip()
            # A description may also name the file in the place of the text.
            named = [written] if _FILE_OF_TEXT.fullmatch(written) else []
            names = dict.fromkeys([*named, f"{path.stem}{ending}", f"{endpoint.name}{ending}"])
            file = next((found for name in names if (found := locate(path.parent, name)).is_file()), None)
            if file is None:
                continue
            try:
                text = read_text(file).strip()
            except ProjectError as error:
                self._problems.append(str(error))
                continue
            if text and not named and written not in ("", text):
                self._notes.append(f"{path}: {setting} differs from {file.name}; the file's text is used")
            settings |= {setting: text} if text else {}
        if settings == endpoint.sections.get(section, {}):
            return endpoint
        return endpoint.model_copy(update={"sections": {**endpoint.sections, section: settings}})

    def _functions(self) -> dict[str, ProjectFunction]:
        found: dict[str, ProjectFunction] = {}
        for sub_type in sorted({line.sub_type.lower() for line in self._listed.configurations}):
            if not sub_type.endswith(("function", "udf")) and "machinelearning" not in sub_type:
                continue
            for path in self._files(sub_type):
                read = self._read(path, ProjectFunction, "a function")
                if isinstance(read, ProjectFunction):
                    found[read.name.lower()] = self._with_script(read, path)
        return found

    def _with_script(self, function: ProjectFunction, path: Path) -> ProjectFunction:
        """Return a function with the text of its script, which is beside its description: NAME.js and NAME.js.json."""
        if not function.is_javascript or function.script is not None:
            return function
        beside = [locate(path.parent, name) for name in (path.stem, f"{path.stem}.js", f"{function.name}.js")]
        script = next((file for file in beside if file.suffix.lower() == ".js" and file.exists()), None)
        if script is None:
            # A function in tidegate.toml may take its place; a call of it is refused otherwise.
            self._notes.append(f"{path}: the function's script does not exist; expected {path.with_suffix('').name}")
            return function
        try:
            return function.model_copy(update={"script": read_text(script)})
        except ProjectError as error:
            self._problems.append(str(error))
            return function
