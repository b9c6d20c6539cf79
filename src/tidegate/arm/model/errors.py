"""Refusals as Azure Resource Manager words them: a status, a code for programs and a message for people.

https://learn.microsoft.com/azure/azure-resource-manager/management/common-error-codes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.hub.errors import AlreadyExists, HubError, NotFound, QuotaExceeded, Unauthorized


class ArmError(Exception):
    """A request that is refused. The message holds no secret."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        target: str | None = None,
        details: Sequence[ArmError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.target = target
        self.details = tuple(details)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return what stands under `error` in the answer."""
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.target is not None:
            body["target"] = self.target
        if self.details:
            body["details"] = [detail.body() for detail in self.details]
        return body


def bad_request(message: str, code: str = "BadRequest", target: str | None = None) -> ArmError:
    """Return the refusal of a request that is wrong in itself."""
    return ArmError(400, code, message, target=target)


def conflict(message: str, code: str = "Conflict") -> ArmError:
    """Return the refusal of a change that contradicts what exists."""
    return ArmError(409, code, message)


def resource_not_found(kind: str, name: str, group: str) -> ArmError:
    """Return the refusal of a resource that does not exist."""
    return ArmError(
        404, "ResourceNotFound", f"The Resource '{kind}/{name}' under resource group '{group}' was not found."
    )


def refused_by_hub(error: HubError) -> ArmError:
    """Return a refusal of the hub in Resource Manager's words."""
    for kind, code in (
        (NotFound, "ResourceNotFound"),
        (AlreadyExists, "Conflict"),
        (QuotaExceeded, "QuotaExceeded"),
        (Unauthorized, "AuthorizationFailed"),
    ):
        if isinstance(error, kind):
            return ArmError(error.http_status, code, error.description)
    return ArmError(error.http_status, "BadRequest" if error.http_status < 500 else "InternalError", error.description)
