"""What the service refuses as what the portal answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tidegate.hub.errors import AlreadyExists, ArgumentError, HubError, NotFound
from tidegate.service import Changed, InvalidJob, JobExists, JobNotFound, ServiceError, WrongState


class Conflict(HubError):
    """The job's state, or a change that somebody else made, does not allow it."""

    http_status = 409


def as_refusal(error: ServiceError) -> HubError:
    """Return what the service refuses as what the portal answers."""
    if isinstance(error, JobNotFound):
        return NotFound(f"there is no job {error.name!r}")
    if isinstance(error, JobExists):
        return AlreadyExists(str(error))
    if isinstance(error, InvalidJob):
        return ArgumentError("\n".join(error.problems))
    if isinstance(error, Changed | WrongState):
        return Conflict(str(error))
    return ArgumentError(str(error))


def served(handle: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a handler whose refusals by the service are the portal's."""

    async def answered(*arguments: Any) -> Any:
        try:
            return await handle(*arguments)
        except ServiceError as error:
            raise as_refusal(error) from error

    return answered
