"""What the service refuses. Each message says what is wrong, and what to do instead."""

from __future__ import annotations

from collections.abc import Sequence


class ServiceError(Exception):
    """The service cannot do what it was asked; the message is for a person."""


class JobNotFound(ServiceError):
    """There is no job of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no job '{name}'; 'tidegate job list' shows those there are")


class JobExists(ServiceError):
    """A job of that name exists."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"a job '{name}' exists already; update or delete it, or choose another name")


class InvalidJob(ServiceError):
    """A definition cannot be used.

    Attributes:
        problems: what is wrong with it, a sentence each.
    """

    def __init__(self, name: str, problems: Sequence[str]) -> None:
        self.name = name
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class WrongState(ServiceError):
    """The job's state does not allow the operation."""


class Changed(ServiceError):
    """Another client has changed the job since the caller read it (its ETag differs)."""


class JobsUnavailable(ServiceError):
    """Jobs cannot run here: the packages that they need are not installed."""


class SecretsUnreadable(ServiceError):
    """Secrets at rest cannot be decrypted: the key file is missing, unreadable or another one."""
