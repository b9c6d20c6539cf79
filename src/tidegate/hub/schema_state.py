"""What a schema registry holds: groups, subjects, versions, and the rules of each; changed by the entries of a log."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from tidegate.hub.errors import HubError
from tidegate.schemas import Compatibility, Reference, SchemaFormat, SchemaText

DEFAULT_GROUP = "default"
"""Confluent's default context. It takes all formats and need not be created."""
MAX_NAME_CHARACTERS = 255
NOT_IN_NAMES = frozenset("\x7f\\") | frozenset(map(chr, range(32)))


class Mode(StrEnum):
    """What may be done with a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    """Versions are registered with numbers and ids of another registry."""


class SchemaRefused(HubError):
    """A request that the registry refuses; `code` is one of Confluent's, which begins with the HTTP status."""

    condition = "com.microsoft:schema-registry"

    def __init__(self, code: int, description: str) -> None:
        self.code = code
        self.http_status = code if code < 1000 else code // 100
        super().__init__(description)


INCOMPATIBLE = 409
SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
SUBJECT_SOFT_DELETED, SUBJECT_NOT_SOFT_DELETED = 40404, 40405
VERSION_SOFT_DELETED, VERSION_NOT_SOFT_DELETED = 40406, 40407
COMPATIBILITY_NOT_SET, MODE_NOT_SET = 40408, 40409
GROUP_NOT_FOUND = 40470
INVALID_SCHEMA, INVALID_VERSION, INVALID_COMPATIBILITY, INVALID_MODE = 42201, 42202, 42203, 42204
NOT_PERMITTED, REFERENCE_EXISTS, INVALID_SUBJECT = 42205, 42206, 42208
NOT_STORED = 50001


@dataclass(frozen=True, slots=True)
class SchemaGroup:
    """A group of subjects.

    Attributes:
        name: As it was given.
        schema_format: The only format it takes; None takes all.
        compatibility: For subjects without a level of their own.
        mode: Likewise.
        properties: What its creator noted.
        created_at_ms: When it was created.
    """

    name: str
    schema_format: SchemaFormat | None = None
    compatibility: Compatibility = Compatibility.BACKWARD
    mode: Mode = Mode.READWRITE
    properties: Mapping[str, str] = field(default_factory=dict)
    created_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of a schema."""

    group: str
    subject: str
    version: int
    schema_id: int
    """The id of its content, which other versions may share."""
    own_id: str
    """32 hexadecimal digits, of this version alone."""
    content_id: uuid.UUID
    schema: SchemaText
    created_at_ms: int
    is_deleted: bool = False
    """Softly: it can still be read by its id, and be deleted for good."""


class SubjectName:
    """The name of a subject as Confluent's clients write it: `subject`, or `:.group:subject` in another group."""

    @staticmethod
    def parse(text: str) -> tuple[str, str]:
        """Return the group and the subject. Raises SchemaRefused."""
        group, subject = DEFAULT_GROUP, text
        if text.startswith(":.") and ":" in text[2:]:
            group, _, subject = text[2:].partition(":")
        for name in (group or DEFAULT_GROUP, subject):
            if len(name) > MAX_NAME_CHARACTERS or any(character in NOT_IN_NAMES for character in name):
                raise SchemaRefused(INVALID_SUBJECT, f"{text[:100]!r} cannot be a subject")
        return group or DEFAULT_GROUP, subject

    @staticmethod
    def text(group: str, subject: str) -> str:
        """Return the name of a subject in a group."""
        return subject if group.lower() == DEFAULT_GROUP else f":.{group}:{subject}"


class RegistryState:
    """What the entries of the log amount to. `apply` never refuses: what is in the log has been accepted."""

    def __init__(self) -> None:
        self.groups: dict[str, SchemaGroup] = {DEFAULT_GROUP: SchemaGroup(DEFAULT_GROUP)}
        self.subjects: dict[tuple[str, str], dict[int, SchemaVersion]] = {}
        self.levels: dict[tuple[str, str], Compatibility] = {}
        self.modes: dict[tuple[str, str], Mode] = {}
        self.by_id: dict[int, dict[str, SchemaVersion]] = {}
        self.by_own_id: dict[str, SchemaVersion] = {}
        self.id_of_content: dict[uuid.UUID, int] = {}
        self.next_id = 1
        self.size = 0

    def apply(self, entry: Mapping[str, Any]) -> None:
        """Do what an entry says."""
        match entry["do"]:
            case "register":
                self._register(entry)
            case "delete":
                for version in entry["versions"]:
                    self._delete((entry["group"].lower(), entry["subject"]), version, is_permanent=entry["permanent"])
            case "level":
                self._set(self.levels, entry, Compatibility)
            case "mode":
                self._set(self.modes, entry, Mode)
            case "group":
                self._put_group(entry)
            case "remove-group":
                self.groups.pop(entry["group"].lower(), None)
            case "lost":
                # ids are never given twice, not even those of entries that cannot be read any more
                self.next_id += entry["count"]

    def _put_group(self, entry: Mapping[str, Any]) -> None:
        key, given = entry["group"].lower(), entry["format"]
        former = self.groups.get(key)
        self.groups[key] = SchemaGroup(
            entry["group"],
            None if given is None else SchemaFormat(given),
            Compatibility(entry["level"]),
            Mode(entry["mode"]),
            entry["properties"],
            former.created_at_ms if former is not None and former.created_at_ms else entry["at"],
        )

    def _set(self, values: dict[tuple[str, str], Any], entry: Mapping[str, Any], kind: type[StrEnum]) -> None:
        key = entry["group"].lower(), entry["subject"]
        if entry["value"] is None:
            values.pop(key, None)
        else:
            values[key] = kind(entry["value"])

    def _register(self, entry: Mapping[str, Any]) -> None:
        group = entry["group"]
        if group.lower() not in self.groups:
            self.groups[group.lower()] = SchemaGroup(group, created_at_ms=entry["at"])
        references = tuple(Reference(one["name"], one["subject"], one["version"]) for one in entry["references"])
        schema = SchemaText(
            SchemaFormat(entry["format"]), entry["schema"], references, entry["imported"], entry["extra"]
        )
        version = SchemaVersion(
            self.groups[group.lower()].name,
            entry["subject"],
            entry["version"],
            entry["id"],
            entry["own_id"],
            uuid.UUID(entry["content_id"]),
            schema,
            entry["at"],
        )
        self._put(version)
        self.id_of_content[version.content_id] = version.schema_id
        self.next_id = max(self.next_id, version.schema_id + 1)
        self.size += len(schema.text)

    def _put(self, version: SchemaVersion) -> None:
        key = version.group.lower(), version.subject
        self.subjects.setdefault(key, {})[version.version] = version
        self.by_id.setdefault(version.schema_id, {})[version.own_id] = version
        self.by_own_id[version.own_id] = version

    def _delete(self, key: tuple[str, str], number: int, *, is_permanent: bool) -> None:
        version = self.subjects.get(key, {}).get(number)
        if version is None:
            return
        if not is_permanent:
            self._put(replace(version, is_deleted=True))
            return
        del self.subjects[key][number], self.by_own_id[version.own_id]
        self.size -= len(version.schema.text)
        if not self.subjects[key]:
            del self.subjects[key]
            self.levels.pop(key, None)
            self.modes.pop(key, None)
        sharing = self.by_id[version.schema_id]
        del sharing[version.own_id]
        if not sharing:
            del self.by_id[version.schema_id]
            self.id_of_content.pop(version.content_id, None)
