"""`/schemas`: the schema registry: groups, subjects, versions with their texts, and what new versions must satisfy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute

from tidegate.hub.errors import ArgumentError
from tidegate.hub.schema_state import SchemaVersion, SubjectName
from tidegate.portal.web.handling import Desk, text_of
from tidegate.portal.web.rendering import iso_of_ms
from tidegate.portal.web.sessions import Visitor, VisitorRole
from tidegate.schemas import Compatibility, SchemaFormat
from tidegate.server.http.schema_access import CONFLUENT_ROOT

_SUBJECT = "/schemas/{group}/{subject:path}"
_ANY = "Any"


class SchemaPages:
    """The handlers of the registry's pages."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._registry = desk.http.hub.namespace.schema_registry
        self._namespace = desk.http.hub.namespace

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        desk, manager = self._desk, VisitorRole.MANAGER
        return [
            desk.action("/schemas/groups", self._put_group, manager, ("name", "format", "compatibility")),
            desk.action(
                "/schemas/register", self._register, VisitorRole.CONTRIBUTOR, ("group", "subject", "format", "schema")
            ),
            desk.action("/schemas/level", self._set_level, manager, ("group", "subject", "compatibility")),
            desk.action("/schemas/delete", self._delete, manager, ("group", "subject", "version")),
            *desk.page("/schemas", "schemas.html", self._show),
            *desk.page(_SUBJECT, "schema.html", self._show_subject),
        ]

    async def _show(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        return await run_in_threadpool(self._overview)

    def _overview(self) -> dict[str, Any]:
        subjects = []
        for group, subject in self._registry.subjects():
            versions = self._registry.versions(group, subject)
            latest = versions[-1]
            subjects.append(
                {
                    "group": group,
                    "subject": subject,
                    "format": latest.schema.format.value,
                    "versions": len(versions),
                    "latestVersion": latest.version,
                    "latestId": latest.schema_id,
                    "registeredAt": iso_of_ms(latest.created_at_ms),
                    "compatibility": self._level(group, subject),
                }
            )
        groups = [
            {
                "name": group.name,
                "format": _ANY if group.schema_format is None else group.schema_format.value,
                "compatibility": group.compatibility.value,
                "mode": group.mode.value,
                "subjects": sum(one["group"] == group.name for one in subjects),
            }
            for group in self._registry.groups()
        ]
        return {
            "namespace": self._namespace.name,
            "groups": groups,
            "subjects": subjects,
            "levels": list(Compatibility),
            "formats": [one.value for one in SchemaFormat],
            "registryPath": CONFLUENT_ROOT,
        }

    async def _show_subject(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        names = request.path_params
        return await run_in_threadpool(self._subject, names["group"], names["subject"])

    def _subject(self, group: str, subject: str) -> dict[str, Any]:
        versions = self._registry.versions(group, subject, deleted=True)
        own = self._registry.compatibility(group, subject)
        return {
            "namespace": self._namespace.name,
            "group": versions[0].group,
            "subject": subject,
            "name": SubjectName.text(versions[0].group, subject),
            "format": versions[-1].schema.format.value,
            "compatibility": self._level(group, subject),
            "ownCompatibility": None if own is None else own.value,
            "groupCompatibility": self._registry.group(group).compatibility.value,
            "levels": list(Compatibility),
            "versions": [_row(version) for version in reversed(versions)],
        }

    def _level(self, group: str, subject: str) -> str:
        level = self._registry.compatibility(group, subject) or self._registry.group(group).compatibility
        return level.value

    async def _put_group(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        name, given = text_of(body, "name").strip(), text_of(body, "format", _ANY)
        if given not in (_ANY, *SchemaFormat):
            raise ArgumentError(f"format: expected {_ANY}, {', '.join(SchemaFormat)}")
        level = _level_of(body)
        group = await run_in_threadpool(
            self._registry.put_group,
            name,
            schema_format=None if given == _ANY else SchemaFormat(given),
            compatibility=level,
        )
        return {"name": group.name}

    async def _register(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        group, subject, text = (text_of(body, name) for name in ("group", "subject", "schema"))
        given = text_of(body, "format")
        if given not in tuple(SchemaFormat) or not subject.strip():
            raise ArgumentError(f"a schema needs a subject, and a format: {', '.join(SchemaFormat)}")
        schema = self._registry.schema(SchemaFormat(given), text)
        version = await run_in_threadpool(self._registry.register, group, subject.strip(), schema)
        return {"version": version.version, "id": version.schema_id}

    async def _set_level(self, request: Request, visitor: Visitor, body: Any) -> None:
        group, subject = text_of(body, "group"), text_of(body, "subject", "")
        level = _level_of(body)
        if not subject:
            await run_in_threadpool(self._registry.put_group, group, compatibility=level)
        elif level is not None or self._registry.compatibility(group, subject) is not None:
            await run_in_threadpool(self._registry.set_compatibility, group, subject, level)

    async def _delete(self, request: Request, visitor: Visitor, body: Any) -> None:
        group, subject, number = text_of(body, "group"), text_of(body, "subject"), body.get("version")
        if type(number) is not int:
            raise ArgumentError("version: expected a number")
        is_permanent = self._registry.version(group, subject, number, deleted=True).is_deleted
        await run_in_threadpool(self._registry.delete, group, subject, number, is_permanent=is_permanent)


def _level_of(body: Any) -> Compatibility | None:
    """Return the level of a form, None for an empty one. Raises ArgumentError."""
    given = text_of(body, "compatibility", "")
    if not given:
        return None
    if given not in tuple(Compatibility):
        raise ArgumentError(f"compatibility: expected {', '.join(Compatibility)}")
    return Compatibility(given)


def _row(version: SchemaVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "id": version.schema_id,
        "ownId": version.own_id,
        "registeredAt": iso_of_ms(version.created_at_ms),
        "isDeleted": version.is_deleted,
        "references": [one.as_json() for one in version.schema.references],
        "schema": version.schema.text,
    }
