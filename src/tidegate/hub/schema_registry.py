"""The namespace's schema registry: groups of subjects, their versions, and what new versions must satisfy.

One registry serves two contracts. Azure's knows groups, and in them schemas with versions; Confluent's knows contexts,
and in them subjects with versions. A context is a group, and a subject is a schema. A version has a number in its
subject, the id of its content (Confluent's, the same wherever the same schema is registered), and an id of its own
(Azure's).

A change is an entry of a log of its own, durable before it takes effect, and the log is the registry: opening reads it.
Entries are few and small, so none is ever dropped. Gateways share one log. Each entry says how many came before it, and
counts only if that is so; a change that was computed from less is computed again.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tidegate.hub.schema_state import (
    COMPATIBILITY_NOT_SET,
    DEFAULT_GROUP,
    GROUP_NOT_FOUND,
    INCOMPATIBLE,
    INVALID_SCHEMA,
    INVALID_SUBJECT,
    INVALID_VERSION,
    MAX_NAME_CHARACTERS,
    MODE_NOT_SET,
    NOT_IN_NAMES,
    NOT_PERMITTED,
    NOT_STORED,
    REFERENCE_EXISTS,
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_FOUND,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    Mode,
    RegistryState,
    SchemaGroup,
    SchemaRefused,
    SchemaVersion,
    SubjectName,
)
from tidegate.log import Appended, Clock, Committer, LogDamaged, LogError, PartitionLog, SegmentReader
from tidegate.schemas import Compatibility, Reference, SchemaError, SchemaFormat, SchemaText, check_evolution

_logger = logging.getLogger(__name__)
MAX_REGISTRY_BYTES = 256 << 20
"""All texts together: they are held in memory."""


_MAX_ATTEMPTS = 20
"""How often a change is computed while other gateways change the registry too."""


class EntriesMoved(LogError):
    """Another gateway has appended an entry meanwhile."""


class SchemaLog(Protocol):
    """Where the entries of a registry are."""

    def follow(self, apply: Callable[[Mapping[str, Any]], None]) -> None:
        """Call a function with each entry there is, and from now on with each that is appended, in their order.

        Raises LogError, OSError.
        """

    def append(self, number: int, entry: Mapping[str, Any]) -> None:
        """Append an entry durably, and return once it was applied. Raises LogError.

        Raises EntriesMoved, with nothing appended, if the entry would not be the one of that number, from 1 on.
        """

    def catch_up(self) -> None:
        """Return once every entry was applied that any gateway had appended before the call. Raises LogError."""

    def close(self) -> None:
        """Release the log."""


class LoggedSchemas:
    """The entries in the data directory of one process."""

    def __init__(self, directory: Path, clock: Clock, committer: Committer, *, durable: bool = True) -> None:
        """Open the log. Raises FileDamaged, LogError, OSError."""
        self._log = PartitionLog.open(
            directory, clock=clock, committer=committer, segment_bytes=32 << 20, durable=durable, exclusive=False
        )
        self._apply: Callable[[Mapping[str, Any]], None] = lambda entry: None

    def follow(self, apply: Callable[[Mapping[str, Any]], None]) -> None:
        self._apply = apply
        log, number = self._log, 0
        while number < log.next_sequence_number:
            try:
                batches = log.read_batches(number)
            except LogDamaged as damage:
                _logger.error("%s: schemas are lost: %s", log.directory, damage)
                apply({"do": "lost", "count": damage.resume_sequence_number - number})
                number = damage.resume_sequence_number
                continue
            for batch in batches:
                for event in batch.events:
                    apply(json.loads(event))
                number = batch.base_sequence_number + len(batch.events)

    def append(self, number: int, entry: Mapping[str, Any]) -> None:
        stored: Future[Appended | LogError] = Future()
        self._log.append([json.dumps(entry, separators=(",", ":")).encode()], stored.set_result)
        result = stored.result()
        if isinstance(result, LogError):
            raise result
        self._apply(entry)

    def catch_up(self) -> None:
        pass

    def close(self) -> None:
        self._log.close()


def read_entries(directory: Path) -> list[Mapping[str, Any]]:
    """Return the entries in a data directory, also while a hub has it open. Raises LogError, OSError."""
    found: list[Mapping[str, Any]] = []
    for entry in SegmentReader(directory).read_entries(0):
        begins = [0, *entry.end_table()]
        found += [json.loads(bytes(entry.payload[begins[at] : begins[at + 1]])) for at in range(entry.count)]
    return found


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Change = Callable[Concatenate["SchemaRegistry", _Arguments], _Result]


def _change(method: _Change[_Arguments, _Result]) -> _Change[_Arguments, _Result]:
    """Make a method one change of the registry: again from the start if another gateway was first."""

    @wraps(method)
    def changing(self: SchemaRegistry, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        for _ in range(_MAX_ATTEMPTS):
            with self._changing:
                with self._lock:
                    self._seen = self._applied
                try:
                    return method(self, *arguments, **named)
                except EntriesMoved:
                    continue
        raise SchemaRefused(NOT_STORED, "other gateways are changing the registry; try again")

    return changing


class SchemaRegistry:
    """The schemas of one namespace. Safe to call from any thread; changes and comparisons wait."""

    def __init__(self, log: SchemaLog, clock: Clock) -> None:
        """Read what was registered. Raises FileDamaged, LogError, OSError."""
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._changing = threading.Lock()
        self._state = RegistryState()
        self._applied = self._seen = 0
        try:
            log.follow(self._apply)
        except BaseException:
            log.close()
            raise

    def close(self) -> None:
        """Release the log."""
        self._log.close()

    def answer(self, ask: Callable[[], _Result]) -> _Result:
        """Return what a function finds, or does, in the registry; it may be called twice.

        What other gateways register is here a moment later, so that a refusal could rest on less than there is. It
        counts only if nothing was missing. Raises SchemaRefused, and what the function raises.
        """
        with self._lock:
            before = self._applied
        try:
            return ask()
        except SchemaRefused:
            try:
                self._log.catch_up()
            except LogError as error:
                raise SchemaRefused(NOT_STORED, f"the registry cannot be read now; try again: {error}") from error
            with self._lock:
                if self._applied == before:
                    raise
        return ask()

    # -- what there is

    def groups(self) -> list[SchemaGroup]:
        """Return the groups by name."""
        with self._lock:
            return sorted(self._state.groups.values(), key=lambda group: group.name.lower())

    def group(self, name: str) -> SchemaGroup:
        """Return a group by its name in any case. Raises SchemaRefused."""
        with self._lock:
            found = self._state.groups.get(name.lower())
        if found is None:
            raise SchemaRefused(GROUP_NOT_FOUND, f"there is no schema group {name[:100]!r}: create it first")
        return found

    def subjects(self, *, deleted: bool = False) -> list[tuple[str, str]]:
        """Return the groups and names of subjects, those of which all versions are softly deleted only if asked for."""
        with self._lock:
            return sorted(
                (next(iter(versions.values())).group, key[1])
                for key, versions in self._state.subjects.items()
                if deleted or not all(version.is_deleted for version in versions.values())
            )

    def versions(self, group: str, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """Return the versions of a subject, the oldest first. Raises SchemaRefused if there is none."""
        with self._lock:
            known = self._state.subjects.get((group.lower(), subject), {})
            found = [known[number] for number in sorted(known) if deleted or not known[number].is_deleted]
        if not found:
            raise SchemaRefused(SUBJECT_NOT_FOUND, f"Subject '{SubjectName.text(group, subject)}' not found.")
        return found

    def version(self, group: str, subject: str, number: int | None, *, deleted: bool = False) -> SchemaVersion:
        """Return a version of a subject, the latest without a number. Raises SchemaRefused."""
        found = self.versions(group, subject, deleted=deleted)
        if number is None:
            return found[-1]
        for version in found:
            if version.version == number:
                return version
        raise SchemaRefused(VERSION_NOT_FOUND, f"Version {number} not found.")

    def with_id(self, schema_id: int) -> list[SchemaVersion]:
        """Return the versions whose content has an id, softly deleted ones too. Raises SchemaRefused for none."""
        with self._lock:
            found = list(self._state.by_id.get(schema_id, {}).values())
        if not found:
            raise SchemaRefused(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found.")
        return found

    def with_content_id(self, content_id: uuid.UUID) -> list[SchemaVersion]:
        """Return the versions of one content. Raises SchemaRefused for none."""
        with self._lock:
            schema_id = self._state.id_of_content.get(content_id)
        if schema_id is None:
            raise SchemaRefused(SCHEMA_NOT_FOUND, f"Schema {content_id} not found.")
        return self.with_id(schema_id)

    def with_own_id(self, own_id: str) -> SchemaVersion:
        """Return the version that has an id of its own. Raises SchemaRefused."""
        with self._lock:
            found = self._state.by_own_id.get(own_id.replace("-", "").lower())
        if found is None:
            raise SchemaRefused(SCHEMA_NOT_FOUND, f"there is no schema with the id {own_id[:64]!r}")
        return found

    def find(self, group: str, subject: str, schema: SchemaText, *, deleted: bool = False) -> SchemaVersion:
        """Return the version of a subject that has a content. Raises SchemaRefused."""
        content_id = self._content_id(schema)
        for version in reversed(self.versions(group, subject, deleted=deleted)):
            if version.content_id == content_id:
                return version
        raise SchemaRefused(SCHEMA_NOT_FOUND, "Schema not found: the subject has no version with this content.")

    def referring(self, group: str, subject: str, number: int) -> list[SchemaVersion]:
        """Return the versions that refer to one."""
        name = SubjectName.text(group, subject)
        with self._lock:
            return [
                version
                for versions in self._state.subjects.values()
                for version in versions.values()
                if any(one.subject == name and one.version == number for one in version.schema.references)
            ]

    def schema(
        self,
        schema_format: SchemaFormat,
        text: str,
        references: Iterable[Reference] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> SchemaText:
        """Return a schema with the texts of what it refers to. Raises SchemaRefused if something is not there."""
        imported: dict[str, str] = {}
        for reference in references:
            group, subject = SubjectName.parse(reference.subject)
            try:
                target = self.version(group, subject, reference.version, deleted=True).schema
            except SchemaRefused as error:
                raise SchemaRefused(INVALID_SCHEMA, f"the reference {reference.name!r}: {error.description}") from None
            imported.update({name: one for name, one in target.imported.items() if name not in imported})
            imported[reference.name] = target.text
        return SchemaText(schema_format, text, tuple(references), imported, extra or {})

    # -- rules

    def compatibility(self, group: str, subject: str | None = None) -> Compatibility | None:
        """Return the level of a group, or of a subject alone: None if it has none of its own."""
        with self._lock:
            if subject is None:
                found = self._state.groups.get(group.lower())
                return Compatibility.BACKWARD if found is None else found.compatibility
            return self._state.levels.get((group.lower(), subject))

    def mode(self, group: str, subject: str | None = None) -> Mode | None:
        """Return the mode of a group, or of a subject alone: None if it has none of its own."""
        with self._lock:
            if subject is None:
                found = self._state.groups.get(group.lower())
                return Mode.READWRITE if found is None else found.mode
            return self._state.modes.get((group.lower(), subject))

    def incompatibilities(
        self, group: str, subject: str, schema: SchemaText, earlier: Iterable[SchemaVersion]
    ) -> list[str]:
        """Return why a schema may not follow earlier versions under the level in force. Raises SchemaRefused."""
        level = self.compatibility(group, subject) or self.compatibility(group) or Compatibility.BACKWARD
        try:
            schema.check()
            return check_evolution(level, schema, [version.schema for version in earlier])
        except SchemaError as error:
            raise _invalid(error) from None

    # -- changes

    @_change
    def register(
        self,
        group: str,
        subject: str,
        schema: SchemaText,
        *,
        schema_id: int | None = None,
        number: int | None = None,
    ) -> SchemaVersion:
        """Register a schema as the next version of a subject, or return the version that has it.

        Args:
            group: The group; one that does not exist is created.
            subject: The subject.
            schema: The schema.
            schema_id: Its id in the registry that it is imported from.
            number: Its version there.

        Raises:
            SchemaRefused: It is no schema, may not follow the earlier versions, or the mode forbids it.
        """
        content_id = self._content_id(schema)
        mode = self.mode(group, subject) or self.mode(group)
        known = self._known(group, subject)
        same = [one for one in known if one.content_id == content_id and not one.is_deleted]
        if same and (schema_id is None or schema_id == same[-1].schema_id):
            return same[-1]
        self._check_format(group, schema)
        is_import = mode is Mode.IMPORT
        if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
            raise SchemaRefused(NOT_PERMITTED, f"Subject {subject} is in read-only mode")
        if is_import is (schema_id is None):
            needed = "needs an id" if is_import else "gives an id, which only the mode IMPORT allows"
            raise SchemaRefused(NOT_PERMITTED, f"Subject {subject}: the request {needed}")
        if not is_import:
            reasons = self.incompatibilities(group, subject, schema, [one for one in known if not one.is_deleted])
            if reasons:
                raise SchemaRefused(INCOMPATIBLE, _explained(subject, reasons))
        given = self._chosen_id(content_id, schema_id)
        taken = {one.version for one in known}
        number = max(taken, default=0) + 1 if number is None else number
        if number < 1 or number in taken:
            raise SchemaRefused(INVALID_VERSION, f"Version {number} is taken, or not a version.")
        return self._append_version(group, subject, schema, content_id, given, number)

    def _append_version(
        self, group: str, subject: str, schema: SchemaText, content_id: uuid.UUID, schema_id: int, number: int
    ) -> SchemaVersion:
        with self._lock:
            if self._state.size + len(schema.text) > MAX_REGISTRY_BYTES:
                raise SchemaRefused(NOT_PERMITTED, "the registry is full: delete versions permanently")
        own_id = uuid.uuid4().hex
        self._append(
            {
                "do": "register",
                "group": group,
                "subject": subject,
                "version": number,
                "id": schema_id,
                "own_id": own_id,
                "content_id": content_id.hex,
                "format": schema.format.value,
                "schema": schema.text,
                "references": [one.as_json() for one in schema.references],
                "imported": dict(schema.imported),
                "extra": dict(schema.extra),
            }
        )
        return self.with_own_id(own_id)

    def _chosen_id(self, content_id: uuid.UUID, wanted: int | None) -> int:
        with self._lock:
            known = self._state.id_of_content.get(content_id)
            if wanted is None:
                return self._state.next_id if known is None else known
            if wanted < 1 or (known not in (None, wanted)) or (known is None and wanted in self._state.by_id):
                raise SchemaRefused(NOT_PERMITTED, f"the id {wanted} is that of another schema")
            return wanted

    def _check_format(self, group: str, schema: SchemaText) -> None:
        with self._lock:
            found = self._state.groups.get(group.lower())
        if found is not None and found.schema_format not in (None, schema.format):
            raise SchemaRefused(
                INVALID_SCHEMA, f"the group {found.name} takes schemas in {found.schema_format}, not in {schema.format}"
            )

    @_change
    def delete(self, group: str, subject: str, number: int | None, *, is_permanent: bool) -> list[int]:
        """Delete a version, or all of a subject: softly at first, then for good.

        Returns:
            The versions that were deleted.

        Raises:
            SchemaRefused: There is none, it is in the wrong state, or another schema refers to it.
        """
        known = self.versions(group, subject, deleted=True)
        if number is not None:
            known = [self.version(group, subject, number, deleted=True)]
        self._check_mode(group, subject)
        name = SubjectName.text(group, subject)
        for version in known:
            if any(not one.is_deleted for one in self.referring(group, subject, version.version)):
                raise SchemaRefused(REFERENCE_EXISTS, f"other schemas refer to version {version.version} of {name}")
        if not is_permanent:
            if all(one.is_deleted for one in known):
                code = SUBJECT_SOFT_DELETED if number is None else VERSION_SOFT_DELETED
                raise SchemaRefused(code, f"'{name}' was deleted softly; set permanent=true to delete it for good")
            known = [one for one in known if not one.is_deleted]
        elif not all(one.is_deleted for one in known):
            code = SUBJECT_NOT_SOFT_DELETED if number is None else VERSION_NOT_SOFT_DELETED
            raise SchemaRefused(code, f"'{name}' must be deleted softly before it is deleted for good")
        numbers = [one.version for one in known]
        entry = {"do": "delete", "group": group, "subject": subject, "versions": numbers}
        self._append({**entry, "permanent": is_permanent})
        return numbers

    def _check_mode(self, group: str, subject: str) -> None:
        mode = self.mode(group, subject) or self.mode(group)
        if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
            raise SchemaRefused(NOT_PERMITTED, f"Subject {subject} is in read-only mode")

    @_change
    def set_compatibility(self, group: str, subject: str, level: Compatibility | None) -> None:
        """Give a subject a level of its own, or take it away. Raises SchemaRefused."""
        if level is None and self.compatibility(group, subject) is None:
            raise SchemaRefused(COMPATIBILITY_NOT_SET, f"Subject '{subject}' has no compatibility of its own")
        value = None if level is None else level.value
        self._append({"do": "level", "group": group, "subject": subject, "value": value})

    @_change
    def set_mode(self, group: str, subject: str, mode: Mode | None, *, is_forced: bool = False) -> None:
        """Give a subject a mode of its own, or take it away. Raises SchemaRefused."""
        if mode is None and self.mode(group, subject) is None:
            raise SchemaRefused(MODE_NOT_SET, f"Subject '{subject}' has no mode of its own")
        if mode is Mode.IMPORT and not is_forced and self._known(group, subject):
            raise SchemaRefused(NOT_PERMITTED, f"Subject '{subject}' has versions: IMPORT needs force=true")
        self._append({"do": "mode", "group": group, "subject": subject, "value": None if mode is None else mode.value})

    @_change
    def put_group(
        self,
        name: str,
        *,
        schema_format: SchemaFormat | None = None,
        compatibility: Compatibility | None = None,
        mode: Mode | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> SchemaGroup:
        """Create a group, or change what is given of one; its format stays. Raises SchemaRefused."""
        if not name or len(name) > MAX_NAME_CHARACTERS or any(one in NOT_IN_NAMES or one in ":/" for one in name):
            raise SchemaRefused(INVALID_SUBJECT, f"{name[:100]!r} cannot be a schema group")
        with self._lock:
            former = self._state.groups.get(name.lower())
        is_other = former is not None and schema_format is not None and former.schema_format is not schema_format
        if former is not None and is_other:
            raise SchemaRefused(NOT_PERMITTED, f"the format of the schema group {former.name} cannot change")
        base = former or SchemaGroup(name, schema_format, Compatibility.NONE)
        wanted = replace(
            base,
            compatibility=compatibility or base.compatibility,
            mode=mode or base.mode,
            properties=base.properties if properties is None else properties,
        )
        if wanted != former:
            self._append(
                {
                    "do": "group",
                    "group": wanted.name,
                    "format": None if wanted.schema_format is None else wanted.schema_format.value,
                    "level": wanted.compatibility.value,
                    "mode": wanted.mode.value,
                    "properties": dict(wanted.properties),
                }
            )
        return self.group(name)

    @_change
    def delete_group(self, name: str) -> None:
        """Delete a group with its versions. Raises SchemaRefused if it does not exist or others refer to them."""
        group = self.group(name)
        with self._lock:
            inside = [key[1] for key in self._state.subjects if key[0] == group.name.lower()]
        for subject in inside:
            for version in self._known(group.name, subject):
                others = self.referring(group.name, subject, version.version)
                if any(one.group != version.group for one in others):
                    raise SchemaRefused(REFERENCE_EXISTS, f"schemas of other groups refer to {subject}")
        for subject in inside:
            numbers = [version.version for version in self._known(group.name, subject)]
            entry = {"do": "delete", "group": group.name, "subject": subject, "versions": numbers}
            self._append({**entry, "permanent": True})
        if group.name.lower() != DEFAULT_GROUP:
            self._append({"do": "remove-group", "group": group.name})

    # -- the log

    def _known(self, group: str, subject: str) -> list[SchemaVersion]:
        with self._lock:
            known = self._state.subjects.get((group.lower(), subject), {})
            return [known[number] for number in sorted(known)]

    def _append(self, entry: dict[str, Any]) -> None:
        """Store an entry and do what it says. Raises SchemaRefused if it cannot be stored, EntriesMoved."""
        entry["at"] = self._clock.now_ms()
        try:
            self._log.append(self._seen + 1, entry)
        except EntriesMoved:
            raise
        except LogError as error:
            raise SchemaRefused(NOT_STORED, f"the registry cannot store the change: {error}") from error
        self._seen += 1

    def _apply(self, entry: Mapping[str, Any]) -> None:
        with self._lock:
            self._state.apply(entry)
            self._applied += 1

    def _content_id(self, schema: SchemaText) -> uuid.UUID:
        try:
            return schema.identity()
        except SchemaError as error:
            raise _invalid(error) from None


def _invalid(error: SchemaError) -> SchemaRefused:
    return SchemaRefused(INVALID_SCHEMA, f"Invalid schema: {error}")


def _explained(subject: str, reasons: list[str]) -> str:
    shown = "; ".join(reasons[:10]) + (f"; and {len(reasons) - 10} more" if len(reasons) > 10 else "")
    return f"Schema being registered is incompatible with an earlier schema for subject '{subject}': {shown}"
