"""The namespace's resources in the management API: found, created, changed and deleted by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from tidegate.cli.management.client import GROUP, ManagementClient, ManagementError, path_of

NAMESPACES = f"{GROUP}/providers/Microsoft.EventHub/namespaces"
_MUST_BE_NEW = {"If-None-Match": "*"}
_MUST_EXIST = {"If-Match": "*"}
_PRECONDITION_FAILED = 412
_NOTHING_TO_DELETE = 204


class NamespaceClient:
    """Calls the management API for the one namespace that a hub serves. `path` always is below the namespace."""

    def __init__(self, client: Callable[[], ManagementClient]) -> None:
        """`client` opens the client when the first request is sent."""
        self._open = client

    @cached_property
    def _client(self) -> ManagementClient:
        return self._open()

    @cached_property
    def _base(self) -> str:
        return f"{NAMESPACES}/{self._client.call('GET', NAMESPACES).body['value'][0]['name']}"

    def list(self, *path: str) -> list[Any]:
        """Return the resources of a kind. Raises ManagementError."""
        found: list[Any] = self._client.call("GET", self._url(path)).body["value"]
        return found

    def show(self, *path: str) -> Any:
        """Return a resource. Raises ManagementError."""
        return self._client.call("GET", self._url(path)).body

    def create(self, *path: str, properties: Mapping[str, Any]) -> Any:
        """Create a resource. Raises ManagementError, also if it exists."""
        try:
            body = {"properties": dict(properties)}
            return self._client.call("PUT", self._url(path), body, headers=_MUST_BE_NEW).body
        except ManagementError as error:
            if error.status != _PRECONDITION_FAILED:
                raise
            raise ManagementError(f"'{path[-1]}' exists already: update or delete it, or choose another name") from None

    def put(self, *path: str, properties: Mapping[str, Any]) -> Any:
        """Create a resource, or leave it as it is described. Raises ManagementError."""
        return self._client.call("PUT", self._url(path), {"properties": dict(properties)}).body

    def update(self, *path: str, properties: Mapping[str, Any]) -> Any:
        """Change a resource. Raises ManagementError, also if it does not exist."""
        try:
            return self._client.call("PUT", self._url(path), {"properties": dict(properties)}, headers=_MUST_EXIST).body
        except ManagementError as error:
            if error.status == _PRECONDITION_FAILED:
                self.show(*path)  # which says what is missing
            raise

    def delete(self, *path: str) -> None:
        """Delete a resource. Raises ManagementError, also if it does not exist."""
        if self._client.call("DELETE", self._url(path)).status == _NOTHING_TO_DELETE:
            self.show(*path)

    def act(self, *path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return what an action (POST) answers. Raises ManagementError."""
        return self._client.call("POST", self._url(path), body).body

    def change_namespace(self, body: Mapping[str, Any]) -> Any:
        """Change the namespace itself, and return it. Raises ManagementError."""
        return self._client.call("PATCH", self._base, body).body

    def _url(self, path: tuple[str, ...]) -> str:
        below = path_of(*path)  # before any request: a name may be wrong
        return f"{self._base}/{below}" if below else self._base
