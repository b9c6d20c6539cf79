"""Who may read and change schemas: the rules, rights and scopes of the namespace, however a client shows its key.

Anyone with a right on a schema may read it, Send lets a client register, and Manage lets it do everything. A key of the
namespace covers all schemas; a shared access signature may cover `$schemagroups/GROUP` or one schema below it. A key of
an event hub covers the subjects that Kafka's clients name after its topic: `HUB-key` and `HUB-value`.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator
from dataclasses import dataclass

from starlette.requests import Request

from tidegate.hub.access import Access, Grant
from tidegate.hub.access_rules import Right
from tidegate.hub.addresses import Path
from tidegate.hub.errors import HubError, Unauthorized
from tidegate.hub.schema_state import DEFAULT_GROUP
from tidegate.server.http.routing import HttpContext

CONFLUENT_ROOT = "/schema-registry"
"""Where Confluent's contract is served: clients take it for the registry's address."""
SCHEMA_GROUPS = "$schemagroups"
_USER = "$ConnectionString"
_SUFFIXES = ("-key", "-value")


class Forbidden(HubError):
    """A key that is valid, but does not cover what was asked for."""

    condition = "amqp:unauthorized-access"
    http_status = 403


@dataclass(frozen=True, slots=True)
class SchemaClient:
    """What one request may do. Rights of a token of Entra ID concern the namespace, others follow from a grant."""

    access: Access
    grant: Grant | None
    rights: frozenset[Right]

    def may(self, right: Right, group: str = "", subject: str = "") -> bool:
        """Return whether the client has a right on all schemas, on those of a group, or on one."""
        if self.grant is None:
            return right in self.rights
        for path in _paths(group, subject):
            try:
                self.access.authorize([self.grant], right, path, time.time())
            except Unauthorized:
                continue
            return True
        return False

    def sees(self, group: str = "", subject: str = "") -> bool:
        """Return whether the client may read."""
        return any(self.may(right, group, subject) for right in Right)

    def check(self, right: Right | None, group: str = "", subject: str = "") -> None:
        """Raise Forbidden without a right; None is any of them."""
        if not (self.sees(group, subject) if right is None else self.may(right, group, subject)):
            where = "/".join(part for part in (group, subject) if part) or "the schema registry"
            needed = "a key that covers it" if right is None else f"the right {right.value}"
            raise Forbidden(f"{where} needs {needed}")


def _paths(group: str, subject: str) -> Iterator[Path]:
    yield tuple(part.lower() for part in (SCHEMA_GROUPS, group, subject) if part)
    if group.lower() == DEFAULT_GROUP and subject.endswith(_SUFFIXES):
        yield (subject.rpartition("-")[0].lower(),)


def schema_client(context: HttpContext, request: Request) -> SchemaClient:
    """Return what the Authorization header of a request allows. Raises Unauthorized."""
    access = context.hub.namespace.access
    authorization = request.headers.get("authorization", "")
    scheme = authorization.partition(" ")[0].lower()
    if scheme == "sharedaccesssignature":
        return SchemaClient(access, access.check_token(authorization, time.time()), frozenset())
    if scheme == "basic":
        return SchemaClient(access, _basic(access, authorization), frozenset())
    if scheme == "bearer":
        for group in context.control.further_routes:
            if group.bearer_rights is not None:
                return SchemaClient(access, None, group.bearer_rights(request))
    raise Unauthorized(
        "the Authorization header is missing: send a shared access signature, an access token, or as user and password "
        f"the name of a rule and its key, or {_USER} and a connection string"
    )


def _basic(access: Access, authorization: str) -> Grant:
    try:
        text = base64.b64decode(authorization.partition(" ")[2].strip(), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise Unauthorized("the Authorization header is not HTTP Basic") from None
    user, _, password = text.partition(":")
    if user == _USER:
        return access.check_connection_string(password, time.time())
    return access.check_key(user, password)
