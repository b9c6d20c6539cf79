"""`/namespace`: shared access policies, throughput units, tags and clients; policies and publishers of hubs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute

from tidegate.hub.access_rules import NAMESPACE_LEVEL, AccessRule, Right, is_root_rule
from tidegate.hub.config import MAX_THROUGHPUT_UNITS
from tidegate.hub.errors import ArgumentError
from tidegate.hub.namespace import Namespace
from tidegate.portal.web.handling import TAG_FIELDS, Desk, changed_tags, text_of
from tidegate.portal.web.sessions import Forbidden, Visitor, VisitorRole

_LEVELS = ("/namespace", "/eventhubs/{hub}")
_KEYS = ("primary", "secondary")
_RIGHTS = tuple(right.value for right in Right)


def policy_rows(namespace: Namespace, level: str = NAMESPACE_LEVEL) -> list[dict[str, Any]]:
    """Return the policies of the namespace or of a hub, without their keys."""
    return [
        {
            "name": rule.name,
            "rights": sorted(right.value for right in rule.rights),
            "isRoot": is_root_rule(rule.name, level),
        }
        for rule in sorted(namespace.access.rule_table.rules(level), key=lambda rule: rule.name.lower())
    ]


class TagStore(Protocol):
    """Keeps the tags of the namespace, which the management API shows too."""

    def namespace_tags(self) -> Mapping[str, str]:
        """Return them."""

    def set_namespace_tags(self, tags: Mapping[str, str]) -> None:
        """Replace them. Raises OSError."""


class NamespacePages:
    """The handlers. Keys are in no page: they are shown on request, one policy at a time, to managers.

    The keys of the root policy make owners, so only an owner sees or changes them.
    """

    def __init__(self, desk: Desk, tags: TagStore | None = None) -> None:
        """Prepare the handlers; `tags` is None where nothing keeps any."""
        self._desk = desk
        self._tags = tags
        self._namespace = desk.http.hub.namespace

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        desk, manager = self._desk, VisitorRole.MANAGER
        of_levels = [
            desk.action(f"{level}/policies{path}", act, manager, fields)
            for level in _LEVELS
            for path, act, fields in (
                ("/{policy}/keys", self._keys, ()),
                ("/{policy}/regenerate", self._regenerate, ("which",)),
                ("/{policy}/delete", self._delete, ()),
                ("/{policy}", self._set_rights, _RIGHTS),
                ("", self._create, ("name", *_RIGHTS)),
            )
        ]
        return [
            *of_levels,
            desk.action("/eventhubs/{hub}/publishers/revoke", self._revoke, manager, ("publisher",)),
            desk.action("/eventhubs/{hub}/publishers/restore", self._restore, manager, ("publisher",)),
            desk.action("/namespace/limits", self._set_limits, manager, ("throughputUnits", "autoInflateTo")),
            *([] if self._tags is None else [desk.action("/namespace/tags", self._set_tags, manager, TAG_FIELDS)]),
            *desk.page("/namespace", "namespace.html", self._show),
        ]

    async def _show(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        namespace, limits = self._namespace, self._namespace.limits
        return {
            "namespace": namespace.name,
            "tier": limits.tier.value,
            "throughputUnits": limits.throughput_units,
            "autoInflateTo": limits.auto_inflate_to,
            "unitsNow": namespace.throughput.units,
            "maxUnits": MAX_THROUGHPUT_UNITS,
            "policies": policy_rows(namespace),
            "clients": sorted(self._desk.http.control.client_rows(), key=lambda one: (one["name"], one["address"])),
            "hubs": len(namespace.event_hubs),
            "hasTags": self._tags is not None,
            "tags": {} if self._tags is None else dict(self._tags.namespace_tags()),
        }

    # -- policies

    def _level(self, request: Request) -> str:
        """Return the level that a request is about. Raises NotFound."""
        hub = request.path_params.get("hub")
        return NAMESPACE_LEVEL if hub is None else self._namespace.event_hub(hub).name

    def _policy(self, request: Request, visitor: Visitor) -> tuple[str, AccessRule]:
        """Return a policy that the visitor may change. Raises Forbidden, NotFound."""
        level = self._level(request)
        rule = self._namespace.access.rule_table.rule(request.path_params["policy"], level)
        if is_root_rule(rule.name, level):
            visitor.check(VisitorRole.OWNER)
        return level, rule

    async def _keys(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        level, rule = self._policy_with_keys(request, visitor)
        return self._shown(level, rule)

    def _policy_with_keys(self, request: Request, visitor: Visitor) -> tuple[str, AccessRule]:
        """Return a policy whose keys the answer shows. Raises Forbidden, NotFound.

        A signature ends and a key does not, so whoever holds only a signature must not turn it into a key.
        """
        if not visitor.has_key:
            raise Forbidden("keys are shown to those who signed in with one; a shared access signature shows none")
        return self._policy(request, visitor)

    def _shown(self, level: str, rule: AccessRule) -> dict[str, Any]:
        connect = self._desk.http.control.connection_string
        return {
            "name": rule.name,
            "keys": [
                {"which": which, "key": key, "connectionString": connect(rule, key, level)}
                for which, key in zip(_KEYS, rule.keys, strict=True)
            ],
        }

    async def _regenerate(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        level, rule = self._policy_with_keys(request, visitor)
        which = text_of(body, "which")
        made = await run_in_threadpool(self._namespace.management.roll_key, rule.name, which, level)
        return self._shown(level, made)

    async def _create(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        level, name = self._level(request), text_of(body, "name").strip()
        if is_root_rule(name, level):
            visitor.check(VisitorRole.OWNER)
        rule = AccessRule.create(name, _rights(body))
        await run_in_threadpool(self._namespace.management.create_access_rule, rule, level)
        return {"name": name}

    async def _set_rights(self, request: Request, visitor: Visitor, body: Any) -> None:
        level, rule = self._policy(request, visitor)
        await run_in_threadpool(self._namespace.management.update_access_rule, rule.name, _rights(body), level)

    async def _delete(self, request: Request, visitor: Visitor, body: Any) -> None:
        level, rule = self._policy(request, visitor)
        await run_in_threadpool(self._namespace.management.delete_access_rule, rule.name, level)

    # -- publishers and limits

    async def _revoke(self, request: Request, visitor: Visitor, body: Any) -> None:
        publisher = text_of(body, "publisher").strip()
        if not publisher:
            raise ArgumentError("publisher: name the publisher to revoke")
        await run_in_threadpool(self._namespace.management.revoke_publisher, request.path_params["hub"], publisher)

    async def _restore(self, request: Request, visitor: Visitor, body: Any) -> None:
        publisher = text_of(body, "publisher").strip()
        await run_in_threadpool(self._namespace.management.restore_publisher, request.path_params["hub"], publisher)

    async def _set_tags(self, request: Request, visitor: Visitor, body: Any) -> None:
        assert self._tags is not None
        tags = changed_tags(self._tags.namespace_tags(), body)
        await run_in_threadpool(self._tags.set_namespace_tags, tags)

    async def _set_limits(self, request: Request, visitor: Visitor, body: Any) -> None:
        now = self._namespace.limits
        units = _units(body, "throughputUnits", now.throughput_units)
        most = _units(body, "autoInflateTo", now.auto_inflate_to)
        if most is not None and (units is None or most < units):
            raise ArgumentError("autoInflateTo: expected at least as many units as throughputUnits, which must be set")
        limits = {"throughput_units": units, "auto_inflate_to": most}
        await run_in_threadpool(lambda: self._namespace.management.update_limits(**limits))


def _rights(body: Any) -> list[Right]:
    """Return the rights that a form names; Manage includes the others. Raises ArgumentError."""
    rights = [right for right in Right if isinstance(body, dict) and body.get(right.value) is True]
    if not rights:
        raise ArgumentError("choose at least one right: Send, Listen or Manage")
    return list(Right) if Right.MANAGE in rights else rights


def _units(body: Mapping[str, Any], name: str, now: int | None) -> int | None:
    """Return the units that a form names: null for no limit, and what they are if it leaves them out."""
    value = body.get(name, now)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_THROUGHPUT_UNITS:
        raise ArgumentError(f"{name}: expected 1 to {MAX_THROUGHPUT_UNITS}, or null for no limit")
    return value
