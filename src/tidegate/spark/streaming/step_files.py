"""Folders of files that get each step once, for readers that know nothing of steps.

Spark writes a step to a folder of its own below ``_tidegate``, which readers ignore. A manifest then names its files
and where they belong, and is made durable; then they are renamed, under names that begin with the step. Before the
manifest exists, nothing of the step can be seen, and another attempt writes it anew. Once it exists, another attempt
only completes the renames. So every file is there once, whatever was killed; those of one step appear one after the
other. The manifest of the last step is kept, and tells that it was written.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from tidegate.connectors.model.errors import OutputError
from tidegate.durable_files import Files, make_folders, replace_file

_OWN = "_tidegate"
_FILES = Files()


class Folder(Protocol):
    """A folder of any file system; paths in it are relative. Every method raises OutputError."""

    @property
    def uri(self) -> str:
        """The folder as Spark names it."""

    def files(self, path: str) -> list[str]:
        """Return all files below a folder, relative to it; none if it does not exist."""

    def read(self, path: str) -> str | None:
        """Return a file's text; None if there is no such file."""

    def write(self, path: str, text: str) -> None:
        """Create or replace a file atomically, and return when it is durable."""

    def move(self, source: str, target: str) -> None:
        """Rename a file durably; if only the target exists, this was done before."""

    def delete(self, path: str) -> None:
        """Delete a file or a folder with all that is in it, if it exists."""


@dataclass(frozen=True, slots=True)
class StepFiles:
    """The steps of one output in a folder.

    Attributes:
        owner: whose steps these are; several queries may write to one folder.
    """

    folder: Folder
    owner: str

    def write(self, step: int, write: Callable[[str], None]) -> None:
        """Publish a step, unless it was.

        Args:
            write: writes the step's files to the folder with that URI, which does not exist.

        Raises:
            OutputError: the folder has a later step, or cannot be written.
        """
        own = f"{_OWN}/{self.owner}"
        found = sorted(self.folder.files(own))
        steps = [int(name.removesuffix(".json")) for name in found if name.endswith(".json") and "/" not in name]
        if steps and max(steps) > step:
            raise OutputError(
                f"{self.folder.uri} has step {max(steps)} of this query, and its checkpoint resumes with step {step}: "
                "the checkpoint is older than the output; restore both, or choose another path"
            )
        manifest = f"{own}/{step:012d}.json"
        text = self.folder.read(manifest)
        if text is None:
            for leftover in {name.partition("/")[0] for name in found if "/" in name}:
                self.folder.delete(f"{own}/{leftover}")
            staging = f"{own}/{step:012d}-{uuid.uuid4().hex}"
            write(f"{self.folder.uri}/{staging}")
            text = json.dumps({"moves": dict(self._moves(staging, step))}, indent=0)
            self.folder.write(manifest, text)
        for source, target in json.loads(text)["moves"].items():
            self.folder.move(source, target)
        for name in sorted({name.partition("/")[0] for name in self.folder.files(own)}):
            if name != f"{step:012d}.json":
                self.folder.delete(f"{own}/{name}")

    def _moves(self, staging: str, step: int) -> Iterator[tuple[str, str]]:
        """Yield where each file of a step is, and where it belongs."""
        data = [name for name in self.folder.files(staging) if not PurePosixPath(name).name.startswith(("_", "."))]
        for number, name in enumerate(sorted(data)):
            place = PurePosixPath(name)
            # part-00000-….c000.snappy.parquet
            ending = "".join(place.suffixes[1:] if place.suffixes[:1] == [".c000"] else place.suffixes)
            renamed = place.with_name(f"step-{step:09d}-{self.owner[:8]}-{number:05d}{ending}")
            yield f"{staging}/{name}", str(renamed)


class LocalFolder:
    """A folder of this machine, or mounted here."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def uri(self) -> str:
        # Hadoop takes a URI literally, without %20 for a space.
        return f"file://{self._path}"

    def files(self, path: str) -> list[str]:
        root = self._path / path
        return [one.relative_to(root).as_posix() for one in root.rglob("*") if one.is_file()]

    def read(self, path: str) -> str | None:
        try:
            return (self._path / path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(path, error) from error

    def write(self, path: str, text: str) -> None:
        """See ``Folder.write``; the files that the text names are made durable first."""
        place = self._path / path
        try:
            for name in json.loads(text)["moves"]:
                with (self._path / name).open("rb+") as file:
                    os.fsync(file.fileno())
            make_folders(place.parent)
            replace_file(place, text.encode())
        except OSError as error:
            raise self._error(path, error) from error

    def move(self, source: str, target: str) -> None:
        before, after = self._path / source, self._path / target
        try:
            make_folders(after.parent)
            before.replace(after)
            _FILES.sync_directory(after.parent)
        except FileNotFoundError as error:
            if not after.exists():
                raise self._error(target, error) from error
        except OSError as error:
            raise self._error(target, error) from error

    def delete(self, path: str) -> None:
        place = self._path / path
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)

    def _error(self, path: str, error: OSError) -> OutputError:
        return OutputError(f"cannot write {self._path / path}: {error.strerror}")


class HadoopFolder:
    """A folder of any file system that Spark's Java process knows: HDFS, S3, Azure storage and others."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self.uri = uri.rstrip("/")
        self._root = self._jvm.org.apache.hadoop.fs.Path(self.uri)
        self._files = self._root.getFileSystem(spark._jsc.hadoopConfiguration())

    def files(self, path: str) -> list[str]:
        root = self._at(path)
        if not self._files.exists(root):
            return []
        listed = self._files.listFiles(self._files.getFileStatus(root).getPath(), True)
        begin = len(self._files.getFileStatus(root).getPath().toUri().getPath()) + 1
        found = []
        while listed.hasNext():
            found.append(str(listed.next().getPath().toUri().getPath())[begin:])
        return found

    def read(self, path: str) -> str | None:
        place = self._at(path)
        if not self._files.exists(place):
            return None
        stream = self._files.open(place)
        try:
            return str(bytes(stream.readAllBytes()).decode())
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        new = self._at(f"{path}.new")
        stream = self._files.create(new, True)
        try:
            stream.write(text.encode())
            stream.hsync()
        finally:
            stream.close()
        self._files.delete(self._at(path), False)
        self._renamed(new, self._at(path))

    def move(self, source: str, target: str) -> None:
        before, after = self._at(source), self._at(target)
        if self._files.exists(before):
            self._files.mkdirs(after.getParent())
            self._renamed(before, after)
        elif not self._files.exists(after):
            raise OutputError(f"{self.uri}/{target} is missing, and so is {source}, which it should be made of")

    def delete(self, path: str) -> None:
        self._files.delete(self._at(path), True)

    def _renamed(self, before: Any, after: Any) -> None:
        if not self._files.rename(before, after):
            raise OutputError(f"cannot rename {before.toString()} to {after.toString()}")

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path)


def folder_at(spark: SparkSession, path: str) -> Folder:
    """Return the folder with a path or URI.

    Raises:
        OutputError: over Spark Connect, only folders that are mounted here can be used.
    """
    parts = urlsplit(path)
    default = "file" if getattr(spark, "_jsc", None) is None else _default_scheme(spark)
    scheme = parts.scheme or default
    if scheme == "file":
        return LocalFolder(Path(parts.path if parts.scheme else path).absolute())
    if getattr(spark, "_jsc", None) is None:
        raise OutputError(
            f"over Spark Connect, steps of files can only be published in a folder that is mounted here, got {path}; "
            "use format('delta'), or foreachBatch"
        )
    return HadoopFolder(spark, path)


def _default_scheme(spark: Any) -> str:
    files = spark._jvm.org.apache.hadoop.fs.FileSystem
    return str(files.getDefaultUri(spark._jsc.hadoopConfiguration()).getScheme())
